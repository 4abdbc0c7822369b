/* dataset.h - files of samples become rows of seq tokens: told apart, encoded, cut, placed, shuffled.
 *
 * Words. A *sample* is one line of a file (one object of a JSON array, one line of a table, one .txt file). A
 * *document* is a run of tokens that sees only itself: a sample, or a piece of a long text. A *row* holds one
 * document, or several when packed. A token is *scored* when it is the target of the token before it. A *part* of a
 * set is what one --data names.
 *
 * Kinds, told apart by the first row's fields (a null counts as absent); all rows of a part must be alike:
 *   ids            {"ids": [..]} or {"input_ids": [..]}, with "labels" aligned with the ids (each the id itself,
 *                  or -100 or -1 where it is not scored); without: everything is scored. Taken as they are.
 *   messages       {"messages": [{"role", "content"}, ..]}, rendered by the model's chat template, content being text
 *                  or a list of text parts; also {"prompt": [messages], "completion": [messages]}, where only the
 *                  completion is scored
 *   ShareGPT       {"conversations": [{"from", "value"}, ..]}, optional "system"; the same from there on
 *   Alpaca         {"instruction", "output" (or another answer's name)}, optional "input" or "context"; put as
 *                  "Instruction:\n..\n\nInput:\n..\n\nAnswer:\n"
 *   prompt/answer  prompt, question, query, problem, input, user or source with completion, answer, response, output,
 *                  target, assistant or solution: the first present of each (a problem's solution before its answer)
 *   text           {"text"}, or another field that is named; a .txt file is one document
 *   fields         a prompt template with {fields} of the row, for any other columns
 * An AMR corpus is told by its content; what makes rows of its blocks comes with the options.
 * Alpaca and prompt/answer go through the model's chat template where it has one, with an optional "system" text; else
 * prompt and answer are encoded apart and joined as they are. The answer ends with EOS; no token of the prompt is
 * scored. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/template.h"
#include "data/tokenizer.h"

typedef enum DataKind {
    DATA_IDS, DATA_MESSAGES, DATA_PROMPT, DATA_TEXT, DATA_ALPACA, DATA_SHAREGPT, DATA_FIELDS
} DataKind;
typedef enum PackMode {
    PACK_AUTO,  /* on for plain text, update otherwise */
    /* rows are filled: windows of a stream of plain text, or samples side by side; the same in every epoch */
    PACK_ON,
    PACK_OFF,   /* a row is a sample */
    PACK_UPDATE /* the samples of one update are put side by side, among themselves: the sums are those of PACK_OFF */
} PackMode;
typedef enum ScoreMode { SCORE_ALL, SCORE_LAST } ScoreMode; /* which assistant turns */
typedef enum TemplateMode {
    TEMPLATE_AUTO, /* the chat template for messages, and for prompts where the model has one */
    TEMPLATE_CHAT, /* also for prompts that are made of fields */
    TEMPLATE_NONE  /* never: messages are refused */
} TemplateMode;

/* Borrowed for the call of dataset_open alone. */
typedef struct DataOptions {
    const Tokenizer *tokenizer;      /* NULL: only ids rows */
    const Template *chat;            /* the model's chat template; NULL when it has none */
    const char *bos_text, *eos_text; /* variables of the chat template; NULL: not defined */
    int32_t eos_id;                  /* ends an answer or a text; -1: none */
    int64_t seq;                     /* tokens of a row, at least 2 */
    int64_t vocab;                   /* an id that is not below is refused, with file and line */
    PackMode pack;
    ScoreMode score;
    TemplateMode template_mode;
    const char *prompt_template;     /* "Translate: {src}\nAnswer: "; {{ and }} are braces; NULL: by the kinds */
    const char *answer_template;     /* the answer made the same way; NULL: the field below */
    const char *answer_field;        /* the answer's field; NULL: the first present of the names above */
    const char *text_field;          /* rows are plain text, in this field; NULL: by the kinds */
    int64_t max_samples;             /* only the first so many of each part; 0: all */
    uint64_t seed;
    bool shuffle;                    /* another order of rows every epoch; false: the file's order */
    bool join_documents;             /* rows of plain text: documents see each other; false: each sees only itself */
    const struct RowBlocks *blocks;  /* makes rows of an AMR corpus (rows.h); NULL: one is refused */
    int64_t limit_bytes;             /* memory that the set, and reading it, may take; 0: any. Beyond: ERR_BUDGET */
} DataOptions;

typedef struct DataReport {
    DataKind kind;
    const char *kind_text;   /* "prompt and answer (fields: question, answer), joined as they are"; borrows */
    int64_t samples;         /* kept */
    int64_t dropped;         /* nothing to learn: the answer is empty or was cut away entirely */
    int64_t unanswered;      /* of these: conversations without an answer */
    int64_t truncated;       /* kept, but cut at seq */
    int64_t last_only;       /* conversations whose earlier answers the template changes: these are not scored */
    int64_t tokens;          /* of all documents */
    int64_t scored_tokens;
    int64_t rows;
    int64_t longest;         /* tokens of a sample before cutting, dropped ones included */
    int64_t median, p95;     /* the same of those that are kept */
    double fill;             /* share of the rows' slots that hold tokens */
} DataReport;

