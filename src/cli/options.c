/* options.c - which words are options and which value counts: lookup, precedence, and the values that follow from
 * others. */
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/options_int.h"
#include "cli/share.h"

const OptRow option_rows[OPT_COUNT] = {
#define OPTION(id, ...) [id] = {__VA_ARGS__},
#include "cli/options.def"
#undef OPTION
};

/* ---- finding a row by name or alias ---- */

/* Matches a word with one entry of an alias list: "name", or "name=on/off" for a switch. */
static bool alias_matches(OptHit *hit, const char *entry, int len, const char *word) {
    char text[96], *equals, *slash;
    CHECK(len < (int)sizeof text);
    snprintf(text, sizeof text, "%.*s", len, entry);
    equals = strchr(text, '=');
    if (equals) *equals++ = 0;
    if (!str_same_word(text, word)) return false;
    if (!equals) return true;
    slash = strchr(equals, '/');
    CHECK(slash);
    *slash++ = 0;
    hit->is_switch = true;
    snprintf(hit->on, sizeof hit->on, "%s", equals);
    snprintf(hit->off, sizeof hit->off, "%s", slash);
    return true;
}

static bool row_matches(OptHit *hit, int i, const char *word, bool by_alias) {
    *hit = (OptHit){.id = (OptId)i};
    if (!by_alias) return str_same_word(option_rows[i].name, word);
    for (const char *a = option_rows[i].aliases; a && *a; a += *a == ',') {
        int len = (int)strcspn(a, ",");
        if (len && alias_matches(hit, a, len, word)) return true;
        a += len;
    }
    return false;
}

bool options_lookup(OptHit *hit, Command c, const char *word) {
    for (int turn = 0; turn < 4; turn++) /* own names, own aliases, others' names, others' aliases */
        for (int i = 0; i < OPT_COUNT; i++)
            if (options_belongs(&option_rows[i], c) == (turn < 2) && row_matches(hit, i, word, turn % 2)) return true;
    return false;
}

/* plan takes every option of the commands that train, so that each of them can be planned as it stands. */
bool options_belongs(const OptRow *row, Command c) {
    return (row->commands >> c & 1) || (c == CMD_PLAN && (row->commands & ON_TRAIN));
}

/* The one name that begins with the word, as a person who typed half of it meant. */
static const char *only_completion(const char *word, const char *const *names, int n) {
    enum { LEAST = 4, LONGEST = 63 };
    const char *only = NULL;
    char head[LONGEST + 1];
    size_t length = strlen(word);
    if (length < LEAST || length > LONGEST) return NULL;
    for (int i = 0; i < n; i++) {
        snprintf(head, length + 1, "%s", names[i]);
        if (!str_same_word(head, word)) continue;
        if (only) return NULL;
        only = names[i];
    }
    return only;
}

/* The nearest name or alias of this command into found; false: none is near. */
static bool nearest_name(char found[64], const Options *o, const char *word) {
    char pool[8192]; /* aliases, cut out of their lists */
    const char *names[OPT_COUNT * 8];
    int n = 0, used = 0;
    for (int i = 0; i < OPT_COUNT; i++)
        if (options_belongs(&option_rows[i], o->command)) names[n++] = option_rows[i].name;
    for (int i = 0; i < OPT_COUNT; i++) {
        if (!options_belongs(&option_rows[i], o->command)) continue;
        for (const char *a = option_rows[i].aliases; a && *a; a += *a == ',') {
            int len = (int)strcspn(a, ","), keep = (int)strcspn(a, ",=");
            if (keep > 1 && n < COUNT_OF(names) && used + keep + 1 <= (int)sizeof pool) {
                names[n++] = pool + used;
                used += snprintf(pool + used, sizeof pool - (size_t)used, "%.*s", keep, a) + 1;
            }
            a += len;
        }
    }
    const char *near = only_completion(word, names, n);
    if (!near) near = str_nearest(word, names, n);
    if (near) snprintf(found, 64, "%s", near);
    return near != NULL;
}

bool options_unknown(const Options *o, const char *where, const char *word, Err *e) {
    const char *command = command_rows[o->command].name;
    char near[64];
    if (nearest_name(near, o, word))
        return fail(e, ERR_USAGE, "%s%s: there is no such option. Did you mean %s%s?", where, word,
                    str_ends(where, "--") ? "--" : "", near);
    return fail(e, ERR_USAGE, "%s%s: there is no such option; `snug %s --help` lists them", where, word, command);
}

/* ---- the command line ---- */

