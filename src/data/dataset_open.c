/* dataset_open.c - files are read into a data set, within the memory it may take.
 *
 * While it is read the set takes what it keeps (piles grow by what they hold), a window with the longest row, what
 * making a sample of that row takes, and the tokenizer's scratch. All of it is known before it is taken:
 * DataOptions.limit_bytes refuses, with file and line, the row or the token that would go beyond. */
#include <string.h>
#include <utf8proc.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "base/work.h"
#include "data/dataset_int.h"

enum { TEXT_BYTES = 1 << 16 };      /* of a plain text, read at a time */
enum { SCRATCH_BYTES = 4 << 20 };   /* the tokenizer's words and parts, the reader's first window, small rows' trees */

typedef struct Opening {
    Dataset *d;
    const DataOptions *o;
    RowMaker maker;
    Keeper keeper;
    RowReader reader;
    DataPart *part;      /* the one that is read */
    bool told;           /* its kind is known */
    int64_t taken;       /* samples of it so far */
    Work work;           /* on the file that is read */
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
                "%s:%lld: the tokens up to here take %s of memory, and %s may be taken for data. Nothing was "
                "loaded. Raise "
                "--budget, or give fewer samples (--max-samples)",
                p->reader.path, (long long)line, units_bytes(kept_bytes(p)).s, units_bytes(p->o->limit_bytes).s);
}

static void count_reading(Opening *p) {
    int64_t words = p->maker.stream ? token_stream_bytes(p->maker.stream) : 0;
    int64_t rows = p->reader.longest_bytes * (1 + (p->maker.settled ? dataset_row_cost(&p->maker) : 0));
    if (p->reader.unpack) rows += UNPACK_MOST_BYTES + p->reader.longest_bytes; /* a window that was doubled */
    p->d->reading_bytes = MAX2(p->d->reading_bytes, SCRATCH_BYTES + rows + words);
}

/* ---- what each part is ---- */

static bool is_plain(DataKind kind, bool has_labels) { return kind == DATA_TEXT || (kind == DATA_IDS && !has_labels); }

static RowMode mode_of(PackMode pack, DataKind kind, bool plain, bool all_text) {
    bool on = pack == PACK_ON || (pack == PACK_AUTO && kind == DATA_TEXT && all_text);
    return !on ? ROWS_DOCUMENTS : plain ? ROWS_STREAM : ROWS_FITTED;
}

/* By the maker, which has just seen the part's first row. */
static void tell_part(Opening *p, DataPart *part) {
    part->kind = p->maker.kind;
    part->mode = mode_of(p->o->pack, part->kind, is_plain(part->kind, p->maker.answer), true);
}

static bool settle(Opening *p, Row *row, Err *e) {
    const RowReader *r = &p->reader;
    p->maker.blocks = r->form == SOURCE_AMR ? r->blocks : NULL;
    if (r->form == SOURCE_TEXT) return dataset_settle_text(&p->maker, e) || fail_within(e, "%s", r->path);
    return dataset_settle_row(&p->maker, row, e) || fail_within(e, "%s:%lld", r->path, (long long)r->row_line);
}

/* ---- corpora on disk ---- */

static bool open_corpus(Opening *p, DataPart *part, Err *e) {
    const DataOptions *o = p->o;
    DataStore *store = p->d->store;
    if (o->max_samples)
        return fail(e, ERR_USAGE,
                    "%s: --max-samples counts samples, and a corpus of tokens has rows. Give --steps", part->path);
    if (o->prompt_template || o->text_field || o->template_mode == TEMPLATE_CHAT)
        return fail(e, ERR_USAGE, "%s: holds tokens; templates and columns were settled when it was prepared",
                    part->path);
    if (o->pack == PACK_OFF || o->pack == PACK_UPDATE)
        return fail(
            e, ERR_USAGE,
            "%s: is a stream of tokens, whose rows are always filled; leave --pack away, or give --pack on",
            part->path);
    CorpusOptions c = {
        .vocab = o->vocab, .eos = o->eos_id, .tokenizer = o->tokenizer ? tokenizer_identity(o->tokenizer) : 0};
    if (!corpus_open(&part->corpus, part->path, &c, e)) return false;
    store->corpus[store->n_corpora++] = part->corpus;
    part->kind = DATA_TEXT;
    part->mode = ROWS_STREAM;
    part->n_tokens = corpus_tokens(part->corpus);
    part->kind_text = mem_strdup(corpus_text(part->corpus));
    return true;
}

