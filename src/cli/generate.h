/* generate.h - the two ends of `snug generate`: prompts as they are read, answers as lines in the prompts' order. */
#ifndef CLI_GENERATE_H
#define CLI_GENERATE_H

#include "cli/gen_setup.h"
#include "store/joblog.h"

/* ---- cmd_generate.c ---- */

typedef struct Prompts Prompts;

/* What another command makes of the way from prompts to lines; a member that is NULL leaves it as snug generate has
 * it. */
typedef struct GenerateHooks {
    void *self;
    bool (*read)(void *self, Prompts *p, const GenSetup *g, Err *e); /* the prompts */
    bool (*whole)(void *self, const EngineEvent *text); /* given the text of an answer as it comes: it ends here */
    /* A line of JSON, in order, into what is written in its place; one with "error" is that of a prompt that failed. */
    bool (*turn)(void *self, Str *line, Err *e);
    void (*sum_up)(void *self, json_t *summary);        /* behind the last line; NULL: it is told to a person */
} GenerateHooks;

bool generate_run(const Options *o, const GenerateHooks *h, Err *e);

/* ---- generate_prompts.c ---- */

typedef struct Prompt {
    TokenIds ids;
    uint64_t seed;
    int64_t max_new; /* 0: the option's */
    int64_t line;    /* of the file; 0: it is --prompt */
    json_t *id;      /* as the file names it; NULL: it does not */
    char *error;     /* owns; why it cannot be answered; NULL: it can */
} Prompt;

struct Prompts {
    const char *path; /* of --prompts, for messages; NULL: --prompt */
    Prompt *item;     /* owns */
    int64_t n, capacity;
    int64_t n_bad;    /* with an error */
    int64_t longest_row; /* bytes of it in the file */
    int64_t bytes;    /* host memory they take, and took while they were read */
    uint64_t hash;    /* of everything in them */
};

/* --prompt, or the rows of --prompts ("-": standard input). A row that is none is refused by its line. */
bool prompts_read(Prompts *p, const GenSetup *g, Err *e);
/* One more, from a row as --prompts has them; and, when all are there, what they take. */
bool prompts_add(Prompts *p, const GenSetup *g, const json_t *row, int64_t line, Err *e);
void prompts_added(Prompts *p, int64_t read_bytes);
/* Sets the context that the longest prompt needs with its answer (into g->spec), unless --context was given, and marks
 * those that cannot be answered within it. Refused: none can. */
bool prompts_plan(Prompts *p, GenSetup *g, Err *e);
int64_t prompts_most_new(const Prompt *p, const GenSetup *g); /* tokens of an answer */
void prompts_fail(Prompts *p, int64_t i, const char *error);  /* it cannot be answered */
void prompts_describe_bad(Str *out, const Prompts *p);        /* "2 of 100 prompts failed: lines 3 and 17 of p.jsonl" */
void prompts_free(Prompts *p);

/* ---- generate_lines.c ---- */

typedef struct LinePlace {
    int64_t at, bytes; /* in the log; 0 bytes: not there yet, -1: there will be none */
} LinePlace;

/* Lines of an order that is not the one they come in. To standard output each is held until those before it are out;
 * for a file all are kept in "<out>.progress" as they come, and the file appears, in order and as a whole, at the
 * end. */
typedef struct AnswerLines {
    const char *out;  /* NULL: standard output */
    int64_t n;
    char **held;      /* owns; standard output: finished, waiting for those before */
    LinePlace *place; /* owns; a file */
    JobLog log;
    const GenerateHooks *hooks; /* keeps; its turn makes what is written of a line */
    int64_t written;  /* lines of standard output that are out, or have been passed over */
    int64_t n_done;   /* lines that are there */
} AnswerLines;

/* --out may be written; *whole: it is there already, and --resume was given. */
bool lines_check(const Options *o, bool *whole, Err *e);
void lines_init(AnswerLines *l, const char *out, int64_t n, const GenerateHooks *hooks);
/* With a file: begins the log, or goes on with it; every line it holds is given to take. */
bool lines_open(AnswerLines *l, const json_t *job, bool anew, JobLogTake *take, void *user, Err *e);
bool lines_has(const AnswerLines *l, int64_t i);
void lines_found(AnswerLines *l, int64_t i, int64_t at, int64_t bytes); /* for take: line i is there */
void lines_skip(AnswerLines *l, int64_t i);                             /* there will be no line i */
bool lines_add(AnswerLines *l, int64_t i, const json_t *line, Err *e);
/* All are there: the file appears and the log goes. Interrupted: what is finished is kept. */
bool lines_finish(AnswerLines *l, Err *e);
bool lines_interrupt(AnswerLines *l, Err *e);
void lines_free(AnswerLines *l);

#endif
