/* test_penman.c - the PENMAN reader and printer against the Python package's (tools/make_amr_golden.py), and by
 * hand. */
#include "amr/penman.h"

#include "amr/export.h"
#include "base/mem.h"
#include "data/rows.h"
#include "tests/test.h"

static bool read_text(Penman *p, const char *text, Err *e) {
    PenmanText from = {text, text + strlen(text), 1};
    return penman_read(p, &from, e);
}

static void expect_refused(const char *text, const char *part) {
    Penman p;
    Err e = {0};
    bool ok = read_text(&p, text, &e) && penman_check(&p, &e);
    if (!EXPECT(!ok && strstr(e.text, part))) test_note("    '%s' says '%s', wanted '%s'", text, e.text, part);
    penman_free(&p);
}

/* ---- against penman ---- */

static void expect_as_penman(const json_t *row, int64_t *accepted) {
    static const char *const keys[] = {"top", "triples", "metadata", "graph"};
    const char *text = json_string_value(json_object_get(row, "text"));
    AmrCorpus c;
    Err e = {0};
    Str s = {0};
    str_add(&s, text);
    EXPECT_OK(amr_corpus_parse(&c, &s, "text", 1, &e));
    EXPECT(c.n == 1);
    json_t *made = amr_block_json(&c.block[0], 1, PENMAN_INDENTED);
    bool wanted = json_is_true(json_object_get(row, "accepted"));
    *accepted += wanted;
    if (!EXPECT((c.block[0].graph.n_nodes > 0) == wanted))
        test_note("    %s: %s", text, c.block[0].fault ? c.block[0].fault : "accepted");
    for (int i = 0; wanted && i < COUNT_OF(keys); i++)
        if (!EXPECT(json_equal(json_object_get(made, keys[i]), json_object_get(row, keys[i]))))
            test_note("    %s of %s", keys[i], text);
    json_decref(made);
    amr_corpus_free(&c);
}

TEST(texts_mean_what_penman_says) {
    RowReader r;
    json_t *row;
    Err e;
    int64_t n = 0, accepted = 0;
    bool ok = dataset_reader_open(&r, "tests/amr/penman.jsonl", &e);
    EXPECT_OK(ok);
    while (ok && (ok = dataset_reader_next(&r, &row, &e)) && row) {
        expect_as_penman(row, &accepted);
        json_decref(row);
        n++;
    }
    EXPECT(n == 400 && accepted > 200 && accepted < 350);
    dataset_reader_close(&r);
}

/* ---- by hand ---- */

TEST(a_graph_has_nodes_branches_and_metadata) {
    Penman p;
    Err e;
    EXPECT_OK(read_text(&p,
                        "# ::id 7 ::snt Cậu bé muốn đi.\n(m / muốn~e.2\n   :agent (ô / cậu_bé) :polarity -\n   "
                        ":theme (đ / đi :agent~1 ô~e.4))",
                        &e));
    EXPECT(p.n_nodes == 3 && p.n_branches == 7 && p.n_meta == 2);
    EXPECT_STR(penman_meta(&p, "snt"), "Cậu bé muốn đi.");
    EXPECT_STR(penman_meta(&p, "id"), "7");
    EXPECT(!penman_meta(&p, "date"));
    EXPECT_STR(penman_concept(&p, 0), "muốn");
    EXPECT(penman_find(&p, "đ") == 2 && penman_find(&p, "x") == -1 && penman_find(&p, NULL) == -1);
    EXPECT_STR(p.branch[6].role_mark, "~1");
    EXPECT_STR(p.branch[6].atom_mark, "~e.4");
    EXPECT(p.node[1].line == 3 && p.branch[4].line == 4);
    EXPECT_OK(penman_check(&p, &e));
    penman_free(&p);
}

TEST(three_layouts_print_the_same_graph) {
    static const char *const wanted[] = {
        [PENMAN_INDENTED] = "(w / want-01\n   :ARG0 (ô2 / boy)\n   :ARG1 (g / go-02\n            :ARG0 ô2))",
        [PENMAN_FLAT] = "(w / want-01\n:ARG0 (ô2 / boy)\n:ARG1 (g / go-02\n:ARG0 ô2))",
        [PENMAN_ONE_LINE] = "(w / want-01 :ARG0 (ô2 / boy) :ARG1 (g / go-02 :ARG0 ô2))"};
    Penman p;
    Err e;
    EXPECT_OK(read_text(&p, "(w/want-01 :ARG0(ô2/boy):ARG1(g/go-02 :ARG0 ô2))", &e));
    for (int i = 0; i < 3; i++) {
        Str s = {0};
        penman_print(&s, &p, (PenmanLayout)i);
        EXPECT_STR(str_text(&s), wanted[i]);
        str_free(&s);
    }
    penman_free(&p);
}

