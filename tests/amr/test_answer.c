/* test_answer.c - one graph out of whatever a model writes: where it ends, which one it is, what is put right. */
#include "amr/answer.h"

#include "base/mem.h"
#include "tests/test.h"

/* Fed in pieces of every size, the machine stops at the same byte. */
static void expect_stop(const char *text, int64_t wanted) { /* -1: it does not stop */
    int64_t len = (int64_t)strlen(text);
    for (int64_t piece = 1; piece <= len + 1; piece++) {
        AmrStop s = {0};
        int64_t at = 0, used;
        bool done = false;
        while (!done && at < len) {
            done = amr_stop_feed(&s, text + at, MIN2(piece, len - at), &used);
            at += used;
        }
        if (!EXPECT(wanted < 0 ? !done : done && at == wanted && s.fed == wanted))
            test_note("    %s: pieces of %lld, %s at %lld", text, (long long)piece, done ? "stopped" : "went on",
                      (long long)at);
    }
}

TEST(a_graph_ends_where_its_parentheses_do) {
    expect_stop("(a / b)", 7);
    expect_stop("(a / b) and more (c / d)", 7);
    expect_stop("  Sure! (it is)\n(a / b\n :c (d / e)) .", 35);
    expect_stop("(a / b :n \"x) (\" :m \"\\\"\")", 25);
    expect_stop("(want:ARG0(boy)) (w / want-01 :ARG0 (b / boy))", 46);
    expect_stop(":( a smile, then (a/b)", 22);
    expect_stop("(đ2 / đi)", 11);
    expect_stop("(a / b :n \"open\n) text", 17); /* a string ends with its line */
    expect_stop("(a / b :n (c / d)", -1);
    expect_stop("(want:ARG0(boy))", -1);
    expect_stop("no graph", -1);
    expect_stop("", -1);
}

static void expect_take(const char *text, AmrTake how, const char *graph, AmrRepairs want) {
    Penman p;
    AmrRepairs done;
    Err e = {0};
    Str s = {0};
    bool ok = amr_take(&p, &done, text, (int64_t)strlen(text), how, &e);
    if (ok) penman_print(&s, &p, PENMAN_ONE_LINE);
    if (!EXPECT(ok && !strcmp(str_text(&s), graph)))
        test_note("    %s -> %s, not %s", text, ok ? str_text(&s) : e.text, graph);
    if (!EXPECT(!memcmp(&want, &done, sizeof want)))
        test_note("    %s: %lld quotes, %lld parentheses, %lld ends, %lld renamed", text, (long long)done.quotes,
                  (long long)done.parentheses, (long long)done.ends, (long long)done.renamed);
    str_free(&s);
    penman_free(&p);
}

static void expect_failure(const char *text, AmrTake how, const char *part) {
    Penman p;
    AmrRepairs done;
    Err e = {0};
    bool ok = amr_take(&p, &done, text, (int64_t)strlen(text), how, &e);
    if (!EXPECT(!ok && strstr(e.text, part))) test_note("    %s: %s", text, ok ? "taken" : e.text);
    penman_free(&p);
}

TEST(the_first_or_the_last_whole_graph_is_taken) {
    AmrTake first = {0}, last = {.last = true};
    AmrRepairs none = {0};
    const char *two = "Draft: (a / b)\nBetter: (c / d :e (f / g)) done (h / i";
    expect_take(two, first, "(a / b)", none);
    expect_take(two, last, "(c / d :e (f / g))", none);
    expect_take("1: (go(boy))\n2:\n(g / go-02 :ARG0 (b / boy))\n\nThe graph says that ...", first,
                "(g / go-02 :ARG0 (b / boy))", none);
    expect_failure("I cannot do that.", first, "no graph");
    expect_failure("(go(boy))", first, "no graph");
    expect_failure("(a / b :c (d / e)", first, "not closed");
    expect_failure("(a / b :c (a / e))", first, "already names");
    expect_failure("(a / b :c )", first, "has no target");
}

TEST(repairs_are_made_when_asked_for_and_counted) {
    AmrTake mend = {.repair = true};
    expect_take("(a / b)", mend, "(a / b)", (AmrRepairs){0});
    expect_take("(a / b :c (d / e", mend, "(a / b :c (d / e))", (AmrRepairs){.parentheses = 2});
    expect_take("(a / b :op1 \"Kim", mend, "(a / b :op1 \"Kim\")", (AmrRepairs){.quotes = 1, .parentheses = 1});
    expect_take("(a / b :op1 \"Kim)\n :c d)", mend, "(a / b :op1 \"Kim\")", (AmrRepairs){.quotes = 1});
    expect_take("(a / b :op1 \"x\\", mend, "(a / b :op1 \"x\")", (AmrRepairs){.quotes = 1, .parentheses = 1});
    expect_take("(a / b :op1 \"x\\\\", mend, "(a / b :op1 \"x\\\\\")",
                (AmrRepairs){.quotes = 1, .parentheses = 1});
    expect_take("(a / b :c d :ARG0", mend, "(a / b :c d)", (AmrRepairs){.parentheses = 1, .ends = 1});
    expect_take("(a / b :c d :ARG0 (", mend, "(a / b :c d)", (AmrRepairs){.parentheses = 1, .ends = 1});
    expect_take("(a / b :c d :ARG0 (x", mend, "(a / b :c d)", (AmrRepairs){.parentheses = 1, .ends = 1});
    expect_take("(a / b :c d :ARG0 (x /", mend, "(a / b :c d)", (AmrRepairs){.parentheses = 1, .ends = 1});
    expect_take("(b / boy :mod (b / big) :poss b :part (b2 / bone :mod (b / bad)))", mend,
                "(b / boy :mod (b3 / big) :poss b :part (b2 / bone :mod (b4 / bad)))", (AmrRepairs){.renamed = 2});
    expect_take("(n10 / a :x (n10 / c", mend, "(n10 / a :x (n2 / c))",
                (AmrRepairs){.parentheses = 2, .renamed = 1});
    expect_failure("(a /", mend, "nothing of it is left");
    expect_failure("(a / b :c (d) e", mend, "found 'e'");
    expect_failure("nothing", mend, "no graph");
}

TEST(a_failure_keeps_its_place_whatever_the_sentence_is) {
    Str s = {0};
    Err e;
    Penman p;
    amr_print_failure(&s, "He said \"no\\yes\"\n(twice).");
    EXPECT_STR(str_text(&s), "(e / error :sentence \"He said \\\"no\\\\yes\\\" (twice).\")");
    PenmanText from = {s.data, s.data + s.len, 1};
    EXPECT_OK(penman_read(&p, &from, &e) && penman_check(&p, &e) && penman_at_end(&from));
    penman_free(&p);
    str_free(&s);
}
