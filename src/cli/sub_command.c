/* sub_command.c - which options of a command hold for the commands inside it. */
#include "cli/sub_command.h"

bool sub_command_begin(SubCommand *s, const Options *o, Command c, const char *model, const char *const *more,
                       int n, Err *e) {
    static const OptId passed[] = {OPT_THREADS,   OPT_DEVICE,   OPT_BUDGET,  OPT_MAX_MEMORY,   OPT_PRECISION,
                                   OPT_TOKENIZER, OPT_TEMPLATE, OPT_MACHINE, OPT_DETERMINISTIC};
    *s = (SubCommand){.word = {"--model", model}, .n = 2};
    CHECK(2 + 2 * COUNT_OF(passed) + n <= SUB_COMMAND_WORDS);
    static const char *const flags[] = {"--threads",   "--device",   "--budget",  "--max-memory",   "--precision",
                                        "--tokenizer", "--template", "--machine", "--deterministic"};
    for (int i = 0; i < COUNT_OF(passed); i++)
        if (opt_given(o, passed[i])) s->word[s->n++] = flags[i], s->word[s->n++] = opt_text(o, passed[i]);
    for (int i = 0; i < n; i++) s->word[s->n++] = more[i];
    bool ok = options_parse(&s->o, c, s->n, (char **)s->word, e);
    s->o.asked = o;
    return ok;
}