/* --set NAME=VALUE: a flag by another spelling. */
static bool put_set(Options *o, const char *text, Err *e) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text) return fail(e, ERR_USAGE, "--set: '%s' is not NAME=VALUE", text);
    const char *name = arena_printf(&o->arena, "%.*s", (int)(equals - text), text);
    OptHit hit;
    const char *origin = arena_printf(&o->arena, "--set %s", name);
    if (!options_lookup(&hit, o->command, name))
        return elsewhere_put(o, "--set ", name, equals + 1, FROM_FLAG, origin, e);
    const OptRow *row = &option_rows[hit.id];
    if (!options_belongs(row, o->command) || hit.id == OPT_SET || hit.id == OPT_CONFIG || hit.id == OPT_HELP)
        return fail(e, ERR_USAGE, "--set %s: this is not set that way for `snug %s`", name,
                    command_rows[o->command].name);
    return options_put(o, &hit, equals + 1, FROM_FLAG, origin, e);
}

static bool looks_like_option(const char *word) {
    return word[0] == '-' && word[1] == '-';
}

bool options_is_truth(const char *word) { return !strcasecmp(word, "true") || !strcasecmp(word, "false"); }

/* The value of a flag that may stand alone: the next word when it is one of its values. */
static bool takes_next(const OptHit *hit, const OptRow *row, const char *next) {
    if (!next || next[0] == '-') return false;
    if (options_is_truth(next)) return true;
    if (hit->is_switch || row->type == OPT_FLAG) return false;
    return !row->choices || options_choice(row->choices, next) >= 0;
}

bool options_foreign(const Options *o, const OptRow *row, const char *word, Err *e) {
    Str names = {0};
    const CommandRow *here = &command_rows[o->command];
    bool file = here->positional && str_starts(here->positional, "FILE") &&
                (row == &option_rows[OPT_DATA] || row == &option_rows[OPT_MODEL] || row == &option_rows[OPT_PROMPTS]);
    for (int c = 0; c < CMD_COUNT; c++)
        if (row->commands >> c & 1) str_addf(&names, "%s%s", names.len ? ", " : "", command_rows[c].name);
    fail(e, ERR_USAGE, "--%s belongs to: %s; not to `snug %s`%s%s%s", word, str_text(&names), here->name,
         file ? ", which is given " : "", file ? here->positional : "", file ? " without an option" : "");
    str_free(&names);
    return false;
}

/* An option of another tool: a switch, alone or before true or false, or a name before its value. */
static bool take_foreign(Options *o, const char *name, const char *value, const char *next, int *at, Err *e) {
    bool negated = str_starts(name, "no-") || str_starts(name, "no_");
    if (negated && elsewhere_kind(o->command, name + 3) != ELSEWHERE_SWITCH) negated = false;
    const char *origin = arena_printf(&o->arena, "--%s", name);
    ElsewhereKind kind = elsewhere_kind(o->command, negated ? name + 3 : name);
    if (!value && !negated && next && (kind == ELSEWHERE_VALUE ? !looks_like_option(next) : options_is_truth(next))) {
        value = next;
        ++*at;
    }
    if (kind == ELSEWHERE_SWITCH && !value) value = negated ? "false" : "true";
    return elsewhere_put(o, "--", negated ? name + 3 : name, value ? value : "", FROM_FLAG, origin, e);
}

/* Reads argv[*at], and the word after it when that is its value. only_config: pass over everything else. */
static bool take_flag(Options *o, int argc, char **argv, int *at, bool only_config, Err *e) {
    char *word = argv[*at] + 2, *equals = strchr(word, '=');
    const char *name = equals ? arena_printf(&o->arena, "%.*s", (int)(equals - word), word) : word;
    const char *inline_value = equals ? equals + 1 : NULL, *next = *at + 1 < argc ? argv[*at + 1] : NULL;
    char own[SHARE_PATH];
    OptHit hit;
    bool negated = false;
    if (!options_lookup(&hit, o->command, name)) {
        negated = (str_starts(name, "no-") || str_starts(name, "no_")) && options_lookup(&hit, o->command, name + 3);
        if (!negated) return only_config || take_foreign(o, name, inline_value, next, at, e);
    }
    const OptRow *row = &option_rows[hit.id];
    const char *off = row->type == OPT_FLAG || hit.is_switch ? "false" : row->off;
    if (!options_belongs(row, o->command) && elsewhere_kind(o->command, name) != ELSEWHERE_UNKNOWN)
        return only_config || take_foreign(o, name, inline_value, next, at, e);
    if (!options_belongs(row, o->command)) return options_foreign(o, row, name, e);
    if (negated && (!off || inline_value))
        return fail(e, ERR_USAGE, "--%s: --%s needs a value and has no opposite", name, row->name);
    bool may_stand_alone = hit.is_switch || row->bare || row->type == OPT_FLAG;
    const char *value = negated ? off : inline_value;
    if (!value && may_stand_alone && takes_next(&hit, row, next)) value = argv[++*at];
    if (!value && may_stand_alone) value = hit.is_switch || row->type == OPT_FLAG ? "true" : row->bare;
    if (!value && (!next || (looks_like_option(next) && !row->of_flags)))
        return fail(e, ERR_USAGE, "--%s: a value is missing%s", name,
                    next ? " (a value that begins with -- is written --name=VALUE)" : "");
    if (!value) value = argv[++*at];
    if (only_config != (hit.id == OPT_CONFIG)) return true;
    if (hit.id == OPT_SET && o->command != CMD_INIT && o->command != CMD_CONVERT) return put_set(o, value, e);
    return options_put(o, &hit, value, FROM_FLAG, arena_printf(&o->arena, "--%s", name), e) &&
           (hit.id != OPT_CONFIG || options_read_yaml(o, share_find(own, "recipes", value), e));
}

