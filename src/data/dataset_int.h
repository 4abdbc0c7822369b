/* dataset_int.h - what the files of a data set share with each other, and with nobody else.
 *
 *   file -> rows (dataset_read.c)
 *        -> samples (dataset_rows.c tells the kinds apart, dataset_chat.c renders conversations)
 *        -> documents (dataset.c cuts and keeps) -> rows of seq tokens (dataset_pack.c)
 *
 * Functions that look at one row name neither file nor line in their errors: dataset.c puts both in front. */
#ifndef DATA_DATASET_INT_H
#define DATA_DATASET_INT_H

#include <jansson.h>

#include "data/dataset.h"
#include "data/rows.h"

/* A stored token is its id, with this bit where it is scored: ids stay below 2^31. */
#define SCORED ((uint32_t)1 << 31)

typedef struct Doc {
    int64_t begin;       /* first token in Dataset.token; never falls from one document to the next */
    int64_t full_tokens; /* of the whole sample before cutting; 0 on later pieces of a text */
    int32_t tokens;      /* kept, at most seq; 0: the sample was dropped */
    int32_t scored;
    bool starts;         /* begins a sample; false: a later piece */
    bool truncated, last_only;
} Doc;

struct Dataset {
    char *path;             /* owns, like everything below */
    char *kind_text;
    int64_t seq;
    uint64_t seed;
    bool shuffle, pack;
    uint32_t *token;
    int64_t n_tokens, token_capacity;
    Doc *doc;               /* in the file's order, dropped ones included */
    int64_t n_docs, doc_capacity;
    int64_t n_rows, n_placed;
    int64_t *row_first;     /* [n_rows + 1]: where a row's documents begin in row_doc */
    int64_t *row_doc;       /* [n_placed]: documents, row by row */
    int64_t *order;         /* [n_rows]: rows in the order of epoch order_epoch; NULL: as they stand */
    int64_t order_epoch;
    DataReport report;
};

/* ---- dataset_read.c: rows of a file are in rows.h ---- */

bool dataset_read_text(Str *out, const char *path, Err *e);   /* a .txt file, which must be UTF-8 */

/* ---- dataset_scan.c ---- */

/* The object at the begin of text, and the bytes it takes. Gives (json_decref); NULL: ask the library, which also knows
 * what is wrong. */
json_t *dataset_scan_object(Str *scratch, const char *text, int64_t bytes, int64_t *used);

/* ---- dataset_rows.c: from a row to a sample ---- */

typedef struct Sample {
    uint32_t *token;         /* owns; with SCORED */
    int64_t n, capacity;
    int32_t end_id;          /* takes the place of the last scored token when cut; -1: cut as it is */
    bool plain;              /* a text: may be cut into pieces */
    bool last_only;
} Sample;

/* How the rows of one file are read: settled by the first row. */
typedef struct RowMaker {
    const DataOptions *o;    /* borrows while the file is read */
    bool settled;
    DataKind kind;
    bool chat;               /* through the chat template */
    const char *main, *answer; /* fields: ids, messages, text or the prompt; the answer */
    Str kind_text;
    TokenIds prefix;         /* what the tokenizer puts before a text: BOS, or nothing */
    bool marks_start;        /* the tokenizer also puts a space before a text: not wanted inside one */
    TokenIds anchor;         /* the ids of a line end, see encode_inside */
    json_t *vars;            /* of the chat template */
    TokenIds ids;            /* scratch from here on */
    Str prompt, reply, more, full, part;
} RowMaker;

bool dataset_maker_init(RowMaker *m, const DataOptions *o, Err *e);
void dataset_maker_free(RowMaker *m);
bool dataset_make_sample(RowMaker *m, Sample *s, const json_t *row, Err *e);
bool dataset_make_text(RowMaker *m, Sample *s, const char *text, int64_t bytes, Err *e);
bool dataset_settle_file(RowMaker *m, Err *e); /* a .txt file: there is no first row */

/* Appends the ids of text to the sample. inside: it goes on from text that stands before it. */
bool dataset_encode(RowMaker *m, Sample *s, const char *text, int64_t bytes, bool inside, bool scored, Err *e);

/* ---- dataset_chat.c: from a conversation to a sample ---- */

/* Appends the turns of a list (role/content or from/value) to a JSON array. */
bool dataset_add_turns(json_t *turns, const json_t *list, const char *field, Err *e);
json_t *dataset_turn(const char *role, const char *text, int64_t bytes); /* gives */

/* turns is shortened to what is used; answers before turn score_from are not scored. tools may be NULL. */
bool dataset_make_chat(RowMaker *m, Sample *s, json_t *turns, const json_t *tools, int64_t score_from, Err *e);

/* ---- dataset_pack.c, dataset_report.c ---- */

void dataset_place(Dataset *d);  /* documents into rows; replaces an earlier placement */
void dataset_count(Dataset *d);  /* fills the report, but for its kind */

#endif
