/* cmd_amr.c - snug amr: the table of its verbs, and those that look at a corpus: check, normalise, stats, triples. */
#include <stdio.h>
#include <string.h>

#include "amr/export.h"
#include "base/json.h"
#include "amr/stats.h"
#include "base/log.h"
#include "base/process.h"
#include "cli/amr_verbs.h"
#include "cli/lines.h"
#include "cli/peak.h"

/* ---- what the verbs share ---- */

void amr_input_choose(AmrInput *in, const Options *o) {
    double share = opt_real(o, OPT_VAL_SPLIT);
    int64_t cut = amr_split(in->corpus.n, share);
    bool train = opt_is(o, OPT_PART, "train");
    in->first = share > 0 && !train ? cut : 0;
    in->end = share > 0 && train ? cut : in->corpus.n;
}

PenmanLayout amr_layout(const Options *o, PenmanLayout otherwise) {
    return opt_is(o, OPT_LAYOUT, "flat")       ? PENMAN_FLAT
           : opt_is(o, OPT_LAYOUT, "one-line") ? PENMAN_ONE_LINE
           : opt_is(o, OPT_LAYOUT, "indented") ? PENMAN_INDENTED
                                               : otherwise;
}

bool amr_json_needs_out(const Options *o, Err *e) {
    if (!opt_flag(o, OPT_JSON) || opt_given(o, OPT_OUT)) return true;
    return fail(e, ERR_USAGE, "--json: standard output is already taken by the lines; give --out FILE for them");
}

bool amr_finish(json_t *result, const AmrCorpus *corpus, const Options *o, Err *e) {
    enum { SCRATCH_BYTES = 4 << 20 }; /* lines that wait to be written, a row as JSON */
    int64_t held = corpus ? amr_corpus_bytes(corpus) : 0;
    return peak_finish(result, process_runtime_bytes(1) + held + SCRATCH_BYTES, o, e);
}

/* ---- check ---- */

static void print_faults(const AmrInput *in, int64_t most) {
    int64_t shown = 0, all = 0;
    for (int64_t i = in->first; i < in->end; i++) {
        const AmrBlock *b = &in->corpus.block[i];
        if (!b->fault) continue;
        if (shown < most)
            printf("  block %lld, line %lld: %s\n", (long long)i + 1, (long long)b->fault_line, b->fault);
        shown += shown < most;
        all++;
    }
    if (all > shown) printf("  ... and %lld more (--faults N)\n", (long long)(all - shown));
}

static json_t *faults_json(const AmrInput *in, int64_t most) {
    json_t *list = json_array();
    for (int64_t i = in->first; i < in->end && (int64_t)json_array_size(list) < most; i++) {
        const AmrBlock *b = &in->corpus.block[i];
        if (!b->fault) continue;
        json_array_append_new(list, json_pack("{s:I, s:I, s:s}", "block", (json_int_t)i + 1, "line",
                                              (json_int_t)b->fault_line, "fault", b->fault));
    }
    return list;
}

/* A corpus without one is another kind of file, whatever else was said about it. */
static bool has_a_graph(const Options *o, int64_t valid, int64_t blocks, Err *e) {
    return valid ||
           fail(e, ERR_FAIL, "%s: none of %lld blocks holds a valid graph", o->positional[1], (long long)blocks);
}

static bool check_verb(const Options *o, AmrInput *in, Err *e) {
    int64_t valid = 0, unbound = 0, sentences = 0, n = in->end - in->first, most = opt_int(o, OPT_FAULTS);
    for (int64_t i = in->first; i < in->end; i++) {
        const AmrBlock *b = &in->corpus.block[i];
        valid += !b->fault;
        unbound += b->fault ? 0 : amr_unbound(&b->graph);
        sentences += b->sentence != NULL;
    }
    if (!opt_flag(o, OPT_JSON)) {
        printf("%s: %lld blocks, %lld valid (%.1f %%), %lld with a sentence\n", o->positional[1], (long long)n,
               (long long)valid, n ? 100.0 * (double)valid / (double)n : 0, (long long)sentences);
        if (unbound) printf("  %lld symbols look like a variable that no node has\n", (long long)unbound);
        print_faults(in, most);
    }
    if (!amr_finish(json_pack("{s:I, s:I, s:I, s:I, s:o}", "blocks", (json_int_t)n, "valid", (json_int_t)valid,
                              "sentences", (json_int_t)sentences, "unbound", (json_int_t)unbound, "faults",
                              faults_json(in, most)),
                    &in->corpus, o, e))
        return false;
    if (opt_flag(o, OPT_STRICT) && valid < n)
        return fail(e, ERR_FAIL, "%s: %lld of %lld blocks are not valid", o->positional[1], (long long)(n - valid),
                    (long long)n);
    return has_a_graph(o, valid, n, e);
}

