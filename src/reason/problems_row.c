/* problems_row.c - the layouts of the public sets of math problems, and what a row of each says. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "data/field.h"
#include "reason/answer.h"
#include "reason/problems_int.h"

/* ---- the table ---- */

static const Layout table[] = {
    {"gsm8k", "gsm", "question", "answer", "gsm8k (main, train)",
     "grade-school word problems; the answer follows ####"},
    {"math", "hendrycks-math,competition-math,math500", "problem", "solution",
     "hendrycks/math (7 subjects, train)", "competition problems; the answer is the solution's last box"},
    {"asdiv", "", "body", "answer", "asdiv (train)",
     "elementary word problems: body and question, answer with its unit"},
    {"aqua", "aqua-rat", "question", "rationale", "aqua_rat (train)", "algebra word problems with five options"},
    {"math_qa", "mathqa", "Problem", "Rationale", "math_qa (train)", "word problems with options in one line"},
    {"numina_math", "numina,numinamath", "problem", "solution", "AI-MO/NuminaMath-1.5 (train)",
     "competition problems of many sources; proofs have no answer to compare with"},
    {"arithmetic", "generated,synthetic", "question", "answer", "snug itself (no file needed)",
     "stories of one to four steps drawn from the seed"},
};

/* What each layout has beyond its two fields; the same order. */
static const RowRule rules[] = {
    {0},
    {.final = "answer"},
    {.more = "question"},
    {.choices = true},
    {.choices = true},
    {.final = "answer"},
    {0},
};
_Static_assert(COUNT_OF(rules) == COUNT_OF(table), "one rule for each layout");

const Layout *layouts(int *n) {
    *n = COUNT_OF(table);
    return table;
}

static bool is_alias(const char *aliases, const char *key) {
    size_t n = strlen(key);
    char word[64];
    while (*aliases) {
        size_t length = strcspn(aliases, ",");
        if (length == n && length < sizeof word) {
            memcpy(word, aliases, length);
            word[length] = 0;
            if (str_same_word(word, key)) return true;
        }
        aliases += length + (aliases[length] == ',');
    }
    return false;
}

const Layout *layout_find(const char *key, Err *e) {
    const char *names[COUNT_OF(table)];
    Str all = {0};
    for (int i = 0; i < COUNT_OF(table); i++) {
        if (str_same_word(table[i].key, key) || is_alias(table[i].aliases, key)) return &table[i];
        names[i] = table[i].key;
    }
    for (int i = 0; i < COUNT_OF(table); i++) str_addf(&all, "%s%s", i ? ", " : "", table[i].key);
    const char *nearest = str_nearest(key, names, COUNT_OF(table));
    if (nearest) fail(e, ERR_USAGE, "no layout of problems is called '%s'. Did you mean %s?", key, nearest);
    else fail(e, ERR_USAGE, "no layout of problems is called '%s'. There are: %s", key, all.data);
    str_free(&all);
    return NULL;
}

/* ---- the first row ---- */

static bool fail_fields(const json_t *row, const char *what, Err *e) {
    Str has = {0};
    field_names(&has, row);
    fail(e, ERR_FAIL, "%s (the row has: %s). Name the fields with --problem-field and --answer-field", what,
         str_text(&has));
    str_free(&has);
    return false;
}

/* The layout that a row has the fields of; NULL: none. */
static const Layout *recognise(const json_t *row) {
    static const char *const sign[][2] = {{"Problem", "options"}, {"question", "options"}, {"body", "question"},
                                          {"problem", "source"}, {"problem", "solution"}, {"problem", "answer"},
                                          {"question", "answer"}};
    static const int layout[] = {4, 3, 2, 5, 1, 1, 0};
    for (int i = 0; i < COUNT_OF(layout); i++)
        if (field_get(row, sign[i][0]) && field_get(row, sign[i][1])) return &table[layout[i]];
    return NULL;
}

bool row_rule_settle(RowRule *rule, const ProblemQuery *q, const json_t *row, Err *e) {
    const Layout *l = q->layout ? layout_find(q->layout, e) : recognise(row);
    if (q->layout && !l) return false;
    if (l) {
        *rule = rules[l - table];
        rule->problem = l->problem_field;
        rule->answer = l->answer_field;
    } else if (field_get(row, "prompt") && field_get(row, "answer")) { /* as prompts for training are kept */
        *rule = (RowRule){.problem = "prompt", .answer = "answer"};
    }
    if (q->problem_field) {
        rule->problem = q->problem_field;
        rule->more = NULL;
    }
    if (q->answer_field) {
        rule->answer = rule->final = q->answer_field;
        rule->choices = false;
        if (!field_get(row, q->answer_field))
            return fail_fields(row, "the field that was named for the answer is missing", e);
    }
    if (!rule->problem) return fail_fields(row, "the fields are none that are known", e);
    if (!field_get(row, rule->problem)) return fail_fields(row, "the field with the problem is missing", e);
    rule->settled = true;
    return true;
}