static bool take_positional(Options *o, const char *word, Err *e) {
    const CommandRow *c = &command_rows[o->command];
    if (o->n_positional == c->most && hydra_is_word(word)) return hydra_put(o, word, e);
    if (o->n_positional == c->most)
        return fail(e, ERR_USAGE, "'%s': `snug %s` takes %s; options begin with --", word, c->name,
                    c->positional ? c->positional : "no such word");
    if (!o->positional) o->positional = ARENA_NEW(&o->arena, const char *, c->most);
    o->positional[o->n_positional++] = arena_strdup(&o->arena, word);
    return true;
}

/* Short options of other tools (llama.cpp's): what they are called here. */
static bool refuse_short(const char *word, Err *e) {
    static const struct {
        const char *word, *ours;
    } known[] = {{"-m", "--model"},   {"-p", "--prompt"},  {"-f", "--prompts"}, {"-n", "--max-tokens"},
                 {"-c", "--context"}, {"-t", "--threads"}, {"-s", "--seed"},    {"-o", "--out"},
                 {"-d", "--data"},    {"-q", "--quiet"},   {"-hf", "--model"},  {"-ngl", "--budget"},
                 {"-b", "--batch-size"}};
    for (int i = 0; i < COUNT_OF(known); i++)
        if (!strcmp(word, known[i].word))
            return fail(e, ERR_USAGE, "%s: options begin with two dashes. Did you mean %s?", word, known[i].ours);
    return fail(e, ERR_USAGE, "%s: options begin with two dashes", word);
}

static bool take_words(Options *o, int argc, char **argv, bool only_config, Err *e) {
    bool options_end = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!options_end && !strcmp(word, "--")) {
            o->words_end = options_end = true;
        } else if (!options_end && looks_like_option(word)) {
            if (!take_flag(o, argc, argv, &i, only_config, e)) return false;
        } else if (!options_end && word[0] == '-' && word[1]) {
            return refuse_short(word, e);
        } else if (!only_config && !take_positional(o, word, e)) {
            return false;
        }
    }
    return true;
}

static bool asks_help(int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return true;
    return false;
}

/* ---- defaults, and what follows from other values ---- */

/* Where a command has another default than the rest. */
static const struct {
    Command command;
    OptId id;
    const char *text;
} own_fallback[] = {
    {CMD_REASON, OPT_TEMPERATURE, "0.6"},
    {CMD_REASON, OPT_TOP_P, "0.95"},
    {CMD_REASON, OPT_MAX_TOKENS, "4096"},
    {CMD_REASON, OPT_QUANTIZE, "int8"},
    {CMD_AMR_PARSE, OPT_MAX_TOKENS, "512"},
    {CMD_UNLEARN, OPT_LR, "1e-5"},
    {CMD_UNLEARN, OPT_EPOCHS, "10"},
    {CMD_UNLEARN, OPT_GLOBAL_BATCH, "32"},
    {CMD_UNLEARN, OPT_MICRO_BATCH, "8"},
    {CMD_UNLEARN, OPT_SEED, "0"},
    {CMD_UNLEARN_EVAL, OPT_FORGET, "forget10"},
    {CMD_UNLEARN_EVAL, OPT_MAX_TOKENS, "200"},
    {CMD_UNLEARN_EVAL, OPT_SEQ, "512"},
    {CMD_UNLEARN_EVAL, OPT_MICRO_BATCH, "4"},
};