/* ---- normalise ---- */

/* As they are but for their ends, which are those of the lines that are printed. */
static void add_lines(Str *out, const char *text, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++) {
        bool is_pair = text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n';
        if (!is_pair) str_add_char(out, text[i] == '\r' ? '\n' : text[i]);
    }
}

static void add_block(Str *out, const AmrBlock *b, PenmanLayout layout) {
    add_lines(out, b->text, b->fault ? b->bytes : b->comment_bytes);
    if (!b->fault) penman_print(out, &b->graph, layout);
    if (out->data[out->len - 1] != '\n') str_add_char(out, '\n');
    str_add_char(out, '\n');
}

/* Counts the blocks that were written, and of these the ones that have no valid graph. */
static bool write_blocks(Lines *out, int64_t *written, int64_t *copied, const AmrInput *in, const Options *o,
                         Err *e) {
    for (int64_t i = in->first; i < in->end; i++) {
        const AmrBlock *b = &in->corpus.block[i];
        if (b->fault && opt_flag(o, OPT_ONLY_VALID)) continue;
        add_block(&out->text, b, amr_layout(o, PENMAN_INDENTED));
        ++*written;
        *copied += b->fault != NULL;
        if (!lines_pour(out, e)) return false;
    }
    return true;
}

static bool normalise_verb(const Options *o, AmrInput *in, Err *e) {
    Lines out;
    int64_t written = 0, copied = 0;
    if (!lines_begin(&out, opt_text(o, OPT_OUT), opt_flag(o, OPT_OVERWRITE), e) ||
        !lines_end(&out, write_blocks(&out, &written, &copied, in, o, e), e))
        return false;
    int64_t dropped = in->end - in->first - written;
    if (copied + dropped)
        log_line("%lld block%s without a valid graph: %s", (long long)(copied + dropped),
                 copied + dropped == 1 ? "" : "s", copied ? "copied unchanged" : "left out");
    return amr_finish(JSON_COUNTS({"written", written}, {"copied", copied}, {"dropped", dropped}), &in->corpus, o, e);
}

/* ---- stats ---- */

static json_t *buckets_json(const int64_t *count) {
    json_t *list = json_array();
    for (int b = 0; b < AMR_BUCKETS; b++)
        if (count[b])
            json_array_append_new(list, json_pack("{s:i, s:I}", "from", 1 << b, "count", (json_int_t)count[b]));
    return list;
}

static json_t *stats_json(const AmrStats *s, int64_t blocks) {
    json_t *j = JSON_COUNTS({"blocks", blocks}, {"sentences", s->sentences}, {"words", s->words},
                            {"graphs", s->graphs}, {"nodes", s->nodes}, {"relations", s->relations},
                            {"attributes", s->attributes}, {"concepts", s->concepts}, {"roles", s->roles},
                            {"reentrancies", s->reentrancies}, {"inverses", s->inverses}, {"names", s->names},
                            {"depth_most", s->depth_most}, {"nodes_most", s->nodes_most}, {"unbound", s->unbound});
    json_set_number(j, "depth_mean", s->graphs ? (double)s->depth_sum / (double)s->graphs : 0);
    json_object_set_new(j, "by_words", buckets_json(s->by_words));
    json_object_set_new(j, "by_nodes", buckets_json(s->by_nodes));
    return j;
}

static void print_buckets(const char *title, const int64_t *count) {
    int64_t most = 1;
    for (int b = 0; b < AMR_BUCKETS; b++) most = MAX2(most, count[b]);
    printf("%s\n", title);
    for (int b = 0; b < AMR_BUCKETS; b++) {
        if (!count[b]) continue;
        char range[32];
        bool last = b == AMR_BUCKETS - 1;
        snprintf(range, sizeof range, last ? "%d and more" : b ? "%d to %d" : "%d", 1 << b, (2 << b) - 1);
        printf("  %-14s %8lld  %.*s\n", range, (long long)count[b], (int)(40 * count[b] / most),
               "########################################");
    }
}

