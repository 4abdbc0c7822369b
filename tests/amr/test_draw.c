/* test_draw.c - drawn sentences: valid graphs of every construction, and two parts that share words but no
 * sentence. */
#include "amr/draw.h"

#include "amr/stats.h"
#include "base/rng.h"
#include "tests/test.h"

enum { DRAWS = 2000 };

static void draw_corpus(AmrCorpus *c, AmrLanguage language, AmrPart part, uint64_t seed) {
    AmrDrawn d = {0};
    Str s = {0};
    Err e;
    for (uint64_t i = 0; i < DRAWS; i++) {
        amr_draw(&d, rng_fold(seed, i), language, part);
        EXPECT((d.held_out > 0) == (part == AMR_HELD_OUT));
        str_addf(&s, "#::snt %s\n%s\n\n", d.sentence.data, d.graph.data);
    }
    amr_drawn_free(&d);
    EXPECT_OK(amr_corpus_parse(c, &s, "drawn", 1, &e));
    EXPECT_OK(amr_corpus_require_valid(c, &e));
    EXPECT(c->n == DRAWS);
}

TEST(drawn_graphs_are_valid_and_have_every_construction) {
    for (int language = 0; language < 2; language++) {
        AmrCorpus c;
        AmrStats s;
        draw_corpus(&c, (AmrLanguage)language, AMR_TRAIN, 1);
        amr_stats(&s, &c, 0, c.n);
        EXPECT(s.reentrancies > DRAWS / 4 && s.inverses > DRAWS / 20 && s.names > DRAWS / 4 &&
               s.attributes > DRAWS / 4);
        EXPECT(s.unbound == 0 && s.concepts > 60 && s.depth_most >= 5 && s.nodes_most >= 12);
        amr_corpus_free(&c);
    }
}

static bool is_in(const AmrCorpus *c, const char *sentence) {
    for (int64_t i = 0; i < c->n; i++)
        if (!strcmp(c->block[i].sentence, sentence)) return true;
    return false;
}

static int concepts_not_in(const AmrCorpus *a, const AmrCorpus *b) { /* concepts of b that a does not have */
    AmrStats both, one;
    AmrCorpus joined;
    Str s = {0};
    Err e;
    str_addf(&s, "%s\n%s", a->text.data, b->text.data);
    EXPECT_OK(amr_corpus_parse(&joined, &s, "joined", 1, &e));
    amr_stats(&both, &joined, 0, joined.n);
    amr_stats(&one, a, 0, a->n);
    amr_corpus_free(&joined);
    return (int)(both.concepts - one.concepts);
}

TEST(the_parts_share_words_and_no_sentence) {
    for (int language = 0; language < 2; language++) {
        AmrCorpus train, test;
        draw_corpus(&train, (AmrLanguage)language, AMR_TRAIN, 1);
        draw_corpus(&test, (AmrLanguage)language, AMR_HELD_OUT, 2);
        int64_t common = 0, again = 0;
        for (int64_t i = 0; i < test.n; i++) common += is_in(&train, test.block[i].sentence);
        for (int64_t i = 0; i < 200; i++) {
            AmrCorpus rest = train;
            rest.block += i + 1;
            rest.n -= i + 1;
            again += is_in(&rest, train.block[i].sentence);
        }
        EXPECT(common == 0 && again < 40); /* enough variety: most sentences are drawn once */
        EXPECT(concepts_not_in(&train, &test) == 0);
        amr_corpus_free(&train);
        amr_corpus_free(&test);
    }
}

TEST(a_key_draws_the_same_sentence_again) {
    AmrDrawn a = {0}, b = {0};
    for (uint64_t key = 0; key < 50; key++) {
        amr_draw(&a, key, AMR_VIETNAMESE, AMR_TRAIN);
        amr_draw(&b, key + 1, AMR_VIETNAMESE, AMR_TRAIN);
        amr_draw(&b, key, AMR_VIETNAMESE, AMR_TRAIN);
        EXPECT_STR(str_text(&a.sentence), str_text(&b.sentence));
        EXPECT_STR(str_text(&a.graph), str_text(&b.graph));
    }
    amr_drawn_free(&a);
    amr_drawn_free(&b);
}