/* Looks at the first row of a file. */
static bool peek(Opening *p, DataPart *part, const char *path, Err *e) {
    RowReader *r = &p->reader;
    bool found = true;
    if (!dataset_reader_open_blocks(r, path, p->o->blocks, e)) return false;
    Row *row = MEM_NEW(Row, 1);
    bool ok =
        r->seekable || r->unpack ||
        fail(e, ERR_USAGE, "%s: is a pipe. Several --data are looked at before they are read: give files", path);
    if (ok && r->form != SOURCE_TEXT) {
        set_room(p);
        ok = dataset_reader_row(r, row, &found, e);
    }
    if (ok && !found) ok = fail(e, ERR_FAIL, "%s: holds no samples", path);
    if (ok && settle(p, row, e)) tell_part(p, part);
    else ok = false;
    row_free(row);
    mem_free(row);
    dataset_reader_close(r);
    dataset_maker_reset(&p->maker);
    return ok;
}

/* Texts beside samples are kept as samples are: what an update or a row holds must be of one sort. */
static bool peek_all(Opening *p, const SourceFiles *files, Err *e) {
    Dataset *d = p->d;
    bool all_text = true, on_disk = false;
    for (int i = 0; i < d->n_parts; i++) {
        if (!d->part[i].corpus && !peek(p, &d->part[i], files[i].path[0], e)) return false;
        all_text &= d->part[i].kind == DATA_TEXT;
        on_disk |= d->part[i].corpus != NULL;
    }
    for (int i = 0; i < d->n_parts && !all_text; i++) {
        RowMode filled =
            is_plain(d->part[i].kind, false) ? ROWS_STREAM : ROWS_FITTED; /* rows, as a corpus has them */
        if (p->o->pack == PACK_AUTO) d->part[i].mode = on_disk ? filled : ROWS_DOCUMENTS;
    }
    return true;
}

/* ---- rows ---- */

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

/* The first row of a part says of which kind it is. */
static bool settle_first(Opening *p, Row *row, Err *e) {
    bool amr = p->reader.form == SOURCE_AMR;
    if (p->maker.settled)
        return amr == (p->maker.blocks != NULL) ||
               fail(e, ERR_FAIL,
                    "%s: is %s AMR corpus, and the files before it are %s. Give each kind a --data of its own",
                    p->reader.path, amr ? "an" : "no", amr ? "not" : "of that kind");
    if (!settle(p, row, e)) return false;
    if (!p->told) tell_part(p, p->part);
    p->told = true;
    p->keeper.in_pieces = p->part->kind == DATA_TEXT;
    set_room(p);
    return p->reader.form == SOURCE_TEXT || dataset_reader_room(&p->reader, p->reader.row_bytes, e);
}

static bool take_row(Opening *p, Row *row, Err *e) {
    const RowReader *r = &p->reader;
    if (!settle_first(p, row, e)) return false;
    dataset_keep_begin(&p->keeper);
    bool text = p->part->kind == DATA_TEXT;
    if (text ? make_text(p, row, e) : dataset_make_sample(&p->maker, &p->keeper.sample, row, e)) return true;
    bool told = e->code == ERR_BUDGET && str_starts(e->text, r->path);
    return told ? false : fail_within(e, "%s:%lld", r->path, (long long)r->row_line);
}

static bool is_enough(const Opening *p) { return p->o->max_samples && p->taken >= p->o->max_samples; }

static bool read_rows(Opening *p, Err *e) {
    RowReader *r = &p->reader;
    Row *row = MEM_NEW(Row, 1);
    bool ok = true, found;
    while (ok && !is_enough(p)) {
        set_room(p);
        if (!(ok = dataset_reader_row(r, row, &found, e)) || !found) break;
        ok = take_row(p, row, e);
        row_free(row);
        if (!ok) break;
        dataset_keep_end(&p->keeper);
        p->taken++;
        ok = check_kept(p, 0, r->row_line, e) && work_on(&p->work, dataset_reader_done(r), e);
    }
    mem_free(row);
    return ok;
}

/* ---- plain text ---- */

/* Whole characters at the beginning of a piece; less than 0: -1 less the place of a byte that is not UTF-8. */
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

