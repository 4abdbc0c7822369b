/* amr_make.c - the verbs of snug amr that make a file: rows to train on or to ask, blocks from a model's answers,
 * drawn sentences. */
#include <string.h>

#include "amr/collect.h"
#include "base/json.h"
#include "amr/draw.h"
#include "amr/prompt.h"
#include "base/log.h"
#include "base/rng.h"
#include "cli/amr_verbs.h"
#include "cli/lines.h"
#include "data/rows.h"
#include "data/source.h"

/* ---- sentences: those of blocks, or one a line ---- */

/* The next line that is not empty, from its first letter; *number counts the lines up to it. NULL: none is left. */
static const char *next_sentence(const char **line, int64_t *number) {
    while (**line) {
        const char *first = *line + strspn(*line, " \t\r");
        *line += strcspn(*line, "\n");
        *line += **line == '\n';
        ++*number;
        if (*first && *first != '\n') return first;
    }
    return NULL;
}

bool amr_input_sentences(AmrInput *in, const char *path, Err *e) {
    Str text = {0}, blocks = {0};
    if (!source_read_text(path, &text, 0, e)) return false;
    const char *begin = str_text(&text) + str_mark(str_text(&text), text.len), *line = begin, *one;
    bool plain = !source_is_amr(str_text(&text), text.len);
    int64_t number = 0;
    bool ok = !plain || source_check_lines(path, str_text(&text), text.len, e);
    while (ok && plain && (one = next_sentence(&line, &number)))
        str_addf(&blocks, "# ::snt %.*s\n\n", (int)strcspn(one, "\r\n"), one);
    ok = ok && amr_corpus_parse(&in->corpus, plain ? &blocks : &text, path, 1, e);
    in->end = in->corpus.n;
    line = begin, number = 0;
    for (int64_t i = 0; ok && plain && i < in->end && next_sentence(&line, &number); i++)
        in->corpus.block[i].line = number; /* where it stands in the file, for messages */
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

static void say_rows(const RowCounts *n) {
    log_line("%lld rows", (long long)n->rows);
    if (n->invalid)
        log_warn("%lld blocks were left out: their graph is not valid (`snug amr check` names them)",
                 (long long)n->invalid);
    if (n->silent) log_warn("%lld blocks were left out: they have no sentence", (long long)n->silent);
}

bool amr_rows_verb(const Options *o, AmrInput *in, Err *e) {
    AmrRowStyle style = {.layout = amr_layout(o, PENMAN_ONE_LINE),
                         .chat = opt_flag(o, OPT_MESSAGES),
                         .without_answer = opt_flag(o, OPT_WITHOUT_ANSWERS)};
    AmrPrompt p = {0};
    RowCounts n = {0};
    Lines out;
    bool ok = amr_prompt_choose(&p, &style, opt_text(o, OPT_AMR_PROMPT), e) &&
              (style.without_answer ? amr_input_sentences(in, o->positional[1], e)
                                    : amr_corpus_read(&in->corpus, o->positional[1], e));
    if (ok) amr_input_choose(in, o);
    ok = ok && lines_begin(&out, opt_text(o, OPT_OUT), opt_flag(o, OPT_OVERWRITE), e);
    ok = ok && lines_end(&out, write_rows(&out, &n, in, &p, style, e), e);
    if (ok && !opt_flag(o, OPT_JSON)) say_rows(&n);
    ok = ok && amr_finish(JSON_COUNTS({"rows", n.rows}, {"invalid", n.invalid}, {"without_sentence", n.silent}),
                          &in->corpus, o, e);
    amr_prompt_free(&p);
    return ok;
}

/* ---- collect ---- */

static bool take_rows(AmrCollect *c, Lines *out, const char *path, Err *e) {
    RowReader r;
    json_t *row = NULL;
    if (!dataset_reader_open(&r, path, e)) return false;
    bool ok = true;
    while (ok && (ok = dataset_reader_next(&r, &row, e)) && row) {
        if (!amr_collect_row(c, &out->text, row, e) || !lines_pour(out, e))
            ok = fail_within(e, "%s:%lld", path, (long long)r.row_line);
        json_decref(row);
    }
    dataset_reader_close(&r);
    return ok;
}

static void say_collected(const AmrCollect *c) {
    Str text = {0};
    amr_collect_report(&text, c);
    log_str(&text);
}

AmrCollect amr_collect_by(const Options *o) {
    return (AmrCollect){.how = {.last = opt_is(o, OPT_TAKE, "last"), .repair = opt_flag(o, OPT_REPAIR)},
                        .layout = amr_layout(o, PENMAN_INDENTED)};
}

bool amr_collect_verb(const Options *o, AmrInput *sentences, Err *e) {
    AmrCollect c = amr_collect_by(o);
    const char *path = opt_text(o, OPT_SENTENCES);
    Lines out;
    if (path && !amr_input_sentences(sentences, path, e)) return false;
    if (path) c.sentences = &sentences->corpus;
    if (!lines_begin(&out, opt_text(o, OPT_OUT), opt_flag(o, OPT_OVERWRITE), e) ||
        !lines_end(&out, take_rows(&c, &out, o->positional[1], e), e))
        return false;
    if (!opt_flag(o, OPT_JSON)) say_collected(&c);
    if (path && c.answers < sentences->corpus.n)
        log_warn("%s: %lld of %lld sentences have no answer, and so no block", path,
                 (long long)(sentences->corpus.n - c.answers), (long long)sentences->corpus.n);
    return amr_finish(amr_collect_json(&c), &sentences->corpus, o, e);
}

/* ---- draw ---- */

bool amr_draw_verb(const Options *o, AmrInput *none, Err *e) {
    AmrLanguage language = opt_is(o, OPT_LANG, "vi") ? AMR_VIETNAMESE : AMR_ENGLISH;
    AmrPart part = opt_is(o, OPT_PART, "train") ? AMR_TRAIN : AMR_HELD_OUT;
    uint64_t seed = (uint64_t)opt_int(o, OPT_SEED);
    AmrDrawn d = {0};
    Lines out;
    if (!lines_begin(&out, opt_text(o, OPT_OUT), opt_flag(o, OPT_OVERWRITE), e)) return false;
    bool ok = true;
    for (int64_t i = 0; ok && !stop_signal && i < opt_int(o, OPT_N); i++) {
        amr_draw(&d, rng_fold(seed, (uint64_t)i), language, part);
        str_addf(&out.text, "#::snt %s\n%s\n\n", str_text(&d.sentence), str_text(&d.graph));
        ok = lines_pour(&out, e);
    }
    if (stop_signal) ok = fail(e, ERR_FAIL, "interrupted: nothing was written to --out");
    amr_drawn_free(&d);
    ok = lines_end(&out, ok, e);
    return ok && amr_finish(json_pack("{s:I}", "blocks", (json_int_t)opt_int(o, OPT_N)), NULL, o, e);
}