TEST(inverse_roles_are_turned_around_but_for_three_names) {
    Penman p;
    Err e;
    int64_t n;
    EXPECT_OK(read_text(&p, "(a / x :ARG0-of (b / y) :consist-of (c / z) :ARG1-of 3 :ARG2-of b)", &e));
    PenmanTriple *t = penman_triples(&p, &n);
    EXPECT(n == 7);
    EXPECT(!strcmp(t[1].source, "b") && t[1].role_len == 5 && !strcmp(t[1].target, "a") && t[1].source_node == 1);
    EXPECT(!strcmp(t[3].source, "a") && t[3].role_len == 11);
    EXPECT(!strcmp(t[5].source, "a") && t[5].role_len == 8 &&
           t[5].target_node == -1); /* a constant cannot be a source */
    EXPECT(!strcmp(t[6].source, "b") && t[6].role_len == 5);
    mem_free(t);
    penman_free(&p);
}

TEST(several_graphs_are_read_one_after_the_other) {
    const char *text = "# ::id 1\n(a / x)\n# ::id 2\n(b / y) rest";
    PenmanText from = {text, text + strlen(text), 1};
    Penman p;
    Err e;
    EXPECT_OK(penman_read(&p, &from, &e));
    EXPECT(!penman_at_end(&from) && from.line == 3 && p.n_nodes == 1);
    penman_free(&p);
    EXPECT_OK(penman_read(&p, &from, &e));
    EXPECT_STR(penman_meta(&p, "id"), "2");
    EXPECT(!penman_at_end(&from) && from.line == 4);
    penman_free(&p);
}

TEST(what_is_no_valid_graph_is_refused_with_its_line) {
    expect_refused("", "line 1: the text ends where '(' was expected");
    expect_refused("(a / x\n  :ARG0 (b / y)",
                   "line 2: the text ends where ')' or a role such as :ARG0 was expected");
    expect_refused("(a / x\n\n  :op1 \"Kim)\n)", "line 3: a string is not closed");
    expect_refused("(a / x # note\n :b c)", "line 1: a comment stands inside the graph");
    expect_refused("(a / x :b ~c)", "an alignment such as ~e.4");
    expect_refused("(a / x / y)", "')' or a role such as :ARG0 was expected, found '/'");
    expect_refused("(a / x :b c(d / y))", "found '('");
    expect_refused("x", "'(' was expected, found 'x'");
    expect_refused("(\"a\" / x)", "a variable was expected");
    expect_refused("(a / \xff)", "not valid UTF-8");
    expect_refused("(a / x\n :b (c / y)\n :d (c / z))",
                   "line 3: the variable 'c' already names the node of line 2");
    expect_refused("(a / x\n :b (c))", "line 2: the node 'c' has no concept");
    expect_refused("(a / x\n :b\n :c d)", "line 2: the role :b has no target");
    expect_refused("(a / x : d)", "a role has no name");
    expect_refused("(a / x :b ())", "a node is empty");
    expect_refused("(a :instance x)", "behind '/'");
}

/* An unknown token that is long is shown in part, and never half a character. */
TEST(a_message_shows_whole_characters) {
    Penman p;
    Err e;
    EXPECT(!read_text(&p, "aaaaaaaaaaaaaaaaaaaaaaađđđđđđđđđđđđđđđđđđđ", &e));
    EXPECT(strstr(e.text, "'aaaaaaaaaaaaaaaaaaaaaaa...'"));
    penman_free(&p);
}

/* In a string it would end the text that is printed from it. */
TEST(a_byte_zero_is_refused_wherever_it_stands) {
    static const char text[] = "(a / x :b \"c\0d\")";
    PenmanText from = {text, text + sizeof text - 1, 1};
    Penman p;
    Err e = {0};
    EXPECT(!penman_read(&p, &from, &e) && strstr(e.text, "byte 0"));
    penman_free(&p);
}

TEST(depth_is_bounded) {
    for (int depth = PENMAN_DEPTH_MOST; depth <= PENMAN_DEPTH_MOST + 1; depth++) {
        Str s = {0}, again = {0};
        Penman p;
        Err e;
        for (int i = 0; i < depth; i++) str_addf(&s, "%s(v%d / c", i ? " :r " : "", i);
        for (int i = 0; i < depth; i++) str_add_char(&s, ')');
        bool ok = read_text(&p, s.data, &e);
        EXPECT(ok == (depth == PENMAN_DEPTH_MOST));
        if (ok) penman_print(&again, &p, PENMAN_ONE_LINE);
        if (ok)
            EXPECT_STR(str_text(&again), s.data);
        else
            EXPECT(strstr(e.text, "400 nodes inside each other"));
        penman_free(&p);
        str_free(&s);
        str_free(&again);
    }
}
