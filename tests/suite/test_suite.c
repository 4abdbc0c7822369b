/* test_suite.c - the parts of a benchmark on their own: examples drawn as Python draws them, white space and words
 * as it counts them, extraction, windows over a text, generated prompts; and the command as a person uses it. */
#include <stdlib.h>

#include "base/file.h"
#include "suite/mt.h"
#include "suite/suite_int.h"
#include "tests/snug.h"
#include "tests/test.h"

/* random.Random(1234): three samples of 5 from 20, then of 6 from 7473, 8 from 100, 8 from 80. */
TEST(samples_are_those_of_python_s_random) {
    static const int64_t want[] = {14, 3,  0,    2,   1,    2,    3,   11,   7, 0,  0,  19, 11,
                                   15, 14, 1216, 747, 1499, 5844, 937, 6925, 1, 64, 62, 31, 8,
                                   85, 69, 59,   8,   76,   11,   65,  74,   5, 34, 71};
    static const int draws[][2] = {{20, 5}, {20, 5}, {20, 5}, {7473, 6}, {100, 8}, {80, 8}};
    Mt m;
    int64_t out[8];
    int at = 0;
    mt_seed(&m, 1234);
    for (int i = 0; i < COUNT_OF(draws); i++) {
        mt_sample(&m, out, draws[i][0], draws[i][1]);
        for (int k = 0; k < draws[i][1]; k++) EXPECT(out[k] == want[at++]);
    }
    EXPECT(at == COUNT_OF(want));
}

TEST(words_and_spaces_are_counted_as_python_counts) {
    EXPECT(text_words("one  two\n\tthree", 15) == 3);
    EXPECT(text_words(" one ", 5) == 3); /* re.split gives an empty piece at either end */
    EXPECT(text_words("", 0) == 1);
    EXPECT(text_space_at_end("a \n") == 2);
    EXPECT(text_space_at_end("a\xc2\xa0\xe3\x80\x80") == 5); /* no-break and ideographic space */
    EXPECT(text_space_at_end("  ") == 2 && text_space_at_end("") == 0 && text_space_at_end("\xc3\xa9") == 0);
    EXPECT(str_characters("na\xc3\xafve") == 5);
}

TEST(brackets_of_wikihow_are_taken_out) {
    static const char *const pairs[][2] = {{"[header] how", " how"},
                                           {"a [b] c", "a c"},
                                           {"a [b\n] c", "a [b\n] c"},
                                           {"[a [b] c]", " c]"},
                                           {"a   b", "a  b"},
                                           {"open [", "open ["}};
    for (int i = 0; i < COUNT_OF(pairs); i++) {
        Str out = {0};
        text_strip_brackets(&out, pairs[i][0]);
        EXPECT_STR(str_text(&out), pairs[i][1]);
        str_free(&out);
    }
}

TEST(pages_of_wikitext_are_joined) {
    Str out = {0};
    text_join_wiki(&out, "= = A = = \n He said \" yes \" ( in 1 @,@ 900 ) , it 's 5 @-@ 6 . ");
    EXPECT_STR(str_text(&out), "== A ==\nHe said \"yes\" (in 1,900), it's 5-6. ");
    str_free(&out);
}

static void expect_extracted(int filter, const char *text, const char *want) {
    char *got;
    Err e = {0};
    const TaskRow *row = NULL;
    for (int i = 0; task_row(i); i++)
        if (!strcmp(task_row(i)->name, "gsm8k")) row = task_row(i);
    EXPECT_OK(extract_answer(&got, &row->filter[filter], text, &e));
    EXPECT_STR(got, want);
    mem_free(got);
}

TEST(answers_are_extracted_strictly_and_flexibly) {
    expect_extracted(0, "so 5 + 5 = 10\n#### 1,010\n#### 7", "1,010");
    expect_extracted(0, "the answer is 10", "[invalid]");
    expect_extracted(1, "so 5 + 5 = $1,010.50 and 7 apples", "7");
    expect_extracted(1, "the answer is -12.", "-12.");
    expect_extracted(1, "none", "[invalid]");
    EXPECT(extract_same("1,010", "5 + 5\n#### 1010"));
    EXPECT(extract_same("$18.", "x #### 18") && !extract_same("18", "x #### 19"));
}

static const char *const wanted[] = {"Alpha", "beta", "gamma"};

TEST(wanted_words_are_found_in_any_case) { EXPECT_NEAR(extract_found("ALPHA, Beta.", wanted, 3), 2.0 / 3, 1e-12); }