typedef struct Dataset Dataset;

typedef struct DataFile {
    const char *path; /* a file, or a folder of them (source.h) */
    double weight;    /* of draws, relative to the others; 0: none. All parts have one, or none has */
} DataFile;

/* Everything is read, encoded and placed; no text is kept. Without weights the parts are joined, in this order. With
 * them an epoch has as many draws as there are samples (rows, for plain text), each from a part by its weight: a part
 * that is drawn from more often than it has samples begins anew, in another order. Gives: dataset_close. */
bool dataset_open_files(Dataset **d, const DataFile *file, int n, const DataOptions *o, Err *e);
bool dataset_open(Dataset **d, const char *path, const DataOptions *o, Err *e); /* one file, no weight */
void dataset_close(Dataset *d); /* NULL is fine */

/* Moves the end of every part to a set of its own: of n documents floor(n (1 - fraction)) remain, of a stream of
 * plain text as many rows, up to the nearest border of a document; something remains on either side. Gives:
 * dataset_close. */
bool dataset_split(Dataset *d, Dataset **held_out, double fraction, Err *e);

const DataReport *dataset_report(const Dataset *d);
/* The shortest row, in steps of 64 tokens, that cuts no sample; at most dataset_seq. */
int64_t dataset_enough(const Dataset *d);
void dataset_report_text(Str *out, const Dataset *d); /* some lines for people, with a histogram of the lengths */

int64_t dataset_rows(const Dataset *d);          /* of one epoch, as a global batch counts them */
int dataset_parts(const Dataset *d);             /* files */
bool dataset_has_turns(const Dataset *d);        /* a part is made of conversations */
bool dataset_has_stream(const Dataset *d);       /* a part is plain text whose documents fill rows one behind another */
bool dataset_is_packed(const Dataset *d);        /* several samples may stand in one row */
bool dataset_packs_updates(const Dataset *d);    /* PACK_UPDATE: what is counted above are samples */
void dataset_pack_updates(Dataset *d, bool on);  /* from PACK_OFF to PACK_UPDATE, or back */
int64_t dataset_seq(const Dataset *d);           /* tokens of a row */
int64_t dataset_bytes(const Dataset *d);         /* host memory kept */
int64_t dataset_reading_bytes(const Dataset *d); /* the most that was taken besides while it was read */
uint64_t dataset_fingerprint(const Dataset *d);  /* of the tokens, what is scored, and the rows they stand in */

/* The row at place `index` of epoch `epoch`: computed from the seed alone (dataset_order.c). */
int64_t dataset_row_at(const Dataset *d, int64_t epoch, int64_t index);
int64_t dataset_row_scored(const Dataset *d, int64_t row);
int64_t dataset_row_tokens(const Dataset *d, int64_t row);

/* The rows of an update, or of any stretch of an epoch: which rows of the set (samples) stand in each. */
typedef struct RowList {
    int64_t n_rows, n, most; /* most: rows of the set that it has room for */
    int64_t *first;          /* [n_rows + 1]: where a row begins in member */
    int64_t *member;         /* [n] */
    uint64_t *key;           /* scratch */
    int64_t *room;
} RowList;

int64_t row_list_bytes(int64_t most); /* what row_list_init takes of the arena */
void row_list_init(RowList *l, Arena *a, int64_t most);
/* Those at places index .. index + n - 1 of an epoch. PACK_UPDATE: the longest first, each into the first row that
 * has room for it. Allocates nothing. */
void dataset_list_rows(const Dataset *d, RowList *l, int64_t epoch, int64_t index, int64_t n);

/* How many rows the updates of a run have: by construction none has more than `most`. */
typedef struct UpdateRows {
    int64_t samples;  /* of an update */
    int64_t most;
    int64_t updates;  /* that were looked at */
    int64_t *count;   /* [most + 1]: how many have so many rows; owns: update_rows_free */
    double fill;      /* share of the rows' slots that hold tokens */
    double mean_rows, mean_tokens; /* of an update */
    int64_t expected;              /* rows that predicted times are for; 0: those of count */
} UpdateRows;
void update_rows_count(UpdateRows *u, const Dataset *d, int64_t global_batch, int64_t updates);
void update_rows_free(UpdateRows *u);

/* seq entries each. labels[t] is the next token of the same document where that one is scored, else -1; weight is
 * 1 there, else 0; positions begin at 0 in every document; doc_begin is the place in the row where the token's
 * document begins. In what is left of the row every token is a document of its own: id 0, no label. */
void dataset_row_fill(const Dataset *d, int64_t row, int32_t *ids, int32_t *labels, float *weight,
                      int32_t *positions, int32_t *doc_begin);
/* The same for rows of the set that share a row. scratch: for tokens that are read from disk. */
typedef struct RowScratch {
    uint32_t *token; /* [seq + 1] */
    uint8_t *starts; /* [seq + 1] */
} RowScratch;
void dataset_members_fill(const Dataset *d, const int64_t *member, int64_t n, const RowScratch *scratch,
                          int32_t *ids, int32_t *labels, float *weight, int32_t *positions, int32_t *doc_begin);
/* False, with the first error, once reading from disk has failed: rows filled since then hold nothing. */
bool dataset_ok(const Dataset *d, Err *e);

#endif
