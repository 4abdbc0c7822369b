/* suite_int.h - what the files of this room share: the table of tasks, items and their pieces, measures. */
#ifndef SUITE_SUITE_INT_H
#define SUITE_SUITE_INT_H

#include "base/mem.h"
#include "data/template.h"
#include "suite/suite.h"

enum { MEASURES = 16, FILTERS = 2, SHOTS_MOST = 64 };

typedef enum TaskKind {
    TASK_CHOICE,   /* the likeliest of some continuations */
    TASK_BLANK,    /* the prompt, among some, after which one continuation is likeliest */
    TASK_ANSWER,   /* a greedy answer, from which one is extracted */
    TASK_ROLLING,  /* the likelihood of whole texts */
    TASK_HAYSTACK  /* a greedy answer that must hold some words; prompts are generated */
} TaskKind;

typedef struct AnswerFilter { /* how an answer is taken out of a text */
    const char *name, *regex;
    bool last; /* of the matches; false: the first */
} AnswerFilter;

typedef enum HayForm { HAY_NEEDLE, HAY_CHAIN, HAY_COMMON, HAY_FREQUENT } HayForm;
typedef struct HaySpec { /* what a generated prompt hides */
    HayForm form;
    int keys, values, asked; /* names, variables or words; numbers of a name; names that are asked for */
    bool by_depth;           /* a cell for each depth; false: needles stand anywhere */
} HaySpec;

/* A task as data. Templates see the fields of a row; choices gives a JSON list of texts, gold its right element. */
typedef struct TaskRow {
    const char *name, *suite;
    TaskKind kind;
    const char *fields;              /* that a row must have, ' ' between them; a|b: one of both */
    const char *prompt, *choices, *gold;
    const char *target;              /* ANSWER: the reference; BLANK: what follows the prompts */
    const char *split, *shot_split;
    const char *subject;             /* field by which rows are told apart into tasks; NULL: one task */
    int shots;                       /* unless asked otherwise */
    bool first_shots;                /* the first rows of shot_split; false: drawn for every item */
    bool may_draw_itself;            /* items may be among those rows, and are passed over there */
    bool strip_brackets;             /* WikiHow's marks are taken out of prompt and choices */
    bool normalised;                 /* acc_norm too */
    const char *until[4];            /* ANSWER: what ends it */
    int most_new;                    /* ANSWER, HAYSTACK: tokens */
    AnswerFilter filter[FILTERS];
    HaySpec hay;                     /* HAYSTACK */
    double version;
} TaskRow;

typedef struct Piece {
    const int32_t *prompt, *forced; /* borrows: the suite's arena */
    int64_t n_prompt, n_forced;
    double logp;                    /* of the forced ids, once scored */
    int64_t chars;                  /* of a choice */
} Piece;

typedef struct Item {
    int task;
    int64_t doc;                    /* place among the task's rows */
    Piece *piece;
    int n;
    int gold;
    const char *target;             /* ANSWER */
    const char *const *want;        /* HAYSTACK: [n_want] */
    int n_want;
    int64_t length;                 /* HAYSTACK: asked for */
    int depth;                      /* HAYSTACK: percent; -1: spread over the whole prompt */
    int64_t words, bytes;           /* ROLLING: of the text */
    char *answer;                   /* owns, once it was given */
    char *extracted[FILTERS];       /* owns */
    double score[FILTERS];          /* by measure */
} Item;

typedef struct Measure { /* a number of the results */
    char name[32];
    const char *filter;
    double value, error;
    bool has_error, higher; /* higher: is better */
} Measure;

typedef struct Task {
    const TaskRow *row;
    char name[80];
    char group[32];        /* it counts in, "": none */
    int64_t n;             /* items */
    int64_t rows;          /* that there are, with those beyond the limit */
    int shots;
    Measure measure[MEASURES];
    int n_measures;
} Task;

