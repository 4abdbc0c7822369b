/* dataset_open.c - a file is read into a data set, within the memory it may take.
 *
 * While it is read the set takes what it keeps (piles grow by what they hold), a window with the longest row, what making
 * a sample of that row takes, and the tokenizer's scratch. All of it is known before it is taken: DataOptions.limit_bytes
 * refuses, with file and line, the row or the token that would go beyond. */
#include <string.h>
#include <utf8proc.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "data/dataset_int.h"

enum { TEXT_BYTES = 1 << 16 };      /* of a plain text, read at a time */
enum { SCRATCH_BYTES = 4 << 20 };   /* the tokenizer's words and parts, the reader's first window, small rows' trees */

static const char byte_order_mark[] = "\xef\xbb\xbf";

typedef struct Opening {
    Dataset *d;
    const DataOptions *o;
    RowMaker maker;
    Keeper keeper;
    RowReader reader;
    bool mode_settled;
} Opening;

static bool check_options(const DataOptions *o, Err *e) {
    if (o->seq < 2 || o->seq > INT32_MAX)
        return fail(e, ERR_USAGE, "rows of %lld tokens: at least 2 are needed", (long long)o->seq);
    if (o->vocab < 1 || o->vocab > INT32_MAX)
        return fail(e, ERR_USAGE, "a vocabulary of %lld ids is out of range", (long long)o->vocab);
    if (o->eos_id >= o->vocab)
        return fail(e, ERR_FAIL, "the end-of-text id %d is not below the model's vocabulary of %lld ids",
                    o->eos_id, (long long)o->vocab);
    if (o->answer_template && !o->prompt_template)
        return fail(e, ERR_USAGE,
                    "an answer template needs a prompt template (it may be empty: --prompt-template '')");
    return true;
}

/* ---- memory ---- */

static int64_t kept_bytes(const Opening *p) {
    return pile_bytes(&p->d->store->token) + pile_bytes(&p->d->store->doc) + (int64_t)sizeof(Dataset);
}

/* What one row may take, after what is kept. */
static int64_t left_bytes(const Opening *p) {
    return p->o->limit_bytes ? MAX2(p->o->limit_bytes - kept_bytes(p) - SCRATCH_BYTES, 1) : 0;
}

static void set_room(Opening *p) {
    p->reader.left_bytes = left_bytes(p);
    p->reader.cost = p->maker.settled ? dataset_row_cost(&p->maker) : 0;
    if (p->maker.stream) token_stream_limit(p->maker.stream, p->reader.left_bytes);
}

/* What is kept, beside a row that is still held. */
static bool check_kept(const Opening *p, int64_t row_bytes, int64_t line, Err *e) {
    if (!p->o->limit_bytes || kept_bytes(p) + row_bytes + SCRATCH_BYTES <= p->o->limit_bytes) return true;
    return fail(e, ERR_BUDGET,
                "%s:%lld: the tokens up to here take %s of memory, and %s may be taken for data. Nothing was loaded. Raise "
                "--budget, or give fewer samples (--max-samples)",
                p->d->path, (long long)line, units_bytes(kept_bytes(p)).s, units_bytes(p->o->limit_bytes).s);
}

static void count_reading(Opening *p) {
    int64_t words = p->maker.stream ? token_stream_bytes(p->maker.stream) : 0;
    int64_t rows = p->reader.longest_bytes * (1 + (p->maker.settled ? dataset_row_cost(&p->maker) : 0));
    p->d->reading_bytes = SCRATCH_BYTES + rows + words;
}

/* ---- rows ---- */

static void settle_mode(Opening *p) {
    bool text = p->maker.kind == DATA_TEXT, plain = text || (p->maker.kind == DATA_IDS && !p->maker.answer);
    bool on = p->o->pack == PACK_ON || (p->o->pack == PACK_AUTO && text);
    p->d->mode = !on ? ROWS_DOCUMENTS : plain ? ROWS_STREAM : ROWS_FITTED;
    p->keeper.in_pieces = text;
    p->mode_settled = true;
}

static bool make_text(Opening *p, Row *row, Err *e) {
    RowMaker *m = &p->maker;
    Sample *s = &p->keeper.sample;
    int64_t bytes;
    const char *text;
    if (!dataset_need_text(&text, &bytes, row, m->main, e) || !dataset_text_begin(m, s, e)) return false;
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = MIN2(bytes - at, TEXT_BYTES);
        if (!dataset_text_more(m, s, text + at, n, e)) return false;
        dataset_keep_some(&p->keeper);
        if (!check_kept(p, p->reader.row_bytes, p->reader.row_line, e)) return false;
    }
    return dataset_text_end(m, s, e);
}

static bool take_row(Opening *p, Row *row, Err *e) {
    RowMaker *m = &p->maker;
    const RowReader *r = &p->reader;
    bool ok = m->settled || dataset_settle_row(m, row, e), first = !p->mode_settled;
    if (ok && first) {
        settle_mode(p);
        set_room(p);
        if (!dataset_reader_room(r, r->row_bytes, e)) return false;
    }
    dataset_keep_begin(&p->keeper);
    ok = ok && (m->kind == DATA_TEXT ? make_text(p, row, e) : dataset_make_sample(m, &p->keeper.sample, row, e));
    bool told = e->code == ERR_BUDGET && str_starts(e->text, r->path);
    return ok || (!told && fail_within(e, "%s:%lld", r->path, (long long)r->row_line));
}

