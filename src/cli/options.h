/* options.h - everything a person can set: one table (options.def) read by flags, YAML files, --help,
 * the resolved configuration, the saved config.yaml and the checkpoint's record of the mathematics.
 *
 * Words: a *row* describes an option, a *value* is what this run has for it, and knows where it came from.
 * Precedence: a flag beats a file, a file beats the environment, the environment beats the default.
 *
 *     Options o;
 *     if (!options_parse(&o, CMD_TRAIN, argc - 2, argv + 2, &e)) ...     // options_free(&o) either way
 *     if (o.help) options_help(&out, CMD_TRAIN);
 *     double lr = opt_real(&o, OPT_LR); */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

typedef enum Command {
#define COMMAND(id, ...) CMD_##id,
#include "cli/commands.def"
#undef COMMAND
    CMD_COUNT
} Command;

/* A bit per command, for rows. */
enum {
    ON_PLAN = 1 << CMD_PLAN,
    ON_INIT = 1 << CMD_INIT,
    ON_CONVERT = 1 << CMD_CONVERT,
    ON_SUPERVISED = 1 << CMD_TRAIN,
    ON_GRPO = 1 << CMD_GRPO,
    ON_TRAIN = ON_SUPERVISED | ON_GRPO, /* trains */
    ON_QUANTIZE = 1 << CMD_QUANTIZE,
    ON_EVAL = 1 << CMD_EVAL | ON_QUANTIZE, /* quantize evaluates too: before and after */
    ON_SUITE = 1 << CMD_EVAL,              /* eval alone */
    ON_TOKENIZE = 1 << CMD_TOKENIZE,
    ON_MERGE = 1 << CMD_MERGE,
    ON_DOCTOR = 1 << CMD_DOCTOR,
    ON_GENERATE = 1 << CMD_GENERATE,
    ON_CHAT = 1 << CMD_CHAT,
    ON_REASON = 1 << CMD_REASON,
    ON_PROBLEMS = 1 << CMD_PROBLEMS,
    ON_AMR = 1 << CMD_AMR,
    ON_AMR_PARSE = 1 << CMD_AMR_PARSE,
    ON_SMATCH = 1 << CMD_SMATCH,
    ON_PREPARE = 1 << CMD_PREPARE,
    ON_UNLEARN = 1 << CMD_UNLEARN,
    ON_UNLEARN_EVAL = 1 << CMD_UNLEARN_EVAL,
    ON_MONITOR = 1 << CMD_MONITOR,
    ON_GRPO_EVAL = 1 << CMD_GRPO_EVAL,
    ON_REWARDED = ON_GRPO | ON_GRPO_EVAL,                      /* rewards a policy's answers */
    ON_GEN = ON_GENERATE | ON_CHAT | ON_REASON | ON_AMR_PARSE, /* answers prompts */
    ON_JOB = ON_PLAN | ON_TRAIN,                               /* shapes a training step */
    ON_PASS = ON_JOB | ON_EVAL,                                /* runs a model */
    ON_WRITE = ON_INIT | ON_CONVERT | ON_TRAIN | ON_MERGE,
    ON_ALL = (1 << CMD_COUNT) - 1
};

typedef enum OptGroup {
    GROUP_JOB,
    GROUP_LORA,
    GROUP_PRECISION,
    GROUP_BATCH,
    GROUP_OPTIMIZER,
    GROUP_DATA,
    GROUP_GENERATE,
    GROUP_SUITE,
    GROUP_REASON,
    GROUP_GRPO,
    GROUP_AMR,
    GROUP_UNLEARN,
    GROUP_MONITOR,
    GROUP_MEMORY,
    GROUP_CADENCE,
    GROUP_OTHER,
    GROUP_COUNT
} OptGroup;

typedef enum OptType {
    OPT_FLAG, /* --name, --no-name, --name=true|false */
    OPT_INT,
    OPT_REAL,
    OPT_BYTES, /* 24GiB, 512MiB, 4096 */
    OPT_TEXT,
    OPT_CHOICE, /* one of the row's choices */
    OPT_LIST,   /* comma separated or repeated; of the row's choices when it has some */
    OPT_PAIRS   /* a list of NAME=NUMBER */
} OptType;

typedef enum OptId {
#define OPTION(id, ...) id,
#include "cli/options.def"
#undef OPTION
    OPT_COUNT
} OptId;

typedef struct OptRow {
    const char *name; /* with '-' */
    OptGroup group;
    OptType type;
    const char *fallback; /* default as text; NULL: unset */
    double low, high;     /* both 0: no range */
    const char *unit;     /* numbers: "tokens"; texts: the word shown for the value, "DIR" */
    const char *choices; /* "cosine|linear|constant=constant-with-warmup": '=' adds spellings of the same choice */
    const char *bare;    /* the value when the name stands alone; NULL: a value is needed (a flag: "true") */
    const char *off;     /* the value of --no-name; NULL: there is none (a flag: "false") */
    const char *aliases; /* "learning-rate,..."; "bf16=bf16/": a switch standing for a value, on/off ("": ignored);
                          * --help shows the first, none when the list begins with a comma */
    const char *env;     /* environment variable that sets it when neither flag nor file does */
    const char *help;
    uint32_t commands; /* ON_x: where it belongs */
    uint32_t needed;   /* ON_x: where it must be given */
    bool maths;        /* changing it changes the mathematics: a resumed run refuses */
    bool later;        /* of maths: came later; at its default it is not kept, so that earlier checkpoints go on */
    bool once;         /* about this invocation, not about the job: not saved */
    bool one_each;     /* lists: every use is one element, commas are text */
    bool of_flags;     /* the value is made of flags and may begin with -- */
    bool escapes;      /* texts: \n and \t on the command line mean what they say */
    bool left_open;    /* the planner's to say unless given: a default is not saved, or it would be given then */
} OptRow;

