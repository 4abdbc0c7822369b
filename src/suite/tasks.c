/* tasks.c - the tasks as data: fields, prompts, choices and measures as lm-evaluation-harness 0.4 has them, and the
 * subjects of MMLU. */
#include <stdio.h>
#include <string.h>

#include "suite/suite_int.h"

#define ARC \
    .suite = "arc", .kind = TASK_CHOICE, .fields = "question choices answerKey", \
    .prompt = "Question: {{question}}\nAnswer:", \
    .choices = "{{choices.text|tojson}}", .gold = "{{choices.label.index(answerKey)}}", .split = "test", \
    .shot_split = "train", .normalised = true, .version = 1
#define RULER(form, keys, values, asked) \
    .suite = "ruler", .kind = TASK_HAYSTACK, .hay = {form, keys, values, asked, false}, .version = 1

static const TaskRow rows[] = {
    {.name = "perplexity", .suite = "perplexity", .kind = TASK_ROLLING, .version = 2},
    {.name = "hellaswag", .suite = "hellaswag", .kind = TASK_CHOICE,
     .fields = "ctx_a ctx_b activity_label endings label",
     .prompt = "{{ (activity_label ~ ': ' ~ ctx_a ~ ' ' ~ ctx_b.capitalize()).strip().replace(' [title]', '. ') }}",
     .choices = "[{% for ending in endings %}{{ ending.strip().replace(' [title]', '. ')|tojson }}"
                "{{ ',' if not loop.last }}{% endfor %}]",
     .gold = "{{label}}",
     .split = "validation", .shot_split = "train", .may_draw_itself = true, .strip_brackets = true,
     .normalised = true, .version = 1},
    {.name = "arc_easy", ARC},
    {.name = "arc_challenge", ARC},
    {.name = "winogrande", .suite = "winogrande", .kind = TASK_BLANK,
     .fields = "sentence option1 option2 answer",
     .choices = "{% set before = sentence.split('_', 1)[0] %}{{ [before ~ option1, before ~ option2]|tojson }}",
     .gold = "{{answer|int - 1}}",
     .target = "{{sentence.split('_', 1)[1].strip()}}",
     .split = "validation", .shot_split = "train", .may_draw_itself = true, .version = 1},
    {.name = "boolq", .suite = "boolq", .kind = TASK_CHOICE,
     .fields = "passage question label|answer",
     .prompt = "{{passage}}\nQuestion: {{question}}?\nAnswer:",
     .choices = "[\"no\", \"yes\"]",
     .gold = "{{ label if label is defined else (1 if answer else 0) }}",
     .split = "validation", .shot_split = "train", .may_draw_itself = true, .version = 2},
    {.name = "mmlu", .suite = "mmlu", .kind = TASK_CHOICE,
     .fields = "question choices answer",
     .prompt = "{{question.strip()}}\nA. {{choices[0]}}\nB. {{choices[1]}}\nC. {{choices[2]}}\nD. {{choices[3]}}\n"
               "Answer:",
     .choices = "[\"A\", \"B\", \"C\", \"D\"]",
     .gold = "{{answer}}",
     .split = "test", .shot_split = "dev", .subject = "subject", .first_shots = true, .version = 1},
    {.name = "gsm8k", .suite = "gsm8k", .kind = TASK_ANSWER,
     .fields = "question answer",
     .prompt = "Question: {{question}}\nAnswer:",
     .target = "{{answer}}",
     .split = "test", .shot_split = "train", .shots = 5,
     .until = {"Question:", "</s>", "<|im_end|>"}, .most_new = 256,
     .filter = {{"strict-match", "#### (\\-?[0-9\\.\\,]+)", false},
                {"flexible-extract", "(-?[$0-9.,]{2,})|(-?[0-9]+)", true}},
     .version = 3},
    {.name = "niah_single", .most_new = 32, RULER(HAY_NEEDLE, 1, 1, 1)},
    {.name = "niah_multikey", .most_new = 32, RULER(HAY_NEEDLE, 4, 1, 1)},
    {.name = "niah_multivalue", .most_new = 128, RULER(HAY_NEEDLE, 1, 4, 1)},
    {.name = "niah_multiquery", .most_new = 128, RULER(HAY_NEEDLE, 4, 1, 4)},
    {.name = "ruler_vt", .most_new = 64, RULER(HAY_CHAIN, 5, 1, 1)},
    {.name = "ruler_cwe", .most_new = 128, RULER(HAY_COMMON, 10, 1, 1)},
    {.name = "ruler_fwe", .most_new = 64, RULER(HAY_FREQUENT, 3, 1, 1)},
    {.name = "needle", .suite = "needle", .kind = TASK_HAYSTACK, .most_new = 32,
     .hay = {HAY_NEEDLE, 1, 1, 1, true}, .version = 1},
};

const TaskRow *task_row(int i) { return i < COUNT_OF(rows) ? &rows[i] : NULL; }

/* ---- MMLU ---- */

static const struct {
    const char *name, *subjects; /* ' ' before and behind each */
} categories[] = {
    {"mmlu_stem",
     " abstract_algebra anatomy astronomy college_biology college_chemistry college_computer_science "
     "college_mathematics college_physics computer_security conceptual_physics electrical_engineering "
     "elementary_mathematics "
     "high_school_biology high_school_chemistry high_school_computer_science high_school_mathematics "
     "high_school_physics high_school_statistics machine_learning "},
    {"mmlu_other",
     " business_ethics clinical_knowledge college_medicine global_facts human_aging management marketing "
     "medical_genetics miscellaneous nutrition professional_accounting professional_medicine virology "},
    {"mmlu_social_sciences",
     " econometrics high_school_geography high_school_government_and_politics high_school_macroeconomics "
     "high_school_microeconomics high_school_psychology human_sexuality professional_psychology public_relations "
     "security_studies sociology us_foreign_policy "},
    {"mmlu_humanities",
     " formal_logic high_school_european_history high_school_us_history high_school_world_history international_law "
     "jurisprudence logical_fallacies moral_disputes moral_scenarios philosophy prehistory professional_law "
     "world_religions "},
};

const char *task_category_at(int i) { return i < COUNT_OF(categories) ? categories[i].name : NULL; }

const char *task_category(const char *subject) {
    char word[80];
    if (strlen(subject) > sizeof word - 3 || strchr(subject, ' ')) return NULL;
    snprintf(word, sizeof word, " %s ", subject);
    for (int i = 0; i < COUNT_OF(categories); i++)
        if (strstr(categories[i].subjects, word)) return categories[i].name;
    return NULL;
}

/* ---- suites ---- */

bool suite_known(const char *name) {
    for (int i = 0; i < COUNT_OF(rows); i++)
        if (!strcmp(rows[i].suite, name) || !strcmp(rows[i].name, name)) return true;
    return false;
}

void suite_names(Str *out) {
    for (int i = 0; i < COUNT_OF(rows); i++)
        if (!i || strcmp(rows[i].suite, rows[i - 1].suite)) str_addf(out, "%s%s", i ? ", " : "", rows[i].suite);
}

bool suite_needs_folder(const char *name) {
    for (int i = 0; i < COUNT_OF(rows); i++)
        if ((!strcmp(rows[i].suite, name) || !strcmp(rows[i].name, name)) && rows[i].split) return true;
    return false;
}
