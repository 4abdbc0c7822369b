/* prepare.c - who reads, who tokenises and who writes in a round of a preparation.
 *
 * A pipeline of three rounds: the rows of one are read, those of another tokenised, the tokens of a third written.
 * Reading and writing are one tile of the team's work, every block of rows is another, so input and output keep their
 * order and need no lock. A text file is one document; its pieces follow each other, one per round. */
#include "data/prepare.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/threads.h"
#include "data/prepare_int.h"

enum {
    BLOCK_BYTES = 1 << 20,
    ROUNDS = 3,
    BLOCKS_A_THREAD = 2,
    SHARD_DOCUMENTS = 1 << 20 /* its index stays in memory until it is closed */
};

typedef struct RawRow {
    int64_t at, bytes; /* in the block's text */
    int64_t line;
    PreparePlace after; /* once it is done */
    int64_t ids_end;    /* filled by the tokeniser: its tokens end here */
} RawRow;

typedef struct Block {
    int64_t input;
    Str text;
    RawRow *row; /* owns */
    int64_t n, capacity;
    bool is_text;      /* a piece of a document, not rows; row[0] is it */
    bool begins, ends; /* a text: with this piece */
    TokenIds ids;
    Err err;
} Block;

typedef struct Round {
    Block *block; /* owns: [Prepare.blocks] */
    int n;
} Round;

typedef struct EncodeState { /* of one thread */
    RowMaker maker;
    Sample sample;
    Row *row;
} EncodeState;

typedef struct InputFormat { /* what is known of an input while blocks of it are under way */
    const char *field;     /* the column of its text */
    RowReader table;       /* names and separator of a table's columns */
    SourceForm form;
} InputFormat;

typedef struct Prepare {
    const PrepareOptions *o;
    PrepareJob job;
    PrepareCounts *done;
    DataOptions data;
    EncodeState *encoder; /* owns: one a thread, one for a text that goes on, one for first rows */
    int threads, blocks;
    Round round[ROUNDS], *reads, *tokenises, *writes;
    InputFormat *format; /* owns: one an input */
    RowReader reader;
    bool open;     /* it is */
    bool in_text;  /* the reader stands inside a text */
    int64_t input; /* that is read, or next */
    ShardOut shard;
    bool writing;
    int64_t bytes_before; /* of inputs that are read to their end */
    Err err;              /* of reading or writing */
} Prepare;

/* ---- reading ---- */

static bool settle_input(Prepare *p, Err *e) {
    RowReader *r = &p->reader;
    InputFormat *s = &p->format[p->input];
    RowReader first;
    bool found;
    s->form = r->form;
    if (r->form == SOURCE_TEXT) return true;
    if (!dataset_reader_open(&first, r->path, e)) return false;
    EncodeState *encoder = &p->encoder[p->threads + 1];
    dataset_maker_reset(&encoder->maker);
    bool ok = dataset_reader_row(&first, encoder->row, &found, e);
    if (ok && found)
        ok = dataset_settle_row(&encoder->maker, encoder->row, e) ||
             fail_within(e, "%s:%lld", r->path, (long long)first.row_line);
    if (found && encoder->maker.kind_text.len &&
        encoder->maker.kind != DATA_TEXT) /* whatever else it would lack */
        ok = fail(e, ERR_FAIL,
                  "%s: its rows are %s. Shards hold plain text: name its column with --text-field, or train on "
                  "the file itself",
                  r->path, str_text(&encoder->maker.kind_text));
    s->field = ok && found ? encoder->maker.main : NULL;
    row_free(encoder->row);
    if (ok && r->form == SOURCE_TABLE) {
        s->table = (RowReader){.path = p->job.input[p->input].path,
                               .fd = -1,
                               .name = first.name,
                               .n_names = first.n_names,
                               .separator = first.separator,
                               .header = first.header};
        first.name = NULL; /* taken over */
        first.header = (Str){0};
    }
    dataset_reader_close(&first);
    return ok;
}

static bool open_input(Prepare *p, Err *e) {
    PrepareInput *in = &p->job.input[p->input];
    if (!dataset_reader_open(&p->reader, in->path, e)) return false;
    p->open = true;
    p->in_text = false;
    if (!settle_input(p, e)) return false;
    bool resumes = p->job.place.input == p->input && p->job.place.at > 0;
    return !resumes || dataset_reader_skip(&p->reader, p->job.place.at, p->job.place.line, e);
}

