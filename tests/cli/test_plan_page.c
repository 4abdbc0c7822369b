/* test_plan_page.c - the picture and the page of `snug plan`: whole, safe, small, and with the numbers of --json. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "tests/snug.h"
#include "tests/test.h"

#define SMALL "--model qwen2.5-0.5b --mode lora --lora-rank 32 --seq 256 --gpu rtx-4090 "
#define GRPO                                                                                                      \
    "--task grpo --model qwen2.5-0.5b --evaluator qwen2.5-0.5b --global-batch 8 --prompt-tokens 64 --max-tokens " \
    "64 "

enum { MOST_BYTES = 1500000 };

typedef struct Page {
    Str text;
    json_t *plan; /* what --json printed in the same call */
} Page;

static Page page_of(int want, const char *flags) {
    Page p = {0};
    Err e = {0};
    Ran r = snug_run("plan --json --html %s %s", test_path("p.html"), flags);
    if (!EXPECT(r.code == want)) test_note("    %s: exit %d\n%s", flags, r.code, str_text(&r.err));
    p.plan = ran_json(&r);
    EXPECT(p.plan != NULL);
    EXPECT_OK(file_read(test_path("p.html"), &p.text, 1 << 24, &e));
    ran_free(&r);
    return p;
}

static void page_free(Page *p) {
    str_free(&p->text);
    json_decref(p->plan);
}

static bool holds(const Page *p, const char *part) {
    return strstr(str_text(&p->text), part) != NULL;
}

/* The JSON of a script of that id; gives. */
static json_t *embedded(const Page *p, const char *id) {
    char begin[64];
    snprintf(begin, sizeof begin, "<script type=\"application/json\" id=\"%s\">", id);
    const char *at = strstr(str_text(&p->text), begin), *end = at ? strstr(at, "</script>") : NULL;
    if (!EXPECT(end != NULL)) return NULL;
    at += strlen(begin);
    json_t *j = json_loadb(at, (size_t)(end - at), 0, NULL);
    EXPECT(j != NULL);
    return j;
}

static int64_t number(const json_t *j, const char *key) {
    return (int64_t)json_number_value(json_object_get(j, key));
}

static void expect_whole(const Page *p, const char *what) {
    const char *fault = html_fault(str_text(&p->text));
    if (!EXPECT(fault == NULL)) test_note("    %s: %s", what, fault);
    if (!EXPECT(p->text.len < MOST_BYTES)) test_note("    %s: %lld bytes", what, (long long)p->text.len);
    EXPECT(holds(p, "</html>") && holds(p, "prefers-color-scheme:dark") && holds(p, "data-theme=dark"));
    /* nothing from outside */
    EXPECT(!holds(p, "http") && !holds(p, " src=") && !holds(p, " href=") && !holds(p, "@import") &&
           !holds(p, "url("));
}

TEST(html_fault_finds_what_is_wrong) {
    EXPECT(html_fault("<!doctype html>\n<p class=\"a\">x<br>y</p><path d=\"M0\"/><script>if(a<b)x()</script>") ==
           NULL);
    EXPECT(html_fault("<p><b>x</p></b>") && html_fault("<p>x") && html_fault("</p>") &&
           html_fault("<p a=b>x</p>"));
    EXPECT(html_fault("<p title=\"a\"b\">x</p>") && html_fault("<p>a < b</p>") && html_fault("<script>x"));
}

TEST(the_picture_stands_alone) {
    Str svg = {0};
    Err e = {0};
    Ran r = snug_run("plan " SMALL "--recompute none --offload none --budget 4GiB --svg %s", test_path("p.svg"));
    EXPECT(r.code == 0);
    ran_free(&r);
    EXPECT_OK(file_read(test_path("p.svg"), &svg, 1 << 20, &e));
    const char *data = str_text(&svg);
    EXPECT(strstr(data, "peak: ") && strstr(data, "head_sweep") && strstr(data, "</svg>") &&
           strstr(data, "4.00 GiB"));
    EXPECT(strstr(data, "prefers-color-scheme:dark") && !strstr(data, "<script") && !strstr(data, "href"));
    EXPECT(strstr(data, ">0 GiB<") &&
           strstr(data, "steps of the program")); /* from zero, and what the axis counts */
    EXPECT(html_fault(data) == NULL && svg.len < 200000);
    str_free(&svg);
    r = snug_run("plan " SMALL "--svg %s", test_path("no/such/folder/p.svg"));
    EXPECT(r.code == 1 && strstr(str_text(&r.err), "p.svg"));
    ran_free(&r);
}

