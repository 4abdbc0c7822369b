/* rules.h - options that cannot have their effect beside others: refused or warned about, by one table.
 *
 * An option counts as given when its value is not the default: a saved config.yaml names every option and trips
 * nothing. What comes from a weaker source than the option that leaves it without effect (a recipe beside a flag)
 * gives way: it is warned about and falls back to its default. */
#ifndef CLI_RULES_H
#define CLI_RULES_H

#include "cli/options.h"
#include "model/config.h"

typedef enum RuleStage {
    RULE_OPTIONS, /* as soon as the options are there */
    RULE_MODEL,   /* once the model and the adapter are known */
    RULE_RUN      /* once the run's length and device are */
} RuleStage;

typedef struct RuleFacts {
    const ModelConfig *model;
    int adapter_rank; /* of --adapter; 0: there is none */
    int64_t total_steps, warmup_steps;
    bool on_cpu;
    const struct Dataset *data; /* NULL: the job makes its own rows */
} RuleFacts;

typedef enum RuleVerdict { RULE_REFUSE, RULE_WARN } RuleVerdict;

typedef struct Rule {
    const OptId *id;    /* what cannot have its effect: each of these; OPT_COUNT ends them */
    OptId by;           /* because of this one */
    const char *needs;  /* it would have to have one of these values ("cosine|linear"), or to be given, not to be, to be
                         * 0 or not (rules.c has the words); NULL: `broken` tells */
    bool (*broken)(const Options *o, const RuleFacts *f); /* NULL: `needs` tells; where both stand, both tell */
    RuleVerdict verdict;
    RuleStage stage;
    uint32_t commands;  /* ON_x */
    const char *text;   /* behind "--lora-rank 8: " */
    void (*say)(Str *out, const Options *o, const RuleFacts *f); /* the same with numbers; NULL: text is enough */
} Rule;

extern const Rule rules[];
int rules_count(void); /* rows */

/* ERR_USAGE for the first that is refused; warnings go to the log. f: NULL at RULE_OPTIONS. */
bool rules_check(Options *o, RuleStage stage, const RuleFacts *f, Err *e);

#endif