static bool read_rows(Opening *p, Err *e) {
    RowReader *r = &p->reader;
    Row *row = MEM_NEW(Row, 1);
    bool ok = dataset_reader_open(r, p->d->path, e), found = ok;
    for (int64_t n = 0; ok && (!p->o->max_samples || n < p->o->max_samples); n++) {
        set_room(p);
        if (!(ok = dataset_reader_row(r, row, &found, e)) || !found) break;
        ok = take_row(p, row, e);
        row_free(row);
        if (!ok) break;
        dataset_keep_end(&p->keeper);
        ok = check_kept(p, 0, r->row_line, e);
    }
    count_reading(p);
    if (r->fd >= 0) dataset_reader_close(r);
    mem_free(row);
    return ok;
}

/* ---- plain text ---- */

/* Bytes of a piece that are whole characters; -1: one of them is not UTF-8. line: counted on, up to it. */
static int64_t check_utf8(const char *text, int64_t n, bool last, int64_t *line) {
    int64_t at = 0;
    while (at < n) {
        utf8proc_int32_t c;
        utf8proc_ssize_t bytes = utf8proc_iterate((const utf8proc_uint8_t *)text + at, n - at, &c);
        if (bytes <= 0 && !last && n - at < 4) break; /* perhaps cut */
        if (bytes <= 0) return -1 - at;
        *line += c == '\n';
        at += bytes;
    }
    return at;
}

static bool take_text(Opening *p, int fd, char *window, Err *e) {
    RowMaker *m = &p->maker;
    Sample *s = &p->keeper.sample;
    int64_t held = 0, line = 1, n = 1;
    for (bool first = true; n > 0; first = false) {
        if (!file_read_some(fd, window + held, &n, TEXT_BYTES - held, p->d->path, e)) return false;
        held += n;
        int64_t skip = first && held >= 3 && !memcmp(window, byte_order_mark, 3) ? 3 : 0;
        int64_t good = check_utf8(window + skip, held - skip, n == 0, &line);
        if (good < 0)
            return fail(e, ERR_FAIL, "%s:%lld: byte 0x%02x is not UTF-8. Convert the file to UTF-8 first (iconv)", p->d->path,
                        (long long)line, (unsigned char)window[skip - 1 - good]);
        if (!dataset_text_more(m, s, window + skip, good, e)) return fail_within(e, "%s:%lld", p->d->path, (long long)line);
        dataset_keep_some(&p->keeper);
        if (!check_kept(p, 0, line, e)) return false;
        set_room(p);
        held -= skip + good;
        memmove(window, window + skip + good, (size_t)held);
    }
    return true;
}

static bool read_text(Opening *p, Err *e) {
    RowMaker *m = &p->maker;
    int fd = -1;
    char *window = mem_alloc(TEXT_BYTES);
    bool ok = (dataset_settle_text(m, e) || fail_within(e, "%s", p->d->path)) && file_open_read(p->d->path, &fd, e);
    if (ok) settle_mode(p);
    set_room(p);
    dataset_keep_begin(&p->keeper);
    ok = ok && (dataset_text_begin(m, &p->keeper.sample, e) || fail_within(e, "%s", p->d->path)) &&
         take_text(p, fd, window, e) &&
         (dataset_text_end(m, &p->keeper.sample, e) || fail_within(e, "%s", p->d->path));
    if (ok) dataset_keep_end(&p->keeper);
    count_reading(p);
    file_close(fd);
    mem_free(window);
    return ok;
}

/* ---- the set ---- */

static bool check_anything_left(const Dataset *d, Err *e) {
    if (d->report.samples) return true;
    if (!d->report.dropped) return fail(e, ERR_FAIL, "%s: holds no samples", d->path);
    return fail(e, ERR_FAIL,
                "%s: no sample is left of %lld: answers are empty, or prompts leave no room in %lld tokens (the "
                "longest sample has %lld). Is --seq large enough?",
                d->path, (long long)d->report.dropped, (long long)d->seq, (long long)d->report.longest);
}

static void finish(Opening *p) {
    Dataset *d = p->d;
    DataStore *store = d->store;
    d->n_docs = store->doc.n;
    d->n_tokens = store->token.n;
    pile_add(&store->doc, &(Doc){.begin = store->token.n}, 1);
    pile_shrink(&store->token);
    pile_shrink(&store->doc);
    d->kind_text = mem_strdup(str_text(&p->maker.kind_text));
    d->report.kind = p->maker.kind;
    d->report.kind_text = d->kind_text;
    dataset_place(d);
    dataset_count(d);
}

static Dataset *new_set(const char *path, const DataOptions *o) {
    Dataset *d = MEM_NEW(Dataset, 1);
    *d = (Dataset){.path = mem_strdup(path), .seq = o->seq, .seed = o->seed, .shuffle = o->shuffle,
                   .joined = o->join_documents, .owns_store = true};
    d->store = MEM_NEW(DataStore, 1);
    d->store->sets = 1;
    pile_init(&d->store->token, sizeof(uint32_t));
    pile_init(&d->store->doc, sizeof(Doc));
    return d;
}

bool dataset_open(Dataset **out, const char *path, const DataOptions *o, Err *e) {
    *out = NULL;
    Opening p = {.o = o, .reader = {.fd = -1}};
    if (!check_options(o, e) || !dataset_maker_init(&p.maker, o, e)) return false;
    p.d = p.keeper.d = new_set(path, o);
    bool ok = str_ends(path, ".txt") ? read_text(&p, e) : read_rows(&p, e);
    mem_free(p.keeper.sample.token);
    if (ok) finish(&p);
    ok = ok && check_anything_left(p.d, e);
    dataset_maker_free(&p.maker);
    if (ok) *out = p.d;
    else dataset_close(p.d);
    mem_trim(); /* what reading took is nobody's now */
    return ok;
}
