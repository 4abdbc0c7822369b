/* fuzz_amr_answer.c - a model's answer: the stop does not depend on the pieces it is fed, and a graph that is
 * taken, repaired or not, is valid and taken again as it is. */
#include <string.h>

#include "amr/answer.h"
#include "base/mem.h"
#include "fuzz/fuzz.h"

static int64_t stop_at(const char *text, int64_t size, int64_t piece) { /* -1: it does not */
    AmrStop s = {0};
    int64_t used;
    for (int64_t at = 0; at < size; at += used) {
        bool done = amr_stop_feed(&s, text + at, MIN2(piece, size - at), &used);
        CHECK(used > 0 && s.fed == at + used);
        if (done) return at + used;
    }
    return -1;
}

static bool take(const char *text, int64_t size, AmrTake how) {
    Penman p, again;
    AmrRepairs done, none;
    Str s = {0};
    bool ok = amr_take(&p, &done, text, size, how, NULL);
    if (ok) {
        CHECK(penman_check(&p, NULL));
        penman_print(&s, &p, PENMAN_ONE_LINE);
        Err e = {0};
        bool taken = amr_take(&again, &none, s.data, s.len, (AmrTake){.repair = how.repair}, &e);
        CHECK_MSG(taken, "%s", e.text);
        CHECK(again.n_nodes == p.n_nodes && again.n_branches == p.n_branches);
        CHECK(none.quotes + none.parentheses + none.ends + none.renamed == 0);
        CHECK(how.repair || done.quotes + done.parentheses + done.ends + done.renamed == 0);
        penman_free(&again);
    }
    penman_free(&p);
    str_free(&s);
    return ok;
}

FUZZ(amr_answer, 4 * MIB, 512) {
    const char *text = (const char *)data;
    int64_t whole = stop_at(text, size, size), one = stop_at(text, size, 1);
    CHECK(whole == one && whole == stop_at(text, size, 3));
    bool plain = take(text, size, (AmrTake){0});
    CHECK(!plain || whole > 0);
    take(text, size, (AmrTake){.last = true});
    bool mended = take(text, size, (AmrTake){.repair = true});
    CHECK(mended || !plain);
}
