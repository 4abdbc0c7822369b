/* test_corpus.c - files of blocks: told apart, parted, filtered with a reason, counted. */
#include "amr/corpus.h"

#include "amr/stats.h"
#include "base/file.h"
#include "data/source.h"
#include "tests/test.h"

static void parse(AmrCorpus *c, const char *text) {
    Str s = {0};
    Err e;
    str_add(&s, text);
    EXPECT_OK(amr_corpus_parse(c, &s, "x.amr", 1, &e));
}

TEST(a_corpus_is_told_by_its_content) {
    static const struct {
        bool is;
        const char *text;
    } cases[] = {
        {true, "#::snt Con chó sủa.\n(s / sủa :agent (c / chó))\n"},
        {true, "# ::id 1\n# ::snt A dog barks.\n\n\n(b / bark-01)\n"},
        {true, "\xef\xbb\xbf\r\n# AMR release, v1\r\n\r\n# ::snt x\r\n(b / bark-01)"},
        {true, "(b / bark-01 :ARG0 (d / dog))"},
        {true, "(đ2/đi)"},
        {true, "# ::snt a graph that is broken from the start\n(b bark-01"},
        {false, ""},
        {false, "\n\n"},
        {false, "# snt\nno key"},
        {true, "# ::snt only a sentence\n"},
        {false, "{\"text\": \"(a / b)\"}\n"},
        {false, "[{\"prompt\": 1}]"},
        {false, "Once upon a time (long ago / far away) there was a dog.\n"},
        {false, "(parenthesis first, then words)"},
        {false, "# A heading\n\nplain text"},
        {true, "# a note\n(b / bark-01)"},
        {false, "# A heading\n(not so, said the dog)"},
        {false, "(1 + 2) / 3"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++)
        if (!EXPECT(source_is_amr(cases[i].text, (int64_t)strlen(cases[i].text)) == cases[i].is))
            test_note("    case %d: %s", i, cases[i].text);
}

TEST(blocks_keep_their_place_and_say_what_is_wrong) {
    AmrCorpus c;
    parse(&c,
          "# AMR release\n\n"
          "#::snt one :: two\n(a / x)\n\n\n"
          "# ::id 2 ::snt not the first key\n(b / y\n   :op1 (b / z))\n"
          "# ::snt no empty line before me\n(c / z) )\n\n"
          "# ::snt no graph\n\n"
          "(d / no-sentence)\n\n"
          "# ::snt failed\n# ::failed no graph\n(e / error :sentence \"failed\")\n\n"
          "# ::snt failed elsewhere\n(e / error :sentence \"failed\")\r\n");
    EXPECT(c.n == 7 && c.valid == 2 && c.comments == 1);
    static const struct {
        const char *sentence, *fault;
        int64_t line, fault_line;
    } wanted[] = {
        {"one :: two", NULL, 3, 0},
        {"not the first key", "the variable 'b' already names the node of line 8", 7, 9},
        {"no empty line before me", "text follows the graph", 10, 11},
        {"no graph", "there is no graph", 13, 13},
        {NULL, NULL, 15, 0},
        {"failed", "no graph was found for this sentence", 17, 17},
        {"failed elsewhere", "no graph was found for this sentence", 21, 21},
    };
    for (int i = 0; i < COUNT_OF(wanted) && i < c.n; i++) {
        const AmrBlock *b = &c.block[i];
        EXPECT(b->line == wanted[i].line && b->fault_line == wanted[i].fault_line);
        if (wanted[i].sentence)
            EXPECT_STR(b->sentence, wanted[i].sentence);
        else
            EXPECT(!b->sentence);
        bool same = wanted[i].fault ? b->fault && str_starts(b->fault, wanted[i].fault) : !b->fault;
        if (!EXPECT(same)) test_note("    block %d: %s", i + 1, b->fault ? b->fault : "valid");
    }
    Err e = {0};
    EXPECT(!amr_corpus_require_valid(&c, &e));
    EXPECT(strstr(e.text, "x.amr: block 2, line 9") && strstr(e.text, "2 of 7 blocks are valid"));
    amr_corpus_free(&c);
}

TEST(a_file_without_blocks_is_refused) {
    AmrCorpus c;
    Err e;
    Str s = {0};
    str_add(&s, "# only comments\n");
    EXPECT(!amr_corpus_parse(&c, &s, "x.txt", 1, &e) && strstr(e.text, "x.txt: holds no block"));
    amr_corpus_free(&c);
    EXPECT(!amr_corpus_read(&c, test_path("absent.amr"), &e) && strstr(e.text, "absent.amr"));
    amr_corpus_free(&c);
}

/* A block that is not UTF-8 is a fault of its own, and its sentence can still be shown. */
TEST(a_block_in_another_encoding_does_not_hide_the_others) {
    AmrCorpus c;
    parse(&c, "# ::snt caf\xe9\n(c / caf\xe9)\n\n# ::snt good\n(g / good)\n");
    EXPECT(c.n == 2 && c.valid == 1);
    EXPECT_STR(c.block[0].sentence, "caf?");
    EXPECT_STR(c.block[0].fault, "is not valid UTF-8");
    EXPECT(c.block[0].fault_line == 1);
    amr_corpus_free(&c);
}

TEST(the_last_blocks_are_held_out) {
    EXPECT(amr_split(1842, 0.05) == 1749); /* the guide's 1749 examples: 109 steps of 16 */
    EXPECT(amr_split(1842, 0.1) == 1657 && amr_split(100, 0.9) == 10 && amr_split(10, 0.001) == 9 &&
           amr_split(10, 0.999) == 1);
    EXPECT(amr_split(1, 0.5) == 1 && amr_split(0, 0.5) == 0);
}

TEST(variables_that_lead_nowhere_are_counted) {
    AmrCorpus c;
    parse(&c, "(a / x :op1 b2 :op2 đ :polarity - :quant 1 :mode interrogative :ARG0 a :op3 \"z\")");
    EXPECT(c.valid == 1 && amr_unbound(&c.block[0].graph) == 2);
    amr_corpus_free(&c);
}

TEST(stats_count_what_is_there) {
    AmrCorpus c;
    AmrStats s;
    parse(&c,
          "#::snt The boy wants to go .\n(w / want-01 :ARG0 (b / boy) :ARG1 (g / go-02 :ARG0 b :polarity -))\n\n"
          "#::snt  Kim\n(p / person :name (n / name :op1 \"Kim\") :ARG0-of (g / go-02))\n\n#::snt bad\n(x / y\n");
    amr_stats(&s, &c, 0, c.n);
    EXPECT(s.sentences == 3 && s.words == 8 && s.graphs == 2 && s.nodes == 6 && s.nodes_most == 3);
    EXPECT(s.relations == 5 && s.attributes == 2 && s.reentrancies == 1 && s.inverses == 1 && s.names == 1);
    EXPECT(s.concepts == 5 && s.roles == 6 && s.depth_most == 2 && s.depth_sum == 4 && s.unbound == 0);
    EXPECT(s.by_words[0] == 2 && s.by_words[2] == 1 && s.by_nodes[1] == 2);
    amr_stats(&s, &c, 1, 2);
    EXPECT(s.graphs == 1 && s.sentences == 1 && s.names == 1);
    amr_corpus_free(&c);
}