static bool close_input(Prepare *p, Err *e) {
    PrepareInput *in = &p->job.input[p->input];
    FileFacts now = file_facts(p->reader.fd);
    p->done->longest_bytes = MAX2(p->done->longest_bytes, p->reader.longest_bytes);
    p->done->unpacks |= p->reader.unpack != NULL;
    dataset_reader_close(&p->reader);
    p->open = false;
    p->input++;
    p->bytes_before += in->facts.bytes;
    return (now.bytes == in->facts.bytes && now.changed_ns == in->facts.changed_ns) ||
           fail(e, ERR_FAIL, "%s: was changed while it was read", in->path);
}

static void add_row(Block *b, int64_t at, int64_t bytes, int64_t line, PreparePlace after) {
    b->row = mem_grow(b->row, &b->capacity, b->n + 1, sizeof *b->row);
    b->row[b->n++] = (RawRow){.at = at, .bytes = bytes, .line = line, .after = after};
}

/* Rows of the open input until the block is full, or the input ends: then *more is false. */
static bool read_rows(Prepare *p, Block *b, bool *more, Err *e) {
    RowReader *r = &p->reader;
    *more = true;
    while (*more && b->text.len < BLOCK_BYTES) {
        char *text;
        int64_t bytes;
        if (!dataset_reader_raw(r, &text, &bytes, e)) return false;
        *more = bytes >= 0;
        if (!*more) break;
        add_row(b, b->text.len, bytes, r->row_line, (PreparePlace){p->input, dataset_reader_at(r), r->line});
        str_add_bytes(&b->text, text, bytes);
        str_add_char(&b->text, '\n'); /* the place of a text's closing zero, where the row is a table's */
    }
    return true;
}

/* Whole characters at the end of a piece: those of a cut one wait for the next. */
static int64_t cut_character(const char *text, int64_t n) {
    for (int64_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)text[n - back];
        if ((c & 0xc0) == 0x80) continue;
        int need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return need > back ? n - back : n;
    }
    return n;
}

static bool read_text(Prepare *p, Block *b, bool *more, Err *e) {
    RowReader *r = &p->reader;
    int64_t bytes = 1;
    b->is_text = true;
    b->begins = !p->in_text;
    str_add_bytes(&b->text, str_text(&r->scratch), r->scratch.len); /* what was cut before */
    str_clear(&r->scratch);
    for (const char *text; b->text.len < BLOCK_BYTES && bytes > 0;) {
        if (!dataset_reader_text(r, &text, &bytes, e)) return false;
        str_add_bytes(&b->text, text, bytes);
    }
    b->ends = bytes == 0;
    int64_t whole = b->ends ? b->text.len : cut_character(str_text(&b->text), b->text.len);
    str_add_bytes(&r->scratch, b->text.data ? b->text.data + whole : "", b->text.len - whole);
    b->text.len = whole;
    add_row(b, 0, whole, 1, (PreparePlace){p->input + 1, 0, 0});
    p->in_text = !b->ends;
    *more = !b->ends;
    return true;
}

static Block *next_block(Prepare *p, Round *round) {
    Block *b = &round->block[round->n++];
    b->input = p->input;
    b->n = b->ids.n = 0;
    b->is_text = b->begins = b->ends = false;
    b->err = (Err){0};
    str_clear(&b->text);
    return b;
}

/* Blocks for the next round. A piece of a text is the last one of its round, the text's end too: all pieces share one
 * encoder, and the blocks of a round are tokenised at the same time. */
static bool read_round(Prepare *p, Round *round, Err *e) {
    round->n = 0;
    while (round->n < p->blocks && p->input < p->job.n_inputs) {
        bool more = false;
        if (!p->open && !open_input(p, e)) return false;
        Block *b = next_block(p, round);
        bool text = p->format[p->input].form == SOURCE_TEXT;
        if (!(text ? read_text : read_rows)(p, b, &more, e)) return false;
        if (!more && !close_input(p, e)) return false;
        if (!b->n) round->n--;
        if (text && !(b->begins && b->ends)) break;
    }
    return true;
}

/* ---- tokenising ---- */

static bool check_utf8(const Block *b, const char *path, Err *e) {
    const char *text = str_text(&b->text);
    for (int64_t at = 0, n; at < b->text.len; at += n) {
        utf8proc_int32_t c;
        if ((unsigned char)text[at] < 0x80)
            n = 1;
        else
            n = utf8proc_iterate((const utf8proc_uint8_t *)text + at, b->text.len - at, &c);
        if (n <= 0)
            return fail(e, ERR_FAIL, "%s: byte 0x%02x is not UTF-8. Convert the file to UTF-8 first (iconv)", path,
                        (unsigned char)text[at]);
    }
    return true;
}