const char *options_fallback(OptId id, Command c) {
    for (int i = 0; i < COUNT_OF(own_fallback); i++)
        if (own_fallback[i].command == c && own_fallback[i].id == id) return own_fallback[i].text;
    return option_rows[id].fallback;
}

static void put_defaults(Options *o) {
    for (int i = 0; i < OPT_COUNT; i++) {
        const OptRow *row = &option_rows[i];
        Err e;
        OptHit hit = {.id = (OptId)i};
        const char *fallback = options_fallback(hit.id, o->command);
        if (fallback && options_belongs(row, o->command))
            CHECK_MSG(options_put(o, &hit, fallback, FROM_DEFAULT, NULL, &e), "%s", e.text);
        const char *env = row->env ? getenv(row->env) : NULL;
        /* The environment speaks to many programs: what does not fit here ("4,2") is left alone. */
        if (env && *env && options_belongs(row, o->command)) options_put(o, &hit, env, FROM_ENV, row->env, NULL);
    }
}

static void keep_usual(Options *o) {
    for (int i = 0; i < OPT_COUNT; i++) o->usual[i] = o->value[i].source == FROM_DEFAULT ? o->value[i].text : NULL;
}

static void derive(Options *o, OptId id, double number) {
    bool whole = option_rows[id].type == OPT_INT;
    o->value[id] = (OptValue){
        .set = true, .i = whole ? (int64_t)number : 0, .r = number, .text = options_number_text(&o->arena, number)};
    if (whole) o->value[id].text = arena_printf(&o->arena, "%lld", (long long)number);
}

enum { GLOBAL_BATCH = 16 }; /* when nothing is said about batches */

/* micro-batch, accum and global-batch say two things in three numbers: the weakest source gives way. */
static bool settle_batch(Options *o, Err *e) {
    const OptValue *micro = &o->value[OPT_MICRO_BATCH], *accum = &o->value[OPT_ACCUM];
    const OptValue *global = &o->value[OPT_GLOBAL_BATCH];
    if (!global->set && !opt_given(o, OPT_MICRO_BATCH) && !opt_given(o, OPT_ACCUM)) {
        derive(o, OPT_GLOBAL_BATCH, GLOBAL_BATCH);
        int64_t steps = (GLOBAL_BATCH + micro->i - 1) / micro->i;
        derive(o, OPT_ACCUM, (double)steps);
        return true;
    }
    if (!global->set || accum->source > global->source) {
        derive(o, OPT_GLOBAL_BATCH, (double)micro->i * (double)accum->i);
        return true;
    }
    int64_t need = (global->i + micro->i - 1) / micro->i;
    if (accum->source < MAX2(global->source, micro->source)) {
        derive(o, OPT_ACCUM, (double)need);
        return true;
    }
    if (accum->i == need) return true;
    return fail(e, ERR_USAGE, "global-batch %s is not micro-batch %s x accum %s; leave one of them out",
                global->text, micro->text, accum->text);
}

/* --epochs on the command line beats --steps of a file. */
static void settle_length(Options *o) {
    if (o->value[OPT_EPOCHS].source > o->value[OPT_STEPS].source && o->value[OPT_STEPS].set)
        options_forget(o, OPT_STEPS);
}

static bool refuse_incomplete(const Options *o, const OptRow *missing, Err *e) {
    const char *name = command_rows[o->command].name;
    bool alone = o->command == CMD_TRAIN && o->value[OPT_RESUME].set && !o->value[OPT_CONFIG].set;
    if (alone)
        return fail(e, ERR_USAGE,
                    "`snug train --resume` needs --%s too, and all else that the run was made with. Its own file has "
                    "it: snug train --config RUN/config.yaml --resume",
                    missing->name);
    return fail(e, ERR_USAGE, "`snug %s` needs --%s %s (%s)", name, missing->name,
                missing->choices ? missing->choices : missing->unit, missing->help);
}

static bool check_needed(const Options *o, Err *e) {
    const CommandRow *c = &command_rows[o->command];
    for (int i = 0; i < OPT_COUNT; i++)
        if ((option_rows[i].needed >> o->command & 1) && !o->value[i].set)
            return refuse_incomplete(o, &option_rows[i], e);
    if (o->n_positional < c->least)
        return fail(e, ERR_USAGE, "`snug %s` needs %s; see `snug %s --help`", c->name, c->positional, c->name);
    return true;
}

static void derive_alpha(Options *o) { /* unless it is given */
    OptValue *alpha = &o->value[OPT_LORA_ALPHA];
    if (!alpha->set || alpha->source == FROM_DEFAULT)
        derive(o, OPT_LORA_ALPHA, 2 * (double)opt_int(o, OPT_LORA_RANK));
}