typedef enum OptSource { FROM_DEFAULT, FROM_ENV, FROM_FILE, FROM_FLAG } OptSource;

typedef struct OptValue {
    bool set; /* has a value at all */
    OptSource source;
    const char *origin; /* "--lr", "recipe.yaml:7", "OMP_NUM_THREADS"; NULL: default, or derived from others */
    const char *text;   /* in one spelling: equal values have equal texts (sizes keep the person's own) */
    int64_t i;          /* flags (0/1), whole numbers, bytes */
    double r;           /* whole and real numbers */
    const char **list;  /* lists: elements; pairs: names */
    double *numbers;    /* pairs */
    const char **origins; /* of list: where each element stands */
    int n;              /* of list */
} OptValue;

typedef struct OptImplied { /* an option of another tool that was taken: elsewhere.h */
    const struct Elsewhere *row;
    const char *value; /* as given */
    OptSource source;
    const char *origin;
} OptImplied;

typedef struct Options {
    Command command;
    const struct Options *within; /* the command that this one is a part of, by which it is announced; NULL: none */
    bool help; /* --help was given: nothing else was checked */
    OptValue value[OPT_COUNT];
    const char *usual[OPT_COUNT]; /* the default as its value's text; NULL: unset */
    const char **positional; /* words that are not options */
    int n_positional;
    bool words_end; /* `--` stands among them */
    OptImplied implied[128];
    int n_implied;
    Arena arena; /* owns all texts */
} Options;

typedef enum CommandTopic { /* in the order of `snug --help` */
    TOPIC_MEMORY,
    TOPIC_TRAIN,
    TOPIC_ANSWER,
    TOPIC_MEASURE,
    TOPIC_MODEL,
    TOPIC_DATA,
    TOPIC_AMR,
    COMMAND_TOPICS
} CommandTopic;

typedef struct CommandRow {
    CommandTopic topic;
    const char *name, *summary;
    const char *positional; /* the words shown for them; NULL: none are taken */
    int least, most;        /* how many are */
    bool ends_at_once;      /* at a signal: it neither saves nor announces anything, and does not poll (base/stop.h) */
    const char *about;      /* one paragraph for --help */
    const char *examples;   /* lines */
} CommandRow;

extern const OptRow option_rows[OPT_COUNT];
extern const CommandRow command_rows[CMD_COUNT];

bool command_find(Command *c, const char *word, Err *e); /* ERR_USAGE with the nearest name */

/* Fills o from argv (without program and command); --config files come first whatever their place. A wrong
 * option or value is ERR_USAGE, an unreadable file ERR_FAIL. options_free in either case. */
bool options_parse(Options *o, Command command, int argc, char **argv, Err *e);
void options_free(Options *o);
void options_reset(Options *o, OptId id); /* back to the default, as if it had not been given */
/* A value that was found on the way, as if it had been given; both texts must outlive o. A wrong one is a BUG. */
void options_settle(Options *o, OptId id, const char *text, const char *origin);

/* The value, or the type's zero (text: NULL) when unset. */
bool opt_flag(const Options *o, OptId id);
int64_t opt_int(const Options *o, OptId id);
double opt_real(const Options *o, OptId id);
int64_t opt_bytes(const Options *o, OptId id);
const char *opt_text(const Options *o, OptId id);                   /* any type; lists joined by ',' */
int opt_list(const Options *o, OptId id, const char *const **list); /* number of elements */
const char *const *opt_list_origins(const Options *o, OptId id);    /* as OptValue.origin, of each element */
bool opt_pair(const Options *o, OptId id, int at, const char **name, double *number); /* false: no such element */
bool opt_is(const Options *o, OptId id, const char *text);
int opt_which(const Options *o, OptId id, const char *const *names, int n); /* the place of its text; 0: none of them */
bool opt_given(const Options *o, OptId id); /* by flag, file or environment */
bool opt_changed(const Options *o, OptId id); /* given, and not the default: a saved config.yaml gives all */

void options_help(Str *out, Command c);
void options_overview(Str *out); /* `snug --help`: the commands */

/* The resolved configuration; changed_only leaves out defaults. */
void options_print(Str *out, const Options *o, bool changed_only);

/* config.yaml: --config reads it back to the same values. */
void options_write_yaml(Str *out, const Options *o);

/* {name: text}; maths: only what a resumed run must not change. Gives. */
json_t *options_json(const Options *o, bool maths);

#endif
