/* amr_make.c - the verbs of snug amr that make a file: rows to train on or to ask, blocks from a model's answers,
 * drawn sentences. */
#include <stdio.h>
#include <string.h>

#include "amr/answer.h"
#include "amr/draw.h"
#include "amr/prompt.h"
#include "base/log.h"
#include "base/rng.h"
#include "cli/amr_verbs.h"
#include "cli/lines.h"
#include "cli/show.h"
#include "data/rows.h"
#include "data/source.h"

/* ---- sentences: those of blocks, or one a line ---- */

/* A text that is no corpus becomes one whose blocks have a sentence and no graph. */
static bool read_sentences(AmrInput *in, const char *path, Err *e) {
    Str text = {0}, blocks = {0};
    if (!file_read(path, &text, 0, e)) return false;
    bool plain = !source_is_amr(str_text(&text), text.len);
    for (const char *line = str_text(&text); plain && *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *first = line + strspn(line, " \t\r");
        if (*first && *first != '\n') str_addf(&blocks, "# ::snt %.*s\n\n", (int)strcspn(first, "\r\n"), first);
    }
    bool ok = amr_corpus_parse(&in->corpus, plain ? &blocks : &text, path, 1, e);
    in->end = in->corpus.n;
    str_free(&text);
    str_free(&blocks);
    return ok;
}

/* ---- rows ---- */

typedef struct RowCounts {
    int64_t rows, invalid, silent; /* silent: no sentence */
} RowCounts;

static bool write_rows(Lines *out, RowCounts *n, const AmrInput *in, const AmrPrompt *p, AmrRowStyle style,
                       Err *e) {
    for (int64_t i = in->first; i < in->end; i++) {
        const AmrBlock *b = &in->corpus.block[i];
        bool invalid = b->fault && !style.without_answer;
        n->silent += !b->sentence;
        n->invalid += b->sentence && invalid;
        if (!b->sentence || invalid) continue;
        n->rows++;
        if (!lines_json(out, amr_row(p, b, i, style), e)) return false;
    }
    return n->rows || fail(e, ERR_FAIL, "%s: no block has a sentence%s; `snug amr check` says why",
                           in->corpus.path, style.without_answer ? "" : " and a valid graph");
}

static void say_rows(const Options *o, const RowCounts *n) {
    if (opt_flag(o, OPT_JSON)) {
        json_t *j = json_pack("{s:I, s:I, s:I}", "rows", (json_int_t)n->rows, "invalid", (json_int_t)n->invalid,
                              "without_sentence", (json_int_t)n->silent);
        show_print_json(j);
        json_decref(j);
        return;
    }
    log_line("%lld rows", (long long)n->rows);
    if (n->invalid)
        log_warn("%lld blocks were left out: their graph is not valid (`snug amr check` names them)",
                 (long long)n->invalid);
    if (n->silent) log_warn("%lld blocks were left out: they have no sentence", (long long)n->silent);
}

bool amr_rows_verb(const Options *o, Err *e) {
    AmrRowStyle style = {.layout = amr_layout(o, PENMAN_ONE_LINE),
                         .chat = opt_flag(o, OPT_MESSAGES),
                         .without_answer = opt_flag(o, OPT_WITHOUT_ANSWERS)};
    AmrInput in = {0};
    AmrPrompt p = {0};
    RowCounts n = {0};
    Lines out;
    bool ok = amr_json_needs_out(o, e) && amr_prompt_choose(&p, &style, opt_text(o, OPT_AMR_PROMPT), e);
    ok = ok && (style.without_answer ? read_sentences(&in, o->positional[1], e)
                                     : amr_corpus_read(&in.corpus, o->positional[1], e));
    if (ok) amr_input_choose(&in, o);
    ok = ok && lines_begin(&out, opt_text(o, OPT_OUT), opt_flag(o, OPT_OVERWRITE), e);
    ok = ok && lines_end(&out, write_rows(&out, &n, &in, &p, style, e), e);
    if (ok) say_rows(o, &n);
    amr_prompt_free(&p);
    amr_corpus_free(&in.corpus);
    return ok;
}

