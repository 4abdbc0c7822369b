/* test_peak.c - what the kernel counts for a process is within its plan, for every command; and where it is not,
 * the last line says so, and a --budget that was given is held against it. */
#include <limits.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "tests/budget/outside.h"
#include "tests/test.h"
#include "tests/world.h"

/* Of the command itself: what `snug plan` says of the job stands beside what it takes. */
static int64_t planned_by(const Outside *o) {
    int64_t own = outside_number(o, "planner_planned_bytes");
    return own >= 0 ? own : outside_number(o, "process_planned_bytes");
}

static bool within_its_plan(void *context, int worker, int i) {
    const OutsideCommand *c = &outside_command[i];
    char folder[40];
    snprintf(folder, sizeof folder, "peak%d", worker);
    Outside o = outside_run(folder, c->arguments, c->input, NULL);
    int64_t planned = planned_by(&o), said = outside_number(&o, "process_peak_bytes");
    /* the kernel adds up its counters only now and then: two readings differ by a few pages for each core */
    bool same = llabs(said - o.peak_bytes) <= 4 * MIB;
    bool ok = o.code == 0 && planned > 0 && o.peak_bytes <= planned && said > 0 && same &&
              outside_number(&o, "above_plan_bytes") == 0;
    printf("  %-20s planned %11lld, VmHWM %11lld, %.3f\n", c->name, (long long)planned, (long long)o.peak_bytes,
           (double)o.peak_bytes / (double)planned);
    if (!ok) fprintf(stderr, "  %s: exit %d, said %lld\n%s\n", c->name, o.code, (long long)said, str_text(&o.err));
    outside_free(&o);
    return ok;
}

TEST(the_kernels_peak_of_every_command_is_within_its_plan) {
    if (test_sanitized()) {
        test_skip("the sanitizers' own memory is in no command's plan");
        return;
    }
    if (outside_make_all(64)) EXPECT(world_share(within_its_plan, NULL, outside_commands));
}

/* A text without a break is one word, and merging it takes many times its length. */
TEST(the_merging_of_a_long_word_is_in_the_plan) {
    enum { WORD = 3 << 20 };
    static const OutsideCommand cases[] = {
        {"prepare", "prepare --json --tokenizer ../tally --out made --overwrite ../word.txt", NULL, false},
        {"tokenize", "tokenize --json --tokenizer ../tally", "word.jsonl", false},
        {"generate", "generate --json --model ../tally --prompts ../word.jsonl --max-tokens 2", NULL, true},
        {"eval", "eval --json --model ../tally --suite gsm8k --num-fewshot 0 --suite-data ../bench", NULL, true},
        {"train", "train --json --model ../tally --data ../rows.json --out t --overwrite --no-save --seq 64 --steps 1",
         NULL, true},
        {"plan", "plan --json --model ../tally --data ../rows.json", NULL, false},
        {"reason",
         "reason --json --model ../tally --data ../rows.json --max-tokens 8 --judge-max-tokens 8 --out r.json", NULL,
         true},
        {"grpo",
         "grpo --json --model ../tally --data ../rows.json --group 4 --global-batch 8 --prompt-tokens 32 "
         "--max-tokens 8 --steps 1 --out g --overwrite",
         NULL, true},
        {"grpo-eval",
         "grpo-eval --json --model ../tally --tuned ../tally --data ../rows.json --eval-samples 2 --prompt-tokens 32 "
         "--max-tokens 8",
         NULL, true},
        {"amr parse", "amr parse ../word.amr --json --model ../tally --max-tokens 8 --out p.amr", NULL, true},
    };
    Str text = {0}, rows = {0};
    if (test_sanitized()) {
        test_skip("the sanitizers' own memory is in no command's plan");
        return;
    }
    if (!outside_make(2)) return;
    for (int i = 0; i < WORD; i++) str_add_char(&text, i % 7 ? 'a' : 'b');
    str_addf(&rows, "{\"answer\":\"#### 2\",\"question\":\"%s\"}\n", str_text(&text));
    EXPECT(file_make_dirs(world_path("bench"), NULL) &&
           file_write_all(world_path("bench/gsm8k.jsonl"), rows.data, rows.len, NULL));
    str_addf(&rows, "{\"answer\":\"2\",\"question\":\"1 + 1?\"}\n");
    EXPECT(file_write_all(world_path("rows.json"), rows.data, rows.len, NULL));
    str_clear(&rows);
    str_addf(&rows, "#::snt %s\n(s / sing-01 :ARG0 (b / boy))\n\n#::snt A dog runs.\n(r / run-02)\n",
             str_text(&text));
    EXPECT(file_write_all(world_path("word.amr"), rows.data, rows.len, NULL));
    str_clear(&rows);
    str_addf(&rows, "{\"text\":\"%s\"}\n{\"text\":\"a b\"}\n", str_text(&text));
    EXPECT(file_write_all(world_path("word.txt"), text.data, text.len, NULL) &&
           file_write_all(world_path("word.jsonl"), rows.data, rows.len, NULL));
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Outside o = outside_run("words", cases[i].arguments, cases[i].input, NULL);
        int64_t planned = planned_by(&o);
        if (!EXPECT(planned > 0 && o.peak_bytes <= planned && outside_number(&o, "above_plan_bytes") == 0))
            test_note("    %s: planned %lld, VmHWM %lld", cases[i].name, (long long)planned,
                      (long long)o.peak_bytes);
        outside_free(&o);
    }
    str_free(&text);
    str_free(&rows);
}

