/* amr_verbs.h - the verbs of snug amr: each takes the options, with the file, if any, as the second word. */
#ifndef CLI_AMR_VERBS_H
#define CLI_AMR_VERBS_H

#include "amr/collect.h"
#include "cli/cmd.h"

/* A file of blocks, and which of them --val-split and --part choose. */
typedef struct AmrInput {
    AmrCorpus corpus;
    int64_t first, end;
} AmrInput;
/* The same for sentences to be parsed: a text that is no corpus becomes one whose blocks have a sentence and no
 * graph. */
bool amr_input_sentences(AmrInput *in, const char *path, Err *e);
void amr_input_choose(AmrInput *in, const Options *o);       /* first and end, of a corpus that is there */

typedef bool AmrVerb(const Options *o, AmrInput *in, Err *e); /* in: the corpus, or empty; freed by the caller */
AmrVerb amr_rows_verb, amr_collect_verb, amr_draw_verb;

/* --layout, or what the verb has without it. */
PenmanLayout amr_layout(const Options *o, PenmanLayout otherwise);

AmrCollect amr_collect_by(const Options *o); /* --take, --repair, --layout */

/* The end of a verb that has held `corpus` (NULL: none): with --json the last line, and what was taken beside what
 * such a corpus takes (peak_finish). Takes over result. */
bool amr_finish(json_t *result, const AmrCorpus *corpus, const Options *o, Err *e);

/* Refuses --json where the lines themselves would go to standard output. */
bool amr_json_needs_out(const Options *o, Err *e);

#endif