/* Every id is scored once; the first window sees the beginning token, later ones as much before them as fits. */
TEST(windows_score_every_token_once) {
    int32_t ids[25];
    for (int i = 0; i < 25; i++) ids[i] = 100 + i;
    Suite s = {.spec = {.positions = 10}, .prefix = 7};
    arena_init(&s.arena, "test");
    Piece piece[3];
    Item it = {.piece = piece, .n = (int)encode_window_count(&s, 25)};
    EXPECT(it.n == 3);
    encode_windows(&s, &it, ids, 25);
    EXPECT(piece[0].n_prompt == 1 && piece[0].prompt[0] == 7 && piece[0].n_forced == 10);
    EXPECT(piece[1].n_prompt == 1 && piece[1].prompt[0] == 109 && piece[1].forced[0] == 110 && piece[1].n_forced == 10);
    EXPECT(piece[2].n_prompt == 6 && piece[2].prompt[0] == 114 && piece[2].forced[0] == 120 && piece[2].n_forced == 5);
    EXPECT(s.context == 11);
    arena_free(&s.arena);
}

TEST(a_needle_stands_at_its_depth) {
    for (int depth = 0; depth <= 100; depth += 50) {
        Hay h = {.spec = {HAY_NEEDLE, 1, 1, 1, true}, .key = 5, .depth = depth};
        Str text = {0};
        hay_prompt(&text, &h, 200);
        const char *at = strstr(str_text(&text), h.want[0]);
        EXPECT(h.n_want == 1 && at && !strstr(at + 1, h.want[0]));
        EXPECT_NEAR((double)(at - str_text(&text)) / (double)text.len, depth / 100.0, 0.04);
        str_free(&text);
    }
}

TEST(wanted_words_of_a_list_come_most_often) {
    static const HayForm forms[] = {HAY_COMMON, HAY_FREQUENT};
    for (int f = 0; f < 2; f++) {
        Hay h = {.spec = {forms[f], f ? 3 : 10, 1, 1, false}, .key = 9, .depth = -1};
        Str text = {0};
        hay_prompt(&text, &h, 500);
        for (int i = 0; i < h.n_want; i++) {
            int n = 0;
            for (const char *at = str_text(&text); (at = strstr(at, h.want[i])); at++) n++;
            EXPECT(n >= 25);
        }
        str_free(&text);
    }
}

/* ---- the command ---- */

#define DATA "tests/suite/data"

static json_t *eval(const char *arguments) { /* gives */
    Ran r = snug_run("eval --model models/tally --json --device cpu %s", arguments);
    json_t *out = ran_json(&r);
    if (!EXPECT(r.code == 0 && out)) test_note("%s\n%s", arguments, str_text(&r.err));
    ran_free(&r);
    return out;
}

static double number(const json_t *out, const char *key) { return json_number_value(json_object_get(out, key)); }

TEST(needles_have_a_picture_and_a_page) {
    Str args = {0}, svg = {0}, page = {0};
    Err e = {0};
    str_addf(&args, "--suite needle,ruler --lengths 512 --depths 3 --limit 1 --svg %s --html %s --items %s",
             test_path("n.svg"), test_path("n.html"), test_path("items.jsonl"));
    json_t *out = eval(str_text(&args));
    EXPECT(json_array_size(json_object_get(out, "needle")) == 3);
    EXPECT(json_object_get(json_object_get(json_object_get(out, "results"), "niah_multikey"), "512,none") != NULL);
    EXPECT(number(out, "context") > 450 && number(out, "context") <= 512);
    EXPECT(number(out, "above_plan_bytes") == 0);
    EXPECT_OK(file_read(test_path("n.svg"), &svg, 0, &e));
    EXPECT_OK(file_read(test_path("n.html"), &page, 0, &e));
    EXPECT(strstr(str_text(&svg), "depth 50 %") && strstr(str_text(&page), "niah_single"));
    const char *fault = html_fault(str_text(&page));
    if (!EXPECT(!fault)) test_note("    %s", fault);
    json_decref(out);
    str_free(&args), str_free(&svg), str_free(&page);
}

/* Prompts that are the same for all choices of an item are computed once. */
TEST(choices_share_their_prompt) {
    json_t *out = eval("--suite mmlu --suite-data " DATA " --num-fewshot 2");
    EXPECT(number(out, "shared_tokens") > 2 * number(out, "prefill_tokens"));
    json_decref(out);
}

TEST(slots_and_formats_change_no_score) {
    json_t *one = eval("--suite boolq,hellaswag --suite-data " DATA " --slots 1 --precision fp32");
    json_t *many = eval("--suite boolq,hellaswag --suite-data " DATA " --slots 7 --precision fp32");
    EXPECT(one && json_equal(json_object_get(one, "results"), json_object_get(many, "results")));
    json_t *stored = eval("--suite boolq --suite-data " DATA " --quantize int8 --kv-cache int8");
    EXPECT(number(stored, "above_plan_bytes") == 0);
    json_decref(one);
    json_decref(many);
    json_decref(stored);
}

