/* dataset_int.h - what the files of a data set share with each other, and with nobody else.
 *
 *   file -> rows (dataset_read.c)
 *        -> samples (dataset_kind.c tells the kinds apart, dataset_rows.c makes them, dataset_chat.c does chats)
 *        -> documents (dataset_keep.c cuts and keeps them) -> rows of seq tokens (dataset.c, dataset_pack.c)
 *
 * Functions that look at one row name neither file nor line in their errors: dataset_open.c puts both in front. */
#ifndef DATA_DATASET_INT_H
#define DATA_DATASET_INT_H

#include <jansson.h>

#include "data/corpus.h"
#include "data/dataset.h"
#include "data/pile.h"
#include "data/row.h"
#include "data/rows.h"

/* A stored token is its id, with this bit where it is scored: ids stay below 2^31. */
#define SCORED ((uint32_t)1 << 31)

typedef struct Doc {
    int64_t begin;  /* first token; it ends where the next one begins */
    int32_t scored;
    int32_t full;   /* tokens of the whole sample before cutting; 0: a later piece of a text */
} Doc;
_Static_assert(sizeof(Doc) == 16, "a pile wants a power of two");

typedef struct DataStore { /* tokens and documents, in the file's order; a held-out set is a part of the same */
    Pile token, doc;       /* doc: one more, where the last one ends */
    Corpus **corpus;       /* owns: [n_corpora], those of the parts that stay on disk */
    int n_corpora;
    int sets;              /* that use it */
} DataStore;

/* What a row is. */
typedef enum RowMode {
    ROWS_DOCUMENTS, /* one document each */
    ROWS_FITTED,    /* documents that fit side by side: row_first, row_doc */
    ROWS_STREAM     /* seq tokens of all documents in a row, one window after the other */
} RowMode;

typedef struct DataPart { /* what one --data names: a file, or the files of a folder */
    char *path, *kind_text; /* owns, like all of it */
    DataKind kind;
    RowMode mode;
    double weight;                 /* 0: none was given */
    uint64_t share;                /* 2^32 times its share of what the parts before it leave of the draws */
    int64_t first_doc, n_docs;     /* of the store */
    int64_t first_token, n_tokens; /* the same in tokens; a stream may begin and end inside a document */
    int64_t first_row, n_rows;     /* of the set */
    int64_t *row_first;            /* [n_rows + 1]: where a row's documents begin in row_doc */
    int64_t *row_doc;              /* [n_docs]: documents, row by row */
    Corpus *corpus;                /* its tokens stay on disk: a stream; NULL: they are in the store. Borrows from it */
    int64_t keyed_rows;            /* rows of a corpus that was split by key; 0: it was not */
    int64_t keyed_first;           /* where its own begin in that order */
    DataReport report;
} DataPart;

struct Dataset {
    DataPart *part;         /* owns, like everything below */
    int n_parts;
    char *name;             /* of the parts, for messages */
    int64_t seq;
    uint64_t seed;
    bool shuffle;
    bool joined;            /* a stream: documents see each other */
    bool weighted;          /* parts are drawn from by weight */
    bool by_update;         /* rows are documents, and those of an update share rows */
    DataStore *store;
    bool owns_store;        /* the first of those that use it: its bytes are counted there */
    int64_t n_rows;
    int64_t reading_bytes;  /* the most that was held besides while the set was read */
    DataReport report;
};

static inline Doc *dataset_doc(const Dataset *d, int64_t i) { return pile_at(&d->store->doc, i); }
static inline int64_t dataset_doc_tokens(const Dataset *d, int64_t i) {
    return dataset_doc(d, i + 1)->begin - dataset_doc(d, i)->begin;
}
int64_t dataset_doc_at(const Dataset *d, const DataPart *p, int64_t token); /* the document it stands in */
const DataPart *dataset_part_of(const Dataset *d, int64_t row);

/* ---- dataset_read.c, dataset_table.c ---- */

bool dataset_table_header(RowReader *r, Err *e); /* reads the names of the columns */
/* A record as fields; of the reader only its names, separator and path are looked at. */
bool dataset_table_row(const RowReader *r, Row *row, char *record, int64_t bytes, int64_t line, Err *e);

/* ---- dataset_hint.c ---- */

/* What to do about a row that is not JSON; what: the library's message. */
const char *dataset_json_hint(const char *row, int64_t bytes, const char *what);
/* Where the samples may be instead, a sentence each and a blank; nothing where the row's fields say nothing. */
void dataset_add_field_hint(Str *out, const Row *row);

/* ---- dataset_scan.c ---- */

/* The object at the begin of text, and the bytes it takes. Gives (json_decref); NULL: ask the library, which also knows
 * what is wrong. */
