/* fuzz_smatch.c - two files of graphs, parted by a line `---`: counts stay within the graphs, a proof is one from
 * either side, and climbing never gets beyond it. */
#include <string.h>

#include "amr/smatch.h"
#include "fuzz/fuzz.h"

enum { NODES_MOST = 40, BLOCKS_MOST = 4 }; /* tables are squares: more than a small multiple of the text */

static bool is_small(const AmrCorpus *c) {
    bool small = c->n <= BLOCKS_MOST;
    for (int64_t i = 0; i < c->n; i++) small = small && c->block[i].graph.n_nodes <= NODES_MOST;
    return small;
}

static bool parse(AmrCorpus *c, const char *text, int64_t size) {
    Str s = {0};
    str_add_bytes(&s, text, size);
    bool ok = amr_corpus_parse(c, &s, "fuzz", 1, NULL);
    str_free(&s);
    return ok && is_small(c);
}

static SmatchScore score(const AmrCorpus *a, const AmrCorpus *b, bool climb) {
    SmatchOptions o = smatch_defaults();
    SmatchScore s;
    o.climb = climb;
    o.skip_bad_gold = true;
    o.node_limit = 20;
    CHECK(smatch_score(&s, a, b, &o, NULL));
    for (int m = 0; m < SMATCH_METRICS; m++) {
        CHECK(s.of[m].matched >= 0 && s.of[m].matched <= s.of[m].gold && s.of[m].matched <= s.of[m].predicted);
    }
    CHECK(s.bound >= s.of[SMATCH_FULL].matched && s.n + s.skipped == a->n);
    return s;
}

static bool all_valid(const AmrCorpus *c) {
    return c->valid == c->n;
}

static void compare(const AmrCorpus *a, const AmrCorpus *b) {
    SmatchScore there = score(a, b, false), climbed = score(a, b, true), itself = score(a, a, false);
    CHECK(climbed.of[SMATCH_FULL].matched <= there.bound);
    CHECK(itself.of[SMATCH_FULL].matched <= itself.bound && itself.empty == 0);
    if (all_valid(a) && all_valid(b)) {
        SmatchScore back = score(b, a, false);
        CHECK(there.of[SMATCH_FULL].matched <= back.bound && back.of[SMATCH_FULL].matched <= there.bound);
        smatch_score_free(&back);
    }
    smatch_score_free(&there);
    smatch_score_free(&climbed);
    smatch_score_free(&itself);
}

FUZZ(smatch, 64 * MIB, 512) {
    const char *text = (const char *)data, *cut = memmem(text, (size_t)size, "---\n", 4);
    AmrCorpus a, b = {0};
    if (!cut) return;
    const char *rest = cut + 4;
    bool ok = parse(&a, text, cut - text);
    ok = parse(&b, rest, text + size - rest) && ok;
    if (ok && a.n == b.n) compare(&a, &b);
    amr_corpus_free(&a);
    amr_corpus_free(&b);
}