static void take_sample(Block *b, Sample *s) {
    for (int64_t i = 0; i < s->n; i++) token_ids_add(&b->ids, (int32_t)(s->token[i] & ~SCORED));
    s->n = 0;
}

static bool speak_text(EncodeState *s, Block *b, const char *path, Err *e) {
    if (!check_utf8(b, path, e)) return false;
    if (b->begins && !dataset_text_begin(&s->maker, &s->sample, e)) return false;
    const char *text = str_text(&b->text);
    int64_t mark = b->begins ? str_mark(text, b->text.len) : 0;
    if (!dataset_text_more(&s->maker, &s->sample, text + mark, b->text.len - mark, e)) return false;
    if (b->ends && !dataset_text_end(&s->maker, &s->sample, e)) return false;
    take_sample(b, &s->sample);
    b->row[0].ids_end = b->ids.n;
    return true;
}

static bool parse_row(EncodeState *s, const InputFormat *format, char *text, int64_t bytes, int64_t line, Err *e) {
    if (format->form == SOURCE_TABLE) return dataset_table_row(&format->table, s->row, text, bytes, line, e);
    if (row_scan(s->row, text, bytes)) return true;
    json_error_t at;
    json_t *tree = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at);
    if (json_is_object(tree) && row_fits(tree, e)) return row_from_tree(s->row, tree), true;
    if (json_is_object(tree)) return json_decref(tree), false;
    const char *what = tree ? "not an object" : at.text;
    fail(e, ERR_FAIL, "is not JSON: %s. %s", what, dataset_json_hint(text, bytes, what));
    json_decref(tree);
    return false;
}

static bool speak_row(EncodeState *s, const InputFormat *format, Block *b, RawRow *raw, Err *e) {
    enum { PIECE = 1 << 16 };
    const char *text;
    int64_t bytes;
    if (!parse_row(s, format, b->text.data + raw->at, raw->bytes, raw->line, e)) return false;
    bool ok =
        dataset_need_text(&text, &bytes, s->row, format->field, e) && dataset_text_begin(&s->maker, &s->sample, e);
    for (int64_t at = 0; ok && at < bytes; at += PIECE)
        ok = dataset_text_more(&s->maker, &s->sample, text + at, MIN2(bytes - at, PIECE), e);
    ok = ok && dataset_text_end(&s->maker, &s->sample, e);
    take_sample(b, &s->sample);
    raw->ids_end = b->ids.n;
    row_free(s->row);
    return ok;
}

static void speak(Prepare *p, Block *b, int worker) {
    const char *path = p->job.input[b->input].path;
    bool whole = b->begins && b->ends; /* a text that goes on has a encoder of its own */
    EncodeState *s = &p->encoder[b->is_text && !whole ? p->threads : worker];
    if (b->is_text) {
        if (!speak_text(s, b, path, &b->err) && !str_starts(b->err.text, path)) fail_within(&b->err, "%s", path);
        return;
    }
    for (int64_t i = 0; i < b->n; i++) {
        if (speak_row(s, &p->format[b->input], b, &b->row[i], &b->err)) continue;
        if (!str_starts(b->err.text, path)) fail_within(&b->err, "%s:%lld", path, (long long)b->row[i].line);
        return;
    }
}

/* ---- writing ---- */

static bool close_shard(Prepare *p, Err *e) {
    PrepareJob *j = &p->job;
    p->writing = false;
    if (!shard_commit(&p->shard, e)) return false;
    j->shard = mem_grow(j->shard, &j->shard_capacity, j->n_shards + 1, sizeof *j->shard);
    j->shard[j->n_shards++] = p->shard.facts;
    return prepare_job_save(j, e);
}

static bool begin_shard(Prepare *p, Err *e) {
    char path[1200];
    if (p->writing) return true;
    if (!prepare_job_clear(&p->job, e)) return false;
    prepare_shard_path(path, sizeof path, &p->job, p->job.n_shards);
    p->writing = shard_begin(&p->shard, path, &p->job.like, e);
    return p->writing;
}

/* Tokens that the document at the shard's end has so far. */
static int64_t tokens_begun(const ShardOut *s) {
    return s->in_document ? s->facts.tokens - *(int64_t *)pile_at(&s->begin, s->begin.n - 1) : 0;
}