json_t *dataset_scan_object(Str *scratch, const char *text, int64_t bytes, int64_t *used);
json_t *dataset_scan_value(Str *scratch, const char *text, int64_t bytes); /* any value; the same */

/* ---- dataset_kind.c, dataset_rows.c: from a row to a sample ---- */

typedef struct Sample {
    uint32_t *token;         /* owns; with SCORED */
    int64_t n, capacity;
    int32_t end_id;          /* takes the place of the last scored token when cut; -1: cut as it is */
    int64_t places;          /* of a list of ids */
    bool plain;              /* a text: may be cut into pieces */
    bool has_text;
    bool unanswered;         /* a conversation without an answer */
    bool last_only;
} Sample;

/* How the rows of one file are read: settled by the first row. */
typedef struct RowMaker {
    const DataOptions *o;    /* borrows while the file is read */
    bool settled;
    const RowBlocks *blocks; /* the rows are an AMR corpus's; NULL: the file's own */
    DataKind kind;
    bool chat;               /* through the chat template */
    const char *main, *answer; /* fields: ids, messages, text or the prompt; the answer */
    Str kind_text;
    TokenIds prefix;         /* what the tokenizer puts before a text: BOS, or nothing */
    bool marks_start;        /* the tokenizer also puts a space before a text: not wanted inside one */
    TokenIds anchor;         /* the ids of a line end, see encode_inside */
    TokenStream *stream;     /* NULL: no tokenizer */
    json_t *vars;            /* of the chat template */
    TokenIds ids;            /* scratch from here on */
    Str prompt, more, full, part;
} RowMaker;

bool dataset_maker_init(RowMaker *m, const DataOptions *o, Err *e);
void dataset_maker_free(RowMaker *m);
void dataset_maker_reset(RowMaker *m);                  /* for the next file */
bool dataset_settle_row(RowMaker *m, Row *row, Err *e); /* by the first row of a file */
bool dataset_settle_text(RowMaker *m, Err *e);          /* a file of plain text: there is no first row */
/* memory that making a sample takes, in bytes for each of the row's */
int dataset_row_cost(const RowMaker *m);
bool dataset_make_sample(RowMaker *m, Sample *s, Row *row, Err *e);
bool dataset_need_text(const char **text, int64_t *bytes, Row *row, const char *name, Err *e);
/* the first of the names that the row has; NULL: none */
const char *dataset_first_of(Row *row, const char *const *names);
const char *dataset_context_of(Row *row); /* the field that belongs to the prompt of an Alpaca row; NULL: none */
bool dataset_fail_missing(Row *row, const char *name, const char *why, Err *e);
const char *dataset_type_text(json_type type); /* "a list" */

/* A text that comes in pieces: begin, any number of times more, end. */
bool dataset_text_begin(RowMaker *m, Sample *s, Err *e);
bool dataset_text_more(RowMaker *m, Sample *s, const char *text, int64_t bytes, Err *e);
bool dataset_text_end(RowMaker *m, Sample *s, Err *e);

/* Appends the ids of text to the sample. inside: it goes on from text that stands before it. */
bool dataset_encode(RowMaker *m, Sample *s, const char *text, int64_t bytes, bool inside, bool scored, Err *e);

/* ---- dataset_chat.c: from a conversation to a sample ---- */

/* Appends the turns of a list (role/content or from/value) to a JSON array. */
bool dataset_add_turns(json_t *turns, const json_t *list, const char *field, Err *e);
json_t *dataset_turn(const char *role, const char *text, int64_t bytes); /* gives */

/* turns is shortened to what is used; answers before turn score_from are not scored. tools may be NULL. */
bool dataset_make_chat(RowMaker *m, Sample *s, json_t *turns, const json_t *tools, int64_t score_from, Err *e);

/* ---- dataset_keep.c: from samples to documents ---- */

typedef struct Keeper {
    Dataset *d;
    DataPart *part;     /* its counts are kept */
    Sample sample;      /* the one at hand */
    bool in_pieces;     /* a text that does not fit a row is kept by pieces */
    int64_t pieces;     /* of it, kept so far */
    int64_t full;       /* its tokens so far, kept or not */
    int64_t first_doc;  /* of it */
} Keeper;

void dataset_keep_begin(Keeper *k);
void dataset_keep_some(Keeper *k);   /* of a text that goes on: what is certain of it */
void dataset_keep_end(Keeper *k);

/* ---- dataset_order.c, dataset_pack.c, dataset_report.c ---- */

void dataset_share_out(Dataset *d); /* weights become shares */
void dataset_place(Dataset *d);     /* documents into rows; replaces an earlier placement */
void dataset_count(Dataset *d);     /* fills the reports, but for kinds and for what is counted while reading */

#endif