/* ---- options ---- */

/* "a ) 38 , b ) 27 , ..." in one string: where the letter's text begins, or NULL. */
static const char *find_option(const char *options, char letter) {
    for (const char *p = options; *p; p++) {
        if (tolower((unsigned char)*p) != letter || (p > options && !strchr(" ,[\"'", p[-1]))) continue;
        const char *q = p + 1;
        while (*q == ' ') q++;
        if (*q == ')') return q + 1;
    }
    return NULL;
}

static void add_option_of_line(Str *out, const char *options, char letter) {
    const char *begin = find_option(options, letter), *end = begin ? find_option(begin, (char)(letter + 1)) : NULL;
    if (!begin) return;
    if (!end) {
        end = begin + strlen(begin);
    } else {
        while (end > begin && tolower((unsigned char)*end) != letter + 1) end--; /* back over "b )" */
    }
    while (begin < end && strchr(" '\"", *begin)) begin++;
    while (end > begin && strchr(" ,]'\"", end[-1])) end--;
    str_addf(out, "%c) ", toupper((unsigned char)letter));
    str_add_bytes(out, begin, end - begin);
}

/* "B)21" and "B) 21" become "B) 21". */
static void add_option_of_list(Str *out, const char *option, char letter) {
    if (tolower((unsigned char)option[0]) == letter && (option[1] == ')' || option[1] == '.')) option += 2;
    str_addf(out, "%c) ", toupper((unsigned char)letter));
    str_add_trimmed(out, option);
}

/* Adds "B) 21"; nothing when there is no such option. */
static void add_option(Str *out, const json_t *options, char letter) {
    if (json_is_string(options)) {
        add_option_of_line(out, json_string_value(options), letter);
    } else {
        const json_t *v = json_array_get(options, (size_t)(letter - 'a'));
        if (json_is_string(v)) add_option_of_list(out, json_string_value(v), letter);
    }
}

static void add_options(Str *text, const json_t *options) {
    Str one = {0};
    for (int letter = 'a'; letter <= 'j'; letter++) {
        str_clear(&one);
        add_option(&one, options, (char)letter);
        if (!one.len) break;
        str_addf(text, "%s\n%s", letter == 'a' ? "\n\nOptions:" : "", one.data);
    }
    str_free(&one);
}

/* ---- the reference ---- */

/* "7 (apples)": the number is compared. */
static void drop_unit(Str *s) {
    char *paren = s->data ? strrchr(s->data, '(') : NULL;
    if (!paren || paren == s->data || !isdigit((unsigned char)s->data[0]) || s->data[s->len - 1] != ')') return;
    while (paren > s->data && paren[-1] == ' ') paren--;
    s->len = paren - s->data;
    *paren = 0;
}

static bool add_reference(Str *out, const RowRule *rule, const json_t *row, Err *e) {
    static const char *const nothing[] = {"proof", "notfound", "n/a"};
    Str field = {0};
    if (rule->choices) {
        const char *letter = json_string_value(field_get(row, "correct"));
        if (letter && isalpha((unsigned char)letter[0]) && !letter[1]) {
            add_option(out, field_get(row, "options"), (char)tolower((unsigned char)letter[0]));
            if (!out->len) str_add(out, letter);
            return true;
        }
    }
    const char *name = field_get(row, rule->final) ? rule->final : rule->answer;
    bool ok = field_text(&field, row, name, e);
    if (ok) answer_final(out, str_text(&field));
    for (int i = 0; i < COUNT_OF(nothing); i++)
        if (!strcasecmp(str_text(out), nothing[i])) str_clear(out);
    if (rule->more) drop_unit(out);
    str_free(&field);
    return ok;
}

bool row_to_problem(Problem *out, const RowRule *rule, const json_t *row, Err *e) {
    Str text = {0}, reference = {0};
    bool ok = field_text(&text, row, rule->problem, e);
    if (ok && !text.len) ok = fail(e, ERR_FAIL, "field '%s' with the problem is missing or empty", rule->problem);
    if (ok && rule->more && field_get(row, rule->more)) {
        str_add_char(&text, ' ');
        ok = field_text(&text, row, rule->more, e);
    }
    if (ok && rule->choices) add_options(&text, field_get(row, "options"));
    ok = ok && add_reference(&reference, rule, row, e);
    if (ok) *out = (Problem){.text = mem_strdup(text.data), .reference = mem_strdup(str_text(&reference))};
    str_free(&text);
    str_free(&reference);
    return ok;
}