/* ---- collect ---- */

typedef struct Collect {
    AmrInput sentences; /* --sentences; without: no blocks */
    AmrTake how;
    PenmanLayout layout;
    int64_t answers, graphs, failed, other_samples, cut, repaired;
    AmrRepairs repairs;
} Collect;

/* From the answer's id, or from --sentences by its index; NULL: unknown. */
static const char *sentence_of(const Collect *c, const json_t *row) {
    const json_t *id = json_object_get(row, "id"), *index = json_object_get(row, "index");
    const char *said = json_string_value(json_object_get(id, "sentence"));
    if (said) return said;
    int64_t i = json_is_integer(index) ? json_integer_value(index) : c->answers;
    return i >= 0 && i < c->sentences.corpus.n ? c->sentences.corpus.block[i].sentence : NULL;
}

static void add_repairs(Str *out, const AmrRepairs *r) {
    const struct {
        const char *name;
        int64_t n;
    } done[] = {
        {"quotes", r->quotes}, {"parentheses", r->parentheses}, {"ends", r->ends}, {"renamed", r->renamed}};
    int64_t any = 0;
    for (int i = 0; i < COUNT_OF(done); i++) {
        if (done[i].n) str_addf(out, "%s %s=%lld", any ? "" : "# ::repaired", done[i].name, (long long)done[i].n);
        any += done[i].n;
    }
    if (any) str_add_char(out, '\n');
}

static bool is_repaired(const AmrRepairs *r) {
    return r->quotes + r->parentheses + r->ends + r->renamed > 0;
}

static void add_answer(Collect *c, Str *out, const char *sentence, const char *text, int64_t bytes) {
    Penman graph;
    AmrRepairs done;
    Err e = {0};
    str_add(out, "#::snt ");
    for (const char *s = sentence; *s; s++) str_add_char(out, *s == '\n' || *s == '\r' ? ' ' : *s);
    str_add_char(out, '\n');
    if (amr_take(&graph, &done, text, bytes, c->how, &e)) {
        add_repairs(out, &done);
        penman_print(out, &graph, c->layout);
        c->graphs++;
        c->repaired += is_repaired(&done);
        c->repairs.quotes += done.quotes;
        c->repairs.parentheses += done.parentheses;
        c->repairs.ends += done.ends;
        c->repairs.renamed += done.renamed;
    } else {
        str_addf(out, "# ::failed %s\n", e.text);
        amr_print_failure(out, sentence);
        c->failed++;
    }
    str_add(out, "\n\n");
    penman_free(&graph);
}

static bool take_row(Collect *c, Lines *out, const json_t *row, Err *e) {
    const json_t *text = json_object_get(row, "text");
    if (json_integer_value(json_object_get(row, "sample")) > 0) {
        c->other_samples++;
        return true;
    }
    const char *finish = json_string_value(json_object_get(row, "finish")), *sentence = sentence_of(c, row);
    if (!json_is_string(text))
        return fail(e, ERR_FAIL, "the row has no \"text\"; lines as `snug generate` writes them are read here");
    if (!sentence)
        return fail(
            e, ERR_FAIL,
            "the row does not say its sentence. Make the prompts with `snug amr rows --without-answers`, or name "
            "the file of the sentences: --sentences FILE");
    c->cut += finish && !strcmp(finish, "length");
    add_answer(c, &out->text, sentence, json_string_value(text), (int64_t)json_string_length(text));
    c->answers++;
    return lines_pour(out, e);
}

static bool take_rows(Collect *c, Lines *out, const char *path, Err *e) {
    RowReader r;
    json_t *row = NULL;
    if (!dataset_reader_open(&r, path, e)) return false;
    bool ok = true;
    while (ok && (ok = dataset_reader_next(&r, &row, e)) && row) {
        if (!take_row(c, out, row, e)) ok = fail_within(e, "%s:%lld", path, (long long)r.row_line);
        json_decref(row);
    }
    dataset_reader_close(&r);
    return ok;
}