TEST(an_adapter_is_evaluated_with_its_model) {
    Str args = {0};
    Ran r = snug_run("train --model models/tally --data " DATA
                     "/pages.jsonl --text-field page --mode lora --lora-rank 2 --steps 3 "
                     "--lr 1e-2 --seq 64 --micro-batch 1 --global-batch 1 --device cpu --out %s",
                     test_path("tuned"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    json_t *base = eval("--suite perplexity --data " DATA "/pages.jsonl");
    str_addf(&args, "--suite perplexity --data " DATA "/pages.jsonl --adapter %s/adapter", test_path("tuned"));
    json_t *tuned = eval(str_text(&args));
    const json_t *a = json_object_get(json_object_get(base, "results"), "perplexity"),
                 *b = json_object_get(json_object_get(tuned, "results"), "perplexity");
    EXPECT(number(b, "bits_per_byte,none") > 0 && number(b, "bits_per_byte,none") < number(a, "bits_per_byte,none"));
    json_decref(base);
    json_decref(tuned);
    str_free(&args);
}

TEST(the_limit_is_of_every_task) {
    json_t *out = eval("--suite mmlu,arc --suite-data " DATA " --limit 1"), *n = json_object_get(out, "n-samples");
    EXPECT(number(json_object_get(n, "mmlu_anatomy"), "effective") == 1 &&
           number(json_object_get(n, "arc_easy"), "effective") == 1);
    EXPECT(number(json_object_get(n, "arc_easy"), "original") > 1);
    json_decref(out);
}

static void expect_refused(int code, const char *part, const char *arguments) {
    Ran r = snug_run("eval --model models/tally --device cpu %s", arguments);
    if (!EXPECT(r.code == code && strstr(str_text(&r.err), part)))
        test_note("    %s: exit %d, wanted %d with '%s':\n%s", arguments, r.code, code, part, str_text(&r.err));
    ran_free(&r);
}

static void write_row(const char *name, const char *row) {
    Str path = {0};
    Err e = {0};
    str_addf(&path, "%s/%s", test_tmp(), name);
    EXPECT_OK(file_make_parents(str_text(&path), &e) && file_write_all(str_text(&path), row, (int64_t)strlen(row), &e));
    str_free(&path);
}

TEST(what_cannot_be_evaluated_is_refused_by_name) {
    Str args = {0};
    expect_refused(2, "needs --data FILE", "");
    expect_refused(2, "--suite squad: is not one of perplexity", "--suite squad");
    expect_refused(2, "needs --suite-data", "--suite mmlu");
    expect_refused(2, "needs --data", "--suite perplexity");
    expect_refused(2, "twice", "--suite mmlu,mmlu --suite-data " DATA);
    expect_refused(2, "the model sees 1024 tokens", "--suite needle --lengths 4096");
    expect_refused(2, "must be a whole number", "--suite needle --lengths 12x");
    expect_refused(2, "only --suite needle", "--suite boolq --suite-data " DATA " --svg x.svg");
    expect_refused(1, "there is no folder none", "--suite boolq --suite-data " DATA " --items none/items.jsonl");
    expect_refused(1, "too few rows for 40", "--suite boolq --num-fewshot 40 --suite-data " DATA);
    expect_refused(3, "does not fit", "--suite boolq --budget 1KiB --suite-data " DATA);
    write_row("boolq/validation.jsonl", "{\"passage\": \"a\", \"question\": \"b\"}\n");
    write_row("hellaswag.jsonl",
              "{\"ctx_a\": \"a\", \"ctx_b\": \"b\", \"activity_label\": \"c\", \"endings\": [\"x\", \"y\"], "
              "\"label\": \"\"}\n");
    write_row("mmlu.jsonl", "{\"question\": \"a\", \"choices\": [\"a\"], \"answer\": 0, \"subject\": \"cooking\"}\n");
    str_addf(&args, "--suite-data %s --suite ", test_tmp());
    static const char *const cases[][2] = {{"boolq", "validation.jsonl:1: a row of boolq has no field 'label|answer'"},
                                           {"hellaswag", "a split without answers"},
                                           {"mmlu", "has no subject 'cooking'"},
                                           {"arc", "arc_challenge/test.jsonl"},
                                           {"winogrande", "winogrande/validation.jsonl"}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Str one = {0};
        str_addf(&one, "%s%s", str_text(&args), cases[i][0]);
        expect_refused(1, cases[i][1], str_text(&one));
        str_free(&one);
    }
    str_free(&args);
}