static void expect_cells(const Page *p, const char *table, const char *key) {
    size_t i;
    json_t *row;
    const json_t *rows = json_object_get(p->plan, table);
    EXPECT(json_array_size(rows) > 0);
    json_array_foreach(rows, i, row) {
        char cell[48];
        const json_t *v = json_object_get(row, key);
        if (!v) continue;
        if (json_is_integer(v))
            snprintf(cell, sizeof cell, "data-v=\"%lld\"", (long long)json_integer_value(v));
        else
            snprintf(cell, sizeof cell, "data-v=\"%.9g\"", json_real_value(v));
        if (!EXPECT(holds(p, cell))) test_note("    %s %s: %s", table, key, cell);
    }
}

static void expect_ledger(const Page *p) {
    const char *pool;
    json_t *of, *line;
    size_t i;
    json_object_foreach(json_object_get(p->plan, "pools"), pool, of) {
        json_array_foreach(json_object_get(of, "lines"), i, line) {
            char cell[96];
            int64_t bytes = number(line, "bytes");
            snprintf(cell, sizeof cell, "%s</th><td class=\"r\">%s</td>",
                     json_string_value(json_object_get(line, "name")), units_count(bytes).s);
            if (bytes && !EXPECT(holds(p, cell))) test_note("    %s: %s", pool, cell);
        }
    }
}

TEST(the_page_holds_the_numbers_of_the_json) {
    Page p =
        page_of(0, SMALL
                "--micro-batch 4 --accum 4 --recompute block --offload weights=8 --head-chunk 256 --budget 6GiB "
                "--ladder --batches --cards --compare '--mode full'");
    json_t *plan = embedded(&p, "plan");
    EXPECT(json_equal(plan, p.plan));
    expect_whole(&p, "tables");
    expect_ledger(&p);
    expect_cells(&p, "ladder", "device_bytes");
    expect_cells(&p, "cards", "room_bytes");
    expect_cells(&p, "batches", "total_bytes");
    expect_cells(&p, "compared", "tokens_per_s");
    const json_t *on = json_object_get(p.plan, "switched_on");
    EXPECT(holds(&p, units_count(number(on, "before_bytes")).s) &&
           holds(&p, units_count(number(on, "after_bytes")).s));
    EXPECT(holds(&p, "<span class=\"tag yes\">fits</span>") && holds(&p, "<table class=\"sort\">"));
    EXPECT(holds(&p, "weights=8") && holds(&p, "--compare='--mode full'"));
    json_decref(plan);
    page_free(&p);
}

static int64_t alive_at(const json_t *changes, int64_t step) {
    int64_t bytes = 0;
    for (size_t i = 0; i + 1 < json_array_size(changes); i += 2)
        if (json_integer_value(json_array_get(changes, i)) <= step)
            bytes = json_integer_value(json_array_get(changes, i + 1));
    return bytes;
}

static bool overlap(const json_t *a, const json_t *b) {
    return number(a, "birth") <= number(b, "death") && number(b, "birth") <= number(a, "death") &&
           number(a, "offset") < number(b, "offset") + number(b, "bytes") &&
           number(b, "offset") < number(a, "offset") + number(a, "bytes");
}

TEST(what_the_pointer_finds_is_the_ledger_and_the_placement) {
    Page p = page_of(0, SMALL "--micro-batch 2 --recompute none --offload none");
    json_t *data = embedded(&p, "picture-data"), *class, *line;
    size_t i, k, found = 0;
    const json_t *device = json_object_get(json_object_get(p.plan, "pools"), "device");
    json_array_foreach(json_object_get(data, "classes"), i, class) {
        int64_t bytes = alive_at(json_object_get(class, "alive"), number(data, "peak"));
        json_array_foreach(json_object_get(device, "lines"), k, line) {
            if (!json_equal(json_object_get(line, "name"), json_object_get(class, "name"))) continue;
            EXPECT(number(line, "bytes") == bytes);
            found++;
        }
    }
    EXPECT(found >= 5 && number(data, "steps") == number(p.plan, "steps"));
    EXPECT(number(data, "arena") == number(device, "planned_bytes"));
    EXPECT(json_array_size(json_object_get(data, "op")) == json_array_size(json_object_get(data, "region")));
    const json_t *tensors = json_object_get(data, "tensors");
    size_t n = json_array_size(tensors), bad = 0;
    EXPECT(n > 50 && n <= 3000);
    for (i = 0; i < n; i++) {
        const json_t *t = json_array_get(tensors, i);
        bad += number(t, "death") >= number(data, "steps") ||
               number(t, "offset") + number(t, "bytes") > number(data, "arena");
        bad += !json_object_get(t, "format") || !json_object_get(t, "class");
        for (k = 0; json_object_get(t, "shape") && k < i;
             k++) /* neighbours in one box may live a little less than it */
            bad += json_object_get(json_array_get(tensors, k), "shape") && overlap(t, json_array_get(tensors, k));
    }
    EXPECT(bad == 0);
    json_decref(data);
    page_free(&p);
}