static void say_collected(const Options *o, const Collect *c) {
    const AmrRepairs *r = &c->repairs;
    if (opt_flag(o, OPT_JSON)) {
        json_t *j =
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:I}, s:I}", "answers", (json_int_t)c->answers,
                      "graphs", (json_int_t)c->graphs, "failed", (json_int_t)c->failed, "cut", (json_int_t)c->cut,
                      "repaired", (json_int_t)c->repaired, "repairs", "quotes", (json_int_t)r->quotes,
                      "parentheses", (json_int_t)r->parentheses, "ends", (json_int_t)r->ends, "renamed",
                      (json_int_t)r->renamed, "other_samples", (json_int_t)c->other_samples);
        show_print_json(j);
        json_decref(j);
        return;
    }
    log_line(
        "%lld answers: %lld graphs, %lld failures (in place, as `# ::failed`); %lld answers ended at their "
        "longest",
        (long long)c->answers, (long long)c->graphs, (long long)c->failed, (long long)c->cut);
    if (c->repaired)
        log_line(
            "%lld graphs were repaired: %lld quotes and %lld parentheses closed, %lld ends cut off, %lld "
            "variables renamed",
            (long long)c->repaired, (long long)r->quotes, (long long)r->parentheses, (long long)r->ends,
            (long long)r->renamed);
    if (c->other_samples)
        log_line("%lld further samples of the same prompts were not used", (long long)c->other_samples);
}

bool amr_collect_verb(const Options *o, Err *e) {
    Collect c = {.how = {.last = opt_is(o, OPT_TAKE, "last"), .repair = opt_flag(o, OPT_REPAIR)},
                 .layout = amr_layout(o, PENMAN_INDENTED)};
    const char *sentences = opt_text(o, OPT_SENTENCES);
    Lines out;
    bool ok = amr_json_needs_out(o, e) && (!sentences || read_sentences(&c.sentences, sentences, e));
    ok = ok && lines_begin(&out, opt_text(o, OPT_OUT), opt_flag(o, OPT_OVERWRITE), e);
    ok = ok && lines_end(&out, take_rows(&c, &out, o->positional[1], e), e);
    if (ok) say_collected(o, &c);
    amr_corpus_free(&c.sentences.corpus);
    return ok;
}

/* ---- draw ---- */

bool amr_draw_verb(const Options *o, Err *e) {
    AmrLanguage language = opt_is(o, OPT_LANG, "vi") ? AMR_VIETNAMESE : AMR_ENGLISH;
    AmrPart part = opt_is(o, OPT_PART, "train") ? AMR_TRAIN : AMR_HELD_OUT;
    uint64_t seed = (uint64_t)opt_int(o, OPT_SEED);
    AmrDrawn d = {0};
    Lines out;
    if (!amr_json_needs_out(o, e) || !lines_begin(&out, opt_text(o, OPT_OUT), opt_flag(o, OPT_OVERWRITE), e))
        return false;
    bool ok = true;
    for (int64_t i = 0; ok && !stop_signal && i < opt_int(o, OPT_N); i++) {
        amr_draw(&d, rng_fold(seed, (uint64_t)i), language, part);
        str_addf(&out.text, "#::snt %s\n%s\n\n", str_text(&d.sentence), str_text(&d.graph));
        ok = lines_pour(&out, e);
    }
    if (stop_signal) ok = fail(e, ERR_FAIL, "interrupted: nothing was written to --out");
    amr_drawn_free(&d);
    ok = lines_end(&out, ok, e);
    if (ok && opt_flag(o, OPT_JSON)) {
        json_t *j = json_pack("{s:I}", "blocks", (json_int_t)opt_int(o, OPT_N));
        show_print_json(j);
        json_decref(j);
    }
    return ok;
}