static void print_stats(const AmrStats *s, const char *path, int64_t blocks) {
    double graphs = (double)MAX2(1, s->graphs);
    printf("%s: %lld blocks, %lld sentences of %.1f words\n", path, (long long)blocks, (long long)s->sentences,
           s->sentences ? (double)s->words / (double)s->sentences : 0);
    printf("  %-14s %8lld\n", "graphs", (long long)s->graphs);
    printf("  %-14s %8lld  %.2f a graph, %lld at most, %lld different\n", "concepts", (long long)s->nodes,
           (double)s->nodes / graphs, (long long)s->nodes_most, (long long)s->concepts);
    printf("  %-14s %8lld  %.2f a graph, %lld different roles\n", "relations", (long long)s->relations,
           (double)s->relations / graphs, (long long)s->roles);
    printf("  %-14s %8lld\n", "attributes", (long long)s->attributes);
    printf("  %-14s %8lld\n", "re-entrancies", (long long)s->reentrancies);
    printf("  %-14s %8lld\n", "inverse roles", (long long)s->inverses);
    printf("  %-14s %8lld\n", "names", (long long)s->names);
    printf("  %-14s %8.2f  %lld at most\n", "depth", (double)s->depth_sum / graphs, (long long)s->depth_most);
    print_buckets("words of a sentence", s->by_words);
    print_buckets("nodes of a graph", s->by_nodes);
}

static bool stats_verb(const Options *o, AmrInput *in, Err *e) {
    int64_t blocks = in->end - in->first;
    AmrStats s;
    amr_stats(&s, &in->corpus, in->first, in->end);
    if (!opt_flag(o, OPT_JSON)) print_stats(&s, o->positional[1], blocks);
    return amr_finish(stats_json(&s, blocks), &in->corpus, o, e) && has_a_graph(o, s.graphs, blocks, e);
}

/* ---- triples ---- */

static bool triples_verb(const Options *o, AmrInput *in, Err *e) {
    Lines out;
    if (!lines_begin(&out, opt_text(o, OPT_OUT), opt_flag(o, OPT_OVERWRITE), e)) return false;
    bool ok = true;
    for (int64_t i = in->first; ok && i < in->end; i++)
        ok = lines_json(&out, amr_block_json(&in->corpus.block[i], i + 1, amr_layout(o, PENMAN_INDENTED)), e);
    return lines_end(&out, ok, e);
}

/* ---- the table ---- */

static const struct {
    const char *name;
    AmrVerb *fn;
    bool file;   /* it reads one */
    bool corpus; /* which is a corpus */
    bool lines;  /* they take standard output, unless --out is given */
} verbs[] = {
    {"check", check_verb, .file = true, .corpus = true},
    {"normalise", normalise_verb, .file = true, .corpus = true, .lines = true},
    {"normalize", normalise_verb, .file = true, .corpus = true, .lines = true},
    {"stats", stats_verb, .file = true, .corpus = true},
    {"triples", triples_verb, .file = true, .corpus = true},
    {"rows", amr_rows_verb, .file = true, .lines = true},
    {"collect", amr_collect_verb, .file = true, .lines = true},
    {"draw", amr_draw_verb, .lines = true},
};

static bool run_verb(int i, const Options *o, Err *e) {
    AmrInput in = {0};
    bool ok = (!verbs[i].lines || amr_json_needs_out(o, e)) &&
              (!verbs[i].corpus || amr_corpus_read(&in.corpus, o->positional[1], e));
    if (ok && verbs[i].corpus) amr_input_choose(&in, o);
    ok = ok && verbs[i].fn(o, &in, e);
    amr_corpus_free(&in.corpus);
    return ok;
}

bool cmd_amr(const Options *o, Err *e) {
    const char *names[COUNT_OF(verbs)], *word = o->positional[0];
    for (int i = 0; i < COUNT_OF(verbs); i++) {
        names[i] = verbs[i].name;
        if (strcmp(names[i], word)) continue;
        if (verbs[i].file == (o->n_positional == 2)) return run_verb(i, o, e);
        return fail(e, ERR_USAGE, verbs[i].file ? "`snug amr %s` needs a file" : "`snug amr %s` reads no file",
                    word);
    }
    const char *near = str_nearest(word, names, COUNT_OF(verbs));
    return fail(
        e, ERR_USAGE,
        "'%s' is no verb of `snug amr`: check, normalise, stats, triples, rows, parse, collect, draw%s%s%s", word,
        near ? ". Did you mean " : "", near ? near : "", near ? "?" : "");
}