TEST(a_refused_plan_has_its_page_with_flags_to_copy) {
    Page p = page_of(3, SMALL "--micro-batch 32 --recompute none --offload none --budget 3GiB");
    json_t *change;
    size_t i;
    expect_whole(&p, "refused");
    EXPECT(holds(&p, "<span class=\"tag no\">does not fit</span>") && holds(&p, "does not fit: ") &&
           holds(&p, "missing"));
    EXPECT(json_array_size(json_object_get(p.plan, "changes")) > 0 && holds(&p, "<details open>"));
    json_array_foreach(json_object_get(p.plan, "changes"), i, change) {
        const char *flags = json_string_value(json_object_get(change, "flags")),
                   *second = strstr(flags + 1, " --");
        char part[200];
        snprintf(part, sizeof part, "<span>%.*s</span>", second ? (int)(second - flags) : (int)strlen(flags),
                 flags);
        if (!EXPECT(holds(&p, part))) test_note("    %s", part);
    }
    page_free(&p);
}

TEST(pages_of_every_task_are_whole_and_small) {
    static const char *const flags[] = {
        "--model qwen2.5-7b --mode full --gpu rtx-4090",
        "--model qwen2.5-72b --mode full --gpu h200",
        "--model llama-3.1-70b --mode lora --lora-rank 16 --recompute block --gpu b200",
        "--task generate --model qwen2.5-7b --gpu rtx-4090 --cards",
        GRPO "--gpu a100-80 --cards",
        "--model qwen2.5-0.5b --seq 128 --device cpu --budget 16GiB"};
    for (int i = 0; i < COUNT_OF(flags); i++) {
        Page p = page_of(0, flags[i]);
        json_t *plan = embedded(&p, "plan"), *data = embedded(&p, "picture-data");
        expect_whole(&p, flags[i]);
        expect_ledger(&p);
        EXPECT(json_equal(plan, p.plan) && json_array_size(json_object_get(data, "tensors")) > 0);
        json_decref(plan), json_decref(data);
        page_free(&p);
    }
}

/* A page shows what it has without scripts: only what needs one is hidden. */
TEST(a_page_needs_no_script_to_be_read) {
    Page p = page_of(0, SMALL "--cards");
    int hidden = 0;
    for (const char *at = str_text(&p.text); (at = strstr(at, " hidden")); at++) hidden += at[7] == '>';
    EXPECT(hidden == 4); /* the theme's button, the zoom's, the tip, saving */
    EXPECT(holds(&p, "id=\"stack\"><svg") && holds(&p, "id=\"map\"><svg") && holds(&p, "<rect class=\"c"));
    page_free(&p);
}

TEST(names_of_models_are_text_on_a_page) {
    static const char evil[] = "<script>alert(1)<b a=\"x\">&amp;'--><!--";
    static const char cut[] = "\xe2\x82\xac\xe2\x82\xac"; /* a long name of these is cut between two of them */
    char folder[400] = "";
    snug_make_job((SnugJob){2, 64, 128});
    for (int i = 0; i < 2; i++) {
        Err e = {0};
        snprintf(folder, sizeof folder, "%s", test_path(i ? "" : evil));
        for (int k = 0; i && k < 40; k++) strcat(folder, cut);
        EXPECT(rename(test_path("m"), folder) == 0);
        static const char *const tasks[] = {"train", "grpo", "generate"};
        for (int t = 0; t < COUNT_OF(tasks); t++) {
            Ran r =
                snug_run("plan --task %s --model \"$(cat <<'END'\n%s\nEND\n)\" --gpu rtx-4090 --json --html %s",
                         tasks[t], folder, test_path("p.html"));
            Page p = {.plan = ran_json(&r)};
            if (!EXPECT(r.code == 0 && p.plan)) test_note("    %s", str_text(&r.err));
            EXPECT_OK(file_read(test_path("p.html"), &p.text, 1 << 24, &e));
            expect_whole(&p, tasks[t]);
            EXPECT(!holds(&p, "<script>alert") && !holds(&p, "<b a=") && !holds(&p, "<!--"));
            EXPECT(i || holds(&p, "&lt;script&gt;alert(1)&lt;b a=&quot;x&quot;&gt;&amp;amp;"));
            json_t *plan = embedded(&p, "plan");
            EXPECT(json_equal(plan, p.plan) && json_string_length(json_object_get(p.plan, "model")) > 20);
            json_decref(plan);
            page_free(&p);
            ran_free(&r);
        }
        EXPECT(rename(folder, test_path("m")) == 0);
    }
}