/* ---- above it ---- */

static const char *const job =
    "train --model ../large --data ../rows.jsonl --out run --overwrite --seq 16 --steps 2 ";

TEST(memory_that_no_plan_knows_of_is_said_and_held_against_the_budget) {
    const char *named = getenv("PRELOAD");
    char command[400], environment[PATH_MAX + 64], preload[PATH_MAX]; /* whole: commands run in folders of their own */
    if (!named || !*named || !realpath(named, preload)) {
        test_skip("no library that takes memory (make check sets PRELOAD; not with DEBUG=1)");
        return;
    }
    if (!outside_make(2)) return;
    Outside o = outside_run("calm", job, NULL, NULL);
    int64_t planned = outside_number(&o, "process_planned_bytes") + MIB,
            unknown = planned; /* MIB: the library itself; pages that are planned and not touched do not hide it */
    EXPECT(o.code == 0 && planned > MIB && outside_number(&o, "above_plan_bytes") == 0);
    outside_free(&o);
    snprintf(environment, sizeof environment, "TAKE_BYTES=%lld LD_PRELOAD=%s", (long long)unknown, preload);
    OutsideLimit more = {.environment = environment};

    o = outside_run("above", job, NULL, &more); /* no budget: exit 0, and a word in the JSON and to the person */
    int64_t above = outside_number(&o, "above_plan_bytes");
    EXPECT(o.code == 0 && above > 0 &&
           above == outside_number(&o, "process_peak_bytes") - outside_number(&o, "process_planned_bytes"));
    EXPECT(strstr(str_text(&o.err), "above the plan") && strstr(str_text(&o.err), "report"));
    EXPECT(strstr(str_text(&o.err), "ABOVE THE PLAN"));
    outside_free(&o);

    snprintf(command, sizeof command, "%s --budget %lld", job, (long long)planned);
    o = outside_run("beyond", command, NULL, &more); /* a budget: exit 1, and nothing is lost */
    EXPECT(o.code == 1 && outside_number(&o, "above_plan_bytes") > 0);
    EXPECT(strstr(str_text(&o.err), "more than --budget allows") && strstr(str_text(&o.err), "report"));
    EXPECT(file_exists(world_path("beyond/run/model/model.safetensors")));
    outside_free(&o);

    snprintf(command, sizeof command, "%s --budget %lld", job, (long long)(planned + 2 * unknown));
    o = outside_run("room", command, NULL, &more); /* above the plan, within the budget */
    EXPECT(o.code == 0 && outside_number(&o, "above_plan_bytes") > 0);
    outside_free(&o);
}
