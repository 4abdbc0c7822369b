/* hydra.c - words of open-unlearning's command line (`trainer=NPO forget_split=forget10`) and their options. */
#include <string.h>
#include <strings.h>

#include "cli/options_int.h"

typedef struct HydraRow {
    const char *names; /* any of them ("a|b"), as a whole or its last part; '-' stands for '_' */
    const char *value; /* NULL: any */
    const char *means; /* "method=lmcleaner,remove=steps"; "=*": the value as given; "": nothing; NULL: it is refused */
    const char *why;
    uint32_t commands; /* ON_x; 0: all */
} HydraRow;

#define BY_RUN "the model, its data and its log are those of the run: give --run DIR"

/* The first that fits counts; a name that is in no row is an option of ours, by any of its names. */
static const HydraRow rows[] = {
    {"trainer", "LMCleanerBatchLevel", "method=lmcleaner,remove=steps", NULL, ON_UNLEARN},
    {"trainer", "LMCleanerSampleLevel", "method=lmcleaner,remove=samples", NULL, ON_UNLEARN},
    {"trainer", NULL, "method=*", NULL, ON_UNLEARN},
    {"trainer", "finetune", "", NULL, ON_TRAIN},
    {"trainer", NULL, NULL, "samples are unlearned from a finished run: `snug unlearn --run DIR --method NAME`", 0},
    {"experiment|mode|eval|retain-split|holdout-split", NULL, "", NULL, 0}, /* what is not forgotten is retained */
    {"task-name", NULL, NULL, "results go where --out DIR says", 0},
    {"pretrained-model-name-or-path|model|training-log-dir", NULL, NULL, BY_RUN, ON_UNLEARN},
    {"model.tokenizer-args.pretrained-model-name-or-path", NULL, "tokenizer=*", NULL, 0},
    {"pretrained-model-name-or-path", NULL, "model=*", NULL, 0},
    {"hessian-mode", "GGN", NULL,
     "what is called GGN there is the exact Hessian: --hessian exact; the Gauss-Newton matrix is "
     "--hessian gauss-newton",
     ON_UNLEARN},
    {"alpha", NULL, "retain-alpha=*", NULL, ON_UNLEARN},
    {"beta", NULL, NULL, "it is --loss-beta of a loss, and --noise-beta of LMCleaner", ON_UNLEARN},
    {"delta", NULL, NULL, "it is --loss-delta of a loss, and --delta of LMCleaner's noise", ON_UNLEARN},
    {"use-historical-params", "true", "", NULL, ON_UNLEARN},
    {"use-historical-params", NULL, NULL, "Hessians are always those of the historical weights", ON_UNLEARN},
    {"hvp-micro-batch-size", NULL, NULL, "a product takes the micro-batches of the run", ON_UNLEARN},
    {"audit-dir", NULL, NULL, "audit.jsonl stands beside the result's weights", ON_UNLEARN},
};

bool hydra_is_word(const char *word) {
    const char *at = word + strspn(word, "+");
    size_t name = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
    return name > 0 && at[name] == '=';
}

static const HydraRow *find(Command c, const char *name, const char *last, const char *value) {
    for (int i = 0; i < COUNT_OF(rows); i++) {
        const HydraRow *r = &rows[i];
        if (r->commands && !(r->commands >> c & 1)) continue;
        if (!str_is_among(name, r->names) && !str_is_among(last, r->names)) continue;
        if (!r->value || !strcasecmp(r->value, value)) return r;
    }
    return NULL;
}

/* Every "name=value" of the row's meaning. */
static bool put_meaning(Options *o, const HydraRow *r, const char *value, const char *word, Err *e) {
    for (const char *at = r->means; *at; at += *at == ',') {
        int name = (int)strcspn(at, "="), len = (int)strcspn(at, ",");
        OptHit hit;
        const char *text = arena_printf(&o->arena, "%.*s", len - name - 1, at + name + 1);
        CHECK(options_lookup(&hit, o->command, arena_printf(&o->arena, "%.*s", name, at)));
        if (!options_belongs(&option_rows[hit.id], o->command))
            return options_foreign(o, &option_rows[hit.id], option_rows[hit.id].name, e);
        if (!options_put(o, &hit, strcmp(text, "*") ? text : value, FROM_FLAG, word, e)) return false;
        at += len;
    }
    return true;
}

bool hydra_put(Options *o, const char *given, Err *e) {
    const char *word = arena_strdup(&o->arena, given + strspn(given, "+"));
    int len = (int)strcspn(word, "=");
    const char *name = arena_printf(&o->arena, "%.*s", len, word), *value = word + len + 1;
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    const HydraRow *r = find(o->command, name, last, value);
    OptHit hit;
    if (r && r->means) return put_meaning(o, r, value, word, e);
    if (r) return fail(e, ERR_USAGE, "%s is not an option here: %s", word, r->why);
    if (!options_lookup(&hit, o->command, last)) return elsewhere_put(o, "", last, value, FROM_FLAG, word, e);
    if (!options_belongs(&option_rows[hit.id], o->command))
        return options_foreign(o, &option_rows[hit.id], option_rows[hit.id].name, e);
    if (hit.id == OPT_CONFIG || hit.id == OPT_SET || hit.id == OPT_HELP)
        return fail(e, ERR_USAGE, "%s: give --%s", word, option_rows[hit.id].name);
    return options_put(o, &hit, value, FROM_FLAG, word, e);
}