struct Suite {
    SuiteSpec spec;
    int32_t prefix;        /* token that stands for an empty context; -1: there is none */
    const char *prefix_text;
    Arena arena;           /* ids, texts, pieces */
    Task *task;            /* owns */
    int64_t n_tasks, task_capacity;
    Item *item;            /* owns */
    int64_t n_items, item_capacity;
    int64_t context;
    int64_t answer_bytes;  /* at most, of all answers */
    int64_t reading_bytes; /* the most that was taken besides while a file was read */
};

/* Its pieces share nothing and need not wait for each other. */
static inline bool goes_at_once(const Suite *s, const Item *it) { return s->task[it->task].row->kind == TASK_ROLLING; }

/* tasks.c */
const TaskRow *task_row(int i); /* NULL: there are no more */
const char *task_category(const char *subject); /* of MMLU's groups; NULL: not one of its subjects */
const char *task_category_at(int i);            /* their names, in the harness's order; NULL: no more */

/* suite.c */
Task *suite_add_task(Suite *s, const TaskRow *row, const char *name);
Item *suite_add_item(Suite *s, Task *t, int pieces);

/* render.c - rows as text */
typedef struct TaskTexts { /* the templates of a row of the table, compiled */
    Template *prompt, *choices, *gold, *target;
} TaskTexts;
typedef struct Rendered {
    Str prompt, target;
    json_t *choices; /* owns; a list of texts */
    int gold;
} Rendered;
bool texts_open(TaskTexts *t, const TaskRow *row, Err *e);
void texts_close(TaskTexts *t);
bool texts_render(const TaskTexts *t, const TaskRow *row, Rendered *out, const json_t *fields, Err *e);
void rendered_free(Rendered *r);
void rendered_example(Str *out, const TaskRow *row, const Rendered *r); /* as a few-shot example */

/* rows.c, rolling.c, haystack.c: items of a task */
bool rows_there(const Suite *s, const TaskRow *row); /* a file or a folder of its name */
bool rows_add(Suite *s, const TaskRow *row, Err *e);
bool rolling_add(Suite *s, const TaskRow *row, Err *e);
bool haystack_add(Suite *s, const TaskRow *row, Err *e);

/* haystack_text.c: the prompt of that many sentences or words, and what its answer must hold */
enum { HAY_WANTED = 16 };
typedef struct Hay {
    HaySpec spec;
    uint64_t key;
    int depth;               /* percent; -1: anywhere */
    char want[HAY_WANTED][16];
    int n_want;
} Hay;
void hay_prompt(Str *out, Hay *h, int64_t units);

/* encode.c */
bool encode_text(const Suite *s, TokenIds *out, const char *text, int64_t bytes, Err *e);
/* Scores `continuation` behind `context`. known, where not NULL, holds the ids of the context from call to call. */
bool encode_pair(Suite *s, Piece *p, const char *context, const char *continuation, TokenIds *known, Err *e);
bool encode_prompt(Suite *s, Piece *p, const char *prompt, int64_t most_new, Err *e); /* to be answered */
void encode_windows(Suite *s, Item *item, const int32_t *ids, int64_t n);             /* as many as item->n */
int64_t encode_window_count(const Suite *s, int64_t n);

/* text.c */
int64_t text_words(const char *text, int64_t bytes);  /* pieces between runs of white space */
int64_t text_space_at_end(const char *text);          /* bytes of white space there */
void text_strip_brackets(Str *out, const char *text);
void text_join_wiki(Str *out, const char *text);      /* WikiText's spaced out tokens as running text */

/* extract.c */
bool extract_answer(char **out, const AnswerFilter *f, const char *text, Err *e); /* gives: mem_free */
bool extract_same(const char *answer, const char *reference); /* as exact_match of gsm8k compares */
double extract_found(const char *text, const char *const *want, int n);           /* share of them, case aside */

/* score.c */
bool score_items(Suite *s, Err *e);
typedef struct Cell { /* of the picture */
    int64_t length;
    int depth;
    double value;
    int64_t n;
} Cell;
int score_cells(Cell **out, const Suite *s); /* gives: mem_free */

#endif