/* A document, or a piece of one; too long a one in parts, with an end of text behind each. */
static bool write_document(Prepare *p, const int32_t *ids, int64_t n, bool ends, PrepareInput *in, Err *e) {
    int64_t most = p->o->max_document;
    const int32_t end = p->job.like.eos;
    if (!begin_shard(p, e)) return false;
    while (most && tokens_begun(&p->shard) + n > most + ends) { /* its own end does not count */
        int64_t room = most - tokens_begun(&p->shard);
        if (!shard_add(&p->shard, ids, room, false, e) || !shard_add(&p->shard, &end, 1, true, e)) return false;
        ids += room;
        n -= room;
        in->tokens += room + 1;
        in->documents++;
    }
    in->tokens += n;
    in->documents += ends;
    return shard_add(&p->shard, ids, n, ends, e);
}

/* In the order of the input; a shard is closed behind a row. */
static bool write_block(Prepare *p, const Block *b, Err *e) {
    PrepareInput *in = &p->job.input[b->input];
    int64_t at = 0;
    for (int64_t i = 0; i < b->n; at = b->row[i++].ids_end) {
        int64_t n = b->row[i].ids_end - at;
        bool ends = !b->is_text || b->ends, alone = !b->is_text || (b->begins && b->ends);
        if (alone && n < 2)
            in->dropped++; /* nothing to predict */
        else if (!write_document(p, b->ids.ids + at, n, ends, in, e))
            return false;
        if (!ends) continue;
        in->rows++;
        p->job.place = b->row[i].after;
        const ShardOut *s = &p->shard;
        bool full = p->writing && (s->facts.tokens >= p->o->shard_tokens || s->begin.n >= SHARD_DOCUMENTS);
        if (full && !close_shard(p, e)) return false;
    }
    p->done->text_bytes += b->text.len;
    return true;
}

static bool write_round(Prepare *p, Round *round, Err *e) {
    for (int i = 0; i < round->n; i++) {
        Block *b = &round->block[i];
        if (b->err.code) return fail(e, b->err.code, "%s", b->err.text);
        if (!write_block(p, b, e)) return false;
    }
    round->n = 0;
    return true;
}

/* ---- rounds ---- */

static void do_tile(void *context, int64_t tile, int worker) {
    Prepare *p = context;
    if (tile) {
        speak(p, &p->tokenises->block[tile - 1], worker);
    } else if (!p->err.code) {
        if (write_round(p, p->writes, &p->err)) read_round(p, p->reads, &p->err);
    }
}

static void count(Prepare *p) {
    PrepareCounts *c = p->done;
    const PrepareJob *j = &p->job;
    c->rows = c->documents = c->dropped = c->tokens = 0;
    for (int64_t i = 0; i < j->n_inputs; i++) {
        c->rows += j->input[i].rows;
        c->documents += j->input[i].documents;
        c->dropped += j->input[i].dropped;
        c->tokens += j->input[i].tokens;
    }
    c->shards = j->n_shards;
    c->bytes_done = p->bytes_before;
    if (p->open)
        c->bytes_done += dataset_reader_done(&p->reader);
}

static bool run_rounds(Prepare *p, Threads *team, PrepareSay *say, void *user, Err *e) {
    bool ok = read_round(p, p->reads, e);
    while (ok && (p->reads->n || p->tokenises->n || p->writes->n)) {
        Round *free_one = p->writes; /* what is read goes on to be tokenised, and so on */
        p->writes = p->tokenises;
        p->tokenises = p->reads;
        p->reads = free_one;
        threads_for(team, 1 + p->tokenises->n, do_tile, p);
        ok = !p->err.code || stop_caused(&p->err); /* the tokenizer leaves in the middle of a text */
        if (!ok) *e = p->err;
        count(p);
        if (say) say(user, p->done);
        p->done->stopped = stop_asked();
        if (p->done->stopped) break;
    }
    return ok;
}

static void init_rounds(Prepare *p) {
    for (int r = 0; r < ROUNDS; r++) p->round[r].block = MEM_NEW(Block, p->blocks);
    p->reads = &p->round[0];
    p->tokenises = &p->round[1];
    p->writes = &p->round[2];
}

static bool init_speakers(Prepare *p, Err *e) {
    p->encoder = MEM_NEW(EncodeState, p->threads + 2);
    for (int i = 0; i < p->threads + 2; i++) {
        p->encoder[i].row = MEM_NEW(Row, 1);
        if (!dataset_maker_init(&p->encoder[i].maker, &p->data, e)) return false;
    }
    return true;
}

