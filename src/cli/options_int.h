/* options_int.h - what the options files share among themselves; nobody else includes it. */
#ifndef CLI_OPTIONS_INT_H
#define CLI_OPTIONS_INT_H

#include "cli/elsewhere.h"
#include "cli/options.h"

typedef struct OptHit {
    OptId id;
    bool is_switch; /* an alias that stands for a value: on when true, off when false ("": ignored) */
    char on[24], off[24];
} OptHit;

/* By name or alias; what belongs to the command comes first, and a name before an alias. false: unknown. */
bool options_lookup(OptHit *hit, Command c, const char *word);
const char *options_fallback(OptId id, Command c); /* the default as text; NULL: unset */
bool options_belongs(const OptRow *row, Command c);
bool options_is_truth(const char *word); /* "true" or "false", in any case */

/* Says that there is no such option, with the nearest; always false. `where` stands before the word:
 * "--" for flags, "recipe.yaml:7: " for files. */
bool options_unknown(const Options *o, const char *where, const char *word, Err *e);

bool options_put(Options *o, const OptHit *hit, const char *text, OptSource source, const char *origin, Err *e);
bool options_off_says_nothing(const Options *o, const OptHit *hit, const char *text, OptSource source);
void options_forget(Options *o, OptId id); /* back to unset */

/* The choices without their other spellings: "cosine|linear|constant". */
void options_add_choices(Str *out, const char *choices, const char *between);

/* ---- values (options_value.c) ---- */
int options_choice(const char *choices, const char *word); /* which of "cosine|linear=..." it is; -1: none */
const char *options_number_text(Arena *a, double number);  /* in the one spelling of a value's text */
void options_join_lists(Options *o);                       /* texts of lists, from their elements */

/* Says which commands the row belongs to; always false. */
bool options_foreign(const Options *o, const OptRow *row, const char *word, Err *e);

/* ---- options of other tools (elsewhere.c) ---- */

typedef enum ElsewhereKind { ELSEWHERE_UNKNOWN, ELSEWHERE_SWITCH, ELSEWHERE_VALUE } ElsewhereKind;
ElsewhereKind elsewhere_kind(Command c, const char *name);
bool elsewhere_is_object(Command c, const char *name); /* its value is a map of further names and values */

/* Takes or refuses name and value; what they mean is set by elsewhere_settle, once all words are there. An unknown name
 * is options_unknown's. */
bool elsewhere_put(Options *o, const char *where, const char *name, const char *value, OptSource source,
                   const char *origin, Err *e);
/* The same for a foreign value of one of our own options, which has taken it already. */
bool elsewhere_value(Options *o, OptId id, const char *value, OptSource source, const char *origin, Err *e);
bool elsewhere_is_idle(Command c, OptId id, const char *value); /* of an option of ours: taken and not needed */
const char *elsewhere_why_not(Command c, OptId id, const char *value); /* NULL: nothing is known about it */
bool elsewhere_settle(Options *o, Err *e); /* two that contradict each other: ERR_USAGE */

/* ---- words of other tools' command lines (hydra.c): NAME=VALUE without dashes ---- */
bool hydra_is_word(const char *word);
bool hydra_put(Options *o, const char *word, Err *e); /* takes it as the option that it means, or says which to give */

/* other_config.c: refuses a yaml_document_t whose root is another tool's configuration, with the options it means. */
bool other_config_check(void *document, const void *root, const char *path, Err *e);

/* other_data.c: the files that axolotl's list of data sets names, a yaml_node_t, become values of --data or --eval-data
 * (to). One that does not lie here is refused where it is opened, so that a flag may name another. */
bool other_data_take(Options *o, void *document, const void *sequence, const char *path, OptId to, Err *e);

bool options_read_yaml(Options *o, const char *path, Err *e);

#endif