static void derive_lr(Options *o) { /* unless it is given: of adapters, of a model from scratch, of one that is tuned */
    OptValue *lr = &o->value[OPT_LR];
    if (!lr->set || lr->source == FROM_DEFAULT)
        derive(o, OPT_LR, opt_is(o, OPT_MODE, "lora") ? 2e-4 : opt_given(o, OPT_INIT) ? 3e-4 : 2e-5);
}

void options_reset(Options *o, OptId id) {
    const char *fallback = options_fallback(id, o->command);
    options_forget(o, id);
    if (fallback) CHECK(options_put(o, &(OptHit){.id = id}, fallback, FROM_DEFAULT, NULL, NULL));
    options_join_lists(o);
    if (id == OPT_LORA_RANK || id == OPT_LORA_ALPHA) derive_alpha(o);
    if (id == OPT_LR || id == OPT_MODE || id == OPT_INIT) derive_lr(o);
}

bool options_parse(Options *o, Command command, int argc, char **argv, Err *e) {
    *o = (Options){.command = command};
    arena_init(&o->arena, "options");
    if ((o->help = asks_help(argc, argv))) return true;
    put_defaults(o);
    options_join_lists(o);
    keep_usual(o);
    if (!take_words(o, argc, argv, true, e) || !take_words(o, argc, argv, false, e)) return false;
    if (!elsewhere_settle(o, e)) return false;
    options_join_lists(o);
    bool only_lists = opt_is(o, OPT_GPU, "list") || opt_flag(o, OPT_LIST_DATASETS) || opt_given(o, OPT_DATASET_INFO) ||
                      opt_flag(o, OPT_MERGE) || opt_given(o, OPT_COMPARE_EVALS) ||
                      opt_given(o, OPT_CHECK_AUDIT); /* about no model */
    if (!only_lists && !check_needed(o, e)) return false;
    if (!(ON_JOB >> command & 1)) return true;
    derive_alpha(o);
    derive_lr(o);
    settle_length(o);
    return settle_batch(o, e);
}

void options_settle(Options *o, OptId id, const char *text, const char *origin) {
    OptType type = option_rows[id].type;
    CHECK(type == OPT_INT || type == OPT_REAL || type == OPT_CHOICE || type == OPT_TEXT);
    double number = type == OPT_INT || type == OPT_REAL ? strtod(text, NULL) : 0;
    o->value[id] = (OptValue){.set = true, .source = FROM_FLAG, .origin = origin,
                              .text = text, .i = (int64_t)number, .r = number};
}

void options_free(Options *o) {
    arena_free(&o->arena);
}

/* ---- reading values ---- */

static const OptValue *value_of(const Options *o, OptId id, OptType type) {
    CHECK_MSG(option_rows[id].type == type, "--%s is read as another type", option_rows[id].name);
    return &o->value[id];
}

bool opt_flag(const Options *o, OptId id) {
    return value_of(o, id, OPT_FLAG)->i != 0;
}
int64_t opt_int(const Options *o, OptId id) {
    return value_of(o, id, OPT_INT)->i;
}
double opt_real(const Options *o, OptId id) {
    return value_of(o, id, OPT_REAL)->r;
}
int64_t opt_bytes(const Options *o, OptId id) {
    return value_of(o, id, OPT_BYTES)->i;
}
const char *opt_text(const Options *o, OptId id) {
    return o->value[id].text;
}
bool opt_given(const Options *o, OptId id) {
    return o->value[id].source != FROM_DEFAULT;
}

bool opt_changed(const Options *o, OptId id) {
    const char *now = o->value[id].text, *usual = o->usual[id];
    return opt_given(o, id) && now && (!usual || strcmp(now, usual));
}

bool opt_is(const Options *o, OptId id, const char *text) {
    return o->value[id].text && !strcmp(o->value[id].text, text);
}

int opt_which(const Options *o, OptId id, const char *const *names, int n) {
    int i = n - 1;
    while (i > 0 && !opt_is(o, id, names[i])) i--;
    return i;
}

int opt_list(const Options *o, OptId id, const char *const **list) {
    const OptValue *v = value_of(o, id, OPT_LIST);
    *list = v->list;
    return v->n;
}

const char *const *opt_list_origins(const Options *o, OptId id) {
    return value_of(o, id, OPT_LIST)->origins;
}

bool opt_pair(const Options *o, OptId id, int at, const char **name, double *number) {
    const OptValue *v = value_of(o, id, OPT_PAIRS);
    if (at < 0 || at >= v->n) return false;
    *name = v->list[at];
    *number = v->numbers[at];
    return true;
}