static void free_all(Prepare *p) {
    if (p->open) dataset_reader_close(&p->reader);
    if (p->writing) shard_abort(&p->shard);
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; p->round[r].block && i < p->blocks; i++) {
            Block *b = &p->round[r].block[i];
            str_free(&b->text);
            mem_free(b->row);
            token_ids_free(&b->ids);
        }
        mem_free(p->round[r].block);
    }
    for (int i = 0; p->encoder && i < p->threads + 2; i++) {
        if (p->encoder[i].maker.vars) dataset_maker_free(&p->encoder[i].maker);
        mem_free(p->encoder[i].sample.token);
        mem_free(p->encoder[i].row);
    }
    for (int64_t i = 0; p->format && i < p->job.n_inputs; i++)
        if (p->format[i].form == SOURCE_TABLE) dataset_reader_close(&p->format[i].table);
    mem_free(p->format);
    mem_free(p->encoder);
    prepare_job_free(&p->job);
}

static bool finish(Prepare *p, Err *e) {
    if (p->writing && !close_shard(p, e)) return false;
    count(p);
    if (!p->job.n_shards) return fail(e, ERR_FAIL, "no text was found in what was named");
    return prepare_job_finish(&p->job, e) && (!p->o->pack_seq || prepare_pack(&p->job, e));
}

static bool run_job(Prepare *p, PrepareSay *say, void *user, Err *e) {
    Threads *team = NULL;
    p->format = MEM_NEW(InputFormat, p->job.n_inputs);
    p->input = p->job.place.input;
    for (int64_t i = 0; i < p->input; i++) p->bytes_before += p->job.input[i].facts.bytes;
    p->done->resumed = p->job.n_shards > 0;
    init_rounds(p);
    count(p);
    if (say) say(user, p->done);
    bool ok = init_speakers(p, e) && threads_open(&team, p->threads, e) && run_rounds(p, team, say, user, e);
    threads_close(team);
    for (int i = 0; i < p->threads + 2; i++)
        if (p->encoder[i].maker.stream) p->done->word_bytes += token_stream_bytes(p->encoder[i].maker.stream);
    return ok && (p->done->stopped || finish(p, e));
}

bool prepare_corpus(PrepareCounts *done, const char *out, const char *const *names, int n, const PrepareOptions *o,
                    PrepareSay *say, void *user, Err *e) {
    Prepare *p = MEM_NEW(Prepare, 1);
    int64_t vocab = MAX2(tokenizer_vocab_size(o->tokenizer), o->eos + 1);
    *done = (PrepareCounts){0};
    p->o = o;
    p->done = done;
    p->threads = MAX2(o->threads, 1);
    p->blocks = BLOCKS_A_THREAD * p->threads;
    p->data = (DataOptions){
        .tokenizer = o->tokenizer, .eos_id = o->eos, .seq = 2, .vocab = vocab, .text_field = o->text_field};
    p->job = (PrepareJob){.out = out, .o = o};
    p->job.like = (ShardFacts){.bytes_per_token = vocab <= 65536 ? 2 : 4,
                               .vocab = vocab,
                               .eos = o->eos,
                               .tokenizer = tokenizer_identity(o->tokenizer)};
    p->reader.fd = -1;
    bool ok = file_make_dirs(out, e) && prepare_job_open(&p->job, &done->was_done, names, n, e);
    done->inputs = p->job.n_inputs;
    for (int64_t i = 0; i < p->job.n_inputs; i++) done->bytes += p->job.input[i].facts.bytes;
    if (ok && !done->was_done)
        ok = run_job(p, say, user, e);
    else if (ok) {
        count(p);
        ok = !o->pack_seq || p->job.packed || prepare_pack(&p->job, e);
    }
    free_all(p);
    mem_free(p);
    return ok;
}

int64_t prepare_bytes(const PrepareOptions *o, const PrepareCounts *done) {
    enum {
        TEXT_SHARE = 12, /* of a byte under way: itself, its part of a row's facts, a token */
        ROW_SHARE = 8,   /* of the longest row: where it is read, parsed and made tokens */
        INDEX_SHARE = 16 /* of a document of the open shard */
    };
    int threads = MAX2(o->threads, 1);
    int64_t most = ROUNDS * BLOCKS_A_THREAD * threads * (BLOCK_BYTES + done->longest_bytes);
    return TEXT_SHARE * MIN2(most, done->text_bytes + BLOCK_BYTES) + ROW_SHARE * done->longest_bytes +
           done->word_bytes + INDEX_SHARE * MIN2(done->documents + 1, SHARD_DOCUMENTS) + threads * BLOCK_BYTES +
           (done->unpacks ? UNPACK_MOST_BYTES : 0);
}