/* Pieces of the file, each with what the one before left of a character in front of it. */
static bool take_text(Opening *p, Str *piece, Err *e) {
    RowReader *r = &p->reader;
    int64_t bytes = 1;
    for (const char *text; bytes > 0;) {
        if (!dataset_reader_text(r, &text, &bytes, e)) return false;
        str_add_bytes(piece, text, bytes);
        int64_t good = check_utf8(str_text(piece), piece->len, bytes == 0, &r->line);
        if (good < 0)
            return fail(e, ERR_FAIL, "%s:%lld: byte 0x%02x is not UTF-8. Convert the file to UTF-8 first (iconv)",
                        r->path, (long long)r->line, (unsigned char)piece->data[-1 - good]);
        if (!dataset_text_more(&p->maker, &p->keeper.sample, str_text(piece), good, e))
            return fail_within(e, "%s:%lld", r->path, (long long)r->line);
        dataset_keep_some(&p->keeper);
        if (!check_kept(p, 0, r->line, e) || !work_on(&p->work, dataset_reader_done(r), e)) return false;
        set_room(p);
        piece->len -= good;
        if (piece->len) memmove(piece->data, piece->data + good, (size_t)piece->len);
    }
    return true;
}

static bool read_text(Opening *p, Err *e) {
    RowMaker *m = &p->maker;
    Sample *s = &p->keeper.sample;
    Str piece = {0};
    if (!settle_first(p, NULL, e)) return false;
    set_room(p);
    dataset_keep_begin(&p->keeper);
    bool ok = dataset_text_begin(m, s, e) && take_text(p, &piece, e) && dataset_text_end(m, s, e);
    if (ok) dataset_keep_end(&p->keeper);
    else if (!str_starts(e->text, p->reader.path)) fail_within(e, "%s", p->reader.path);
    p->taken++;
    str_free(&piece);
    return ok;
}

/* ---- files ---- */

static bool read_file(Opening *p, const char *path, Err *e) {
    RowReader *r = &p->reader;
    if (!dataset_reader_open_blocks(r, path, p->o->blocks, e)) return false;
    FileFacts before = file_facts(r->fd);
    work_begin(&p->work, WORK_BYTES, before.bytes, "reading and tokenising %s", path);
    bool ok = r->form == SOURCE_TEXT ? read_text(p, e) : read_rows(p, e);
    work_end(&p->work);
    FileFacts after = file_facts(r->fd);
    bool is_file = before.at >= 0; /* a pipe changes while it is read */
    if (ok && is_file && (before.bytes != after.bytes || before.changed_ns != after.changed_ns))
        ok = fail(e, ERR_FAIL, "%s: was changed while it was read", path);
    count_reading(p);
    dataset_reader_close(r);
    return ok;
}

/* Every part that was named gives something, so that none is left out without a word. */
static bool check_anything_left(const DataPart *part, int64_t seq, Err *e) {
    const DataReport *r = &part->report;
    if (part->n_docs) return true;
    if (!r->dropped) return fail(e, ERR_FAIL, "%s: holds no samples", part->path);
    if (r->unanswered == r->dropped)
        return fail(e, ERR_FAIL,
                    "%s: no sample is left of %lld: in none of the conversations is a turn the assistant's, so "
                    "there is nothing to "
                    "learn. Answers need \"role\": \"assistant\"",
                    part->path, (long long)r->dropped);
    if ((part->kind == DATA_TEXT || part->kind == DATA_IDS) && r->longest < 2)
        return fail(e, ERR_FAIL, "%s: no sample is left of %lld: no %s, so nothing can be predicted", part->path,
                    (long long)r->dropped, part->kind == DATA_TEXT ? "text has two tokens" : "row has two ids");
    return fail(e, ERR_FAIL,
                "%s: no sample is left of %lld: answers are empty, or prompts leave no room in %lld tokens (the "
                "longest sample has %lld). Is --seq large enough?",
                part->path, (long long)r->dropped, (long long)seq, (long long)r->longest);
}

