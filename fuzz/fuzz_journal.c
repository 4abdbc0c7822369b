/* fuzz_journal.c - a reasoning's progress: what is accepted goes on, is read again the same, and makes records. */
#include <jansson.h>

#include "fuzz/fuzz.h"
#include "reason/journal.h"

enum { PROBLEMS = 3 };

/* Versions, what is asked next, and who is done. */
static int64_t replies(const Pipeline *p) {
    int64_t n = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const Track *t = &p->track[i];
        n = n * 64 + t->n_versions * 8 + (int)t->next * 2 + t->done;
    }
    return n;
}

FUZZ(journal, 1 * MIB, 256) {
    Problem item[PROBLEMS] = {{"one", "1", NULL}, {"two", "", NULL}, {"three", "3", NULL}};
    Problems all = {.item = item, .n = PROBLEMS, .first = 5};
    PipelineSpec spec = {.rubric = rubric_default(), .rounds = 2};
    json_t *job = json_pack("{s:s}", "seed", "42");
    int64_t first = -1;
    const char *path = fuzz_write("progress", data, size);
    for (int turn = 0; turn < 2; turn++) {
        Pipeline p;
        Journal j;
        Err e;
        pipeline_init(&p, &spec, &all);
        bool ok = journal_open(&j, path, job, false, &p, &e);
        CHECK_MSG(!turn || ok, "%s", e.text);
        CHECK(!turn || replies(&p) == first);
        first = replies(&p);
        if (ok) joblog_close(&j);
        pipeline_free(&p);
        if (!ok) break;
    }
    json_decref(job);
}