static bool read_part(Opening *p, DataPart *part, const SourceFiles *files, bool told, Err *e) {
    DataStore *store = p->d->store;
    p->part = p->keeper.part = part;
    p->told = told;
    p->taken = 0;
    part->first_doc = store->doc.n;
    part->first_token = store->token.n;
    dataset_maker_reset(&p->maker);
    for (int64_t i = 0; i < files->n && !is_enough(p); i++)
        if (!read_file(p, files->path[i], e)) return false;
    part->n_docs = store->doc.n - part->first_doc;
    part->n_tokens = store->token.n - part->first_token;
    if (!check_anything_left(part, p->d->seq, e)) return false;
    Str text = {0};
    str_add(&text, str_text(&p->maker.kind_text));
    if (files->n > 1) str_addf(&text, ", %lld files", (long long)files->n);
    if (files->passed) str_addf(&text, ", %lld others passed over", (long long)files->passed);
    part->kind_text = mem_strdup(str_text(&text));
    str_free(&text);
    return true;
}

/* ---- the set ---- */

static void finish(Dataset *d, PackMode pack) {
    DataStore *store = d->store;
    bool documents = true;
    for (int i = 0; i < d->n_parts; i++) documents &= d->part[i].mode == ROWS_DOCUMENTS;
    d->by_update = documents && pack != PACK_OFF;
    pile_add(&store->doc, &(Doc){.begin = store->token.n}, 1);
    pile_shrink(&store->token);
    pile_shrink(&store->doc);
    dataset_place(d);
    dataset_count(d);
}

static bool check_weights(const DataFile *file, int n, Err *e) {
    for (int i = 0; i < n; i++) {
        if (file[i].weight < 0 || file[i].weight > 1e9)
            return fail(e, ERR_USAGE, "%s: its weight %g is not between 0 and 1e9", file[i].path, file[i].weight);
        if ((file[i].weight > 0) != (file[0].weight > 0))
            return fail(e, ERR_USAGE, "%s has a weight and %s has none: give every --data one, or none",
                        file[file[0].weight > 0 ? 0 : i].path, file[file[0].weight > 0 ? i : 0].path);
    }
    return true;
}

static Dataset *new_set(const DataFile *file, int n, const DataOptions *o) {
    Dataset *d = MEM_NEW(Dataset, 1);
    Str name = {0};
    *d = (Dataset){.seq = o->seq,
                   .seed = o->seed,
                   .shuffle = o->shuffle,
                   .joined = o->join_documents,
                   .owns_store = true,
                   .n_parts = n};
    d->part = MEM_NEW(DataPart, n);
    d->store = MEM_NEW(DataStore, 1);
    d->store->sets = 1;
    pile_init(&d->store->token, sizeof(uint32_t));
    pile_init(&d->store->doc, sizeof(Doc));
    for (int i = 0; i < n; i++) {
        d->part[i].path = mem_strdup(file[i].path);
        d->part[i].weight = file[i].weight;
        str_addf(&name, "%s%s", i ? ", " : "", file[i].path);
    }
    d->name = mem_strdup(str_text(&name));
    str_free(&name);
    return d;
}

static bool read_parts(Opening *p, SourceFiles *files, Err *e) {
    Dataset *d = p->d;
    d->store->corpus = MEM_NEW(Corpus *, d->n_parts);
    for (int i = 0; i < d->n_parts; i++)
        if (corpus_is(d->part[i].path) ? !open_corpus(p, &d->part[i], e)
                                       : !source_files(&files[i], d->part[i].path, e))
            return false;
    bool several = d->n_parts > 1;
    if (several && !peek_all(p, files, e)) return false;
    for (int i = 0; i < d->n_parts; i++)
        if (!d->part[i].corpus && !read_part(p, &d->part[i], &files[i], several, e)) return false;
    return true;
}

bool dataset_open_files(Dataset **out, const DataFile *file, int n, const DataOptions *o, Err *e) {
    *out = NULL;
    Opening p = {.o = o, .reader = {.fd = -1}};
    if (!check_options(o, e) || !check_weights(file, n, e) || !dataset_maker_init(&p.maker, o, e)) return false;
    p.d = p.keeper.d = new_set(file, n, o);
    SourceFiles *files = MEM_NEW(SourceFiles, n);
    bool ok = read_parts(&p, files, e);
    for (int i = 0; i < n; i++) source_files_free(&files[i]);
    mem_free(files);
    mem_free(p.keeper.sample.token);
    if (ok) finish(p.d, o->pack);
    dataset_maker_free(&p.maker);
    if (ok) *out = p.d;
    else dataset_close(p.d);
    mem_trim(); /* what reading took is nobody's now */
    return ok;
}

bool dataset_open(Dataset **out, const char *path, const DataOptions *o, Err *e) {
    return dataset_open_files(out, &(DataFile){.path = path}, 1, o, e);
}
