/* options_help.c - what the options table looks like to a person: --help, the resolved configuration, and the
 * record of the mathematics that a resumed run is held against. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options_int.h"

enum { COLUMNS = 100, HELP_COLUMN = 30 };

static const char *const group_titles[GROUP_COUNT] = {
    [GROUP_JOB] = "Job",
    [GROUP_LORA] = "What is trained",
    [GROUP_PRECISION] = "Precision",
    [GROUP_BATCH] = "Batch and length",
    [GROUP_OPTIMIZER] = "Optimizer and schedule",
    [GROUP_DATA] = "From text to rows",
    [GROUP_GENERATE] = "Generation",
    [GROUP_SUITE] = "Benchmarks",
    [GROUP_REASON] = "Problems, judging, improving",
    [GROUP_GRPO] = "A policy, its rewards and its evaluator",
    [GROUP_AMR] = "Graphs",
    [GROUP_UNLEARN] = "Unlearning",
    [GROUP_MONITOR] = "What is shown, and where",
    [GROUP_MEMORY] = "Memory and machine (never changes a result)",
    [GROUP_CADENCE] = "How often",
    [GROUP_OTHER] = "This invocation",
};

const CommandRow command_rows[CMD_COUNT] = {
#define COMMAND(id, function, ...) [CMD_##id] = {__VA_ARGS__},
#include "cli/commands.def"
#undef COMMAND
};

/* What other tools call it, or offer beside it. */
static const struct {
    const char *words, *say;
} elsewhere_commands[] = {
    {"finetune|fine-tune|sft", "Did you mean `snug train`?"},
    {"pretrain", "Did you mean `snug train`, on what `snug prepare` makes?"},
    {"preprocess", "Did you mean `snug prepare`?"},
    {"run", "Did you mean `snug chat`, or `snug generate`?"},
    {"infer|inference", "Did you mean `snug generate`?"},
    {"cli", "Did you mean `snug chat`?"},
    {"evaluate", "Did you mean `snug eval`?"},
    {"benchmark|bench", "Did you mean `snug eval --suite NAME`, or `snug doctor`?"},
    {"export", "A result is a Hugging Face folder as it stands; `snug merge` folds an adapter in"},
    {"merge-lora", "Did you mean `snug merge`?"},
    {"ps", "Did you mean `snug monitor --once`?"},
    {"info|env", "Did you mean `snug doctor`?"},
    {"version|-v", "Did you mean `snug --version`?"},
    {"serve|server|api",
     "There is no HTTP server; `snug generate --prompts FILE` answers many, `snug chat` one after another"},
    {"pull|download", "Nothing is downloaded: `huggingface-cli download NAME --local-dir DIR`, then --model DIR"},
    {"dpo", "Preferences are not learned from; `snug train` and `snug grpo` are there"},
    {"ppo", "Did you mean `snug grpo`?"},
};

bool command_find(Command *c, const char *word, Err *e) {
    const char *names[CMD_COUNT];
    for (int i = 0; i < CMD_COUNT; i++) {
        names[i] = command_rows[i].name;
        *c = (Command)i;
        if (!strcmp(names[i], word)) return true;
    }
    for (int i = 0; i < COUNT_OF(elsewhere_commands); i++)
        if (str_is_among(word, elsewhere_commands[i].words))
            return fail(e, ERR_USAGE, "'%s' is not a command. %s", word, elsewhere_commands[i].say);
    const char *near = str_nearest(word, names, CMD_COUNT);
    if (near) return fail(e, ERR_USAGE, "'%s' is not a command. Did you mean `snug %s`?", word, near);
    return fail(e, ERR_USAGE, "'%s' is not a command; `snug --help` lists them", word);
}

/* ---- --help ---- */

/* Adds words from column `at` on, breaking lines so that they stand between `indent` and COLUMNS. */
static void add_wrapped(Str *out, const char *text, int indent, int at) {
    for (int len; *text; text += len) {
        text += strspn(text, " ");
        len = (int)strcspn(text, " ");
        bool first = at <= indent;
        if (!first && at + 1 + len > COLUMNS) {
            str_addf(out, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        str_addf(out, "%s%.*s", first ? "" : " ", len, text);
        at += len + !first;
    }
    str_add_char(out, '\n');
}

void options_add_choices(Str *out, const char *choices, const char *between) {
    for (const char *c = choices; *c; c += strcspn(c, "|"), c += *c == '|') {
        str_add(out, c == choices ? "" : between);
        str_add_bytes(out, c, (int64_t)strcspn(c, "=|"));
    }
}

static void add_left(Str *out, const OptRow *row) {
    bool is_on = row->type == OPT_FLAG && row->fallback && !strcmp(row->fallback, "true");
    str_addf(out, "--%s%s", is_on ? "[no-]" : "", row->name);
    if (row->type == OPT_FLAG) return;
    str_add(out, row->bare ? " [" : " ");
    if (row->type == OPT_CHOICE)
        options_add_choices(out, row->choices, "|");
    else if (row->type == OPT_LIST && row->choices)
        str_add(out, "A,B,...");
    else if (row->type == OPT_INT)
        str_add(out, "N");
    else if (row->type == OPT_REAL)
        str_add(out, "X");
    else if (row->type == OPT_BYTES)
        str_add(out, "SIZE");
    else
        str_add(out, row->unit);
    if (row->bare) str_add_char(out, ']');
}

/* " [default 16; 1 to 4096; also lora_r]": of the aliases the first, unless the list begins with a comma. */
static void add_facts(Str *out, const OptRow *row, Command c) {
    const char *fallback = options_fallback((OptId)(row - option_rows), c);
    Str facts = {0}; /* each behind a "; " */
    if (row->type == OPT_LIST && row->choices) {
        str_add(&facts, "; ");
        options_add_choices(&facts, row->choices, "|");
    }
    if (fallback && row->type != OPT_FLAG) str_addf(&facts, "; default %s", fallback);
    bool number = row->type == OPT_INT || row->type == OPT_REAL;
    if (number && row->high < 1e5 && row->high == floor(row->high))
        str_addf(&facts, "; %.15g to %.15g", row->low, row->high);
    if (row->aliases && row->aliases[0] != ',') {
        int len = (int)strcspn(row->aliases, ",=");
        str_addf(&facts, "; also %.*s", len, row->aliases);
        for (char *at = facts.data + facts.len - len; *at; at++) *at = (char)(*at == '-' ? '_' : *at);
    }
    if (facts.len) str_addf(out, " [%s]", facts.data + 2);
    str_free(&facts);
}

static void add_row(Str *out, const OptRow *row, Command c) {
    Str left = {0}, right = {0};
    str_add(&left, "  ");
    add_left(&left, row);
    str_add(&right, row->help);
    add_facts(&right, row, c);
    str_add(out, left.data);
    int at = (int)left.len;
    if (at >= HELP_COLUMN) str_add_char(out, '\n'), at = 0;
    str_addf(out, "%*s", HELP_COLUMN - at, "");
    add_wrapped(out, right.data, HELP_COLUMN, HELP_COLUMN);
    str_free(&left);
    str_free(&right);
}

static void add_usage(Str *out, Command c) {
    const CommandRow *row = &command_rows[c];
    str_addf(out, "usage: snug %s", row->name);
    for (int i = 0; i < OPT_COUNT; i++) {
        if (!(option_rows[i].needed >> c & 1)) continue;
        str_add_char(out, ' ');
        add_left(out, &option_rows[i]);
        if (i == OPT_FROM && row->positional) str_addf(out, " %s", row->positional);
    }
    if (row->positional && !(option_rows[OPT_FROM].needed >> c & 1)) str_addf(out, " %s", row->positional);
    str_add(out, " [options]\n");
}

void options_help(Str *out, Command c) {
    const CommandRow *row = &command_rows[c];
    str_addf(out, "snug %s - %s\n\n", row->name, row->summary);
    add_usage(out, c);
    if (row->about) {
        str_add_char(out, '\n');
        add_wrapped(out, row->about, 0, 0);
    }
    for (int g = 0; g < GROUP_COUNT; g++) {
        bool titled = false;
        for (int i = 0; i < OPT_COUNT; i++) {
            if ((int)option_rows[i].group != g || !(option_rows[i].commands >> c & 1)) continue;
            if (!titled) str_addf(out, "\n%s\n", group_titles[g]);
            titled = true;
            add_row(out, &option_rows[i], c);
        }
    }
    str_add(out, "\nExample:\n");
    for (const char *line = row->examples; *line; line += strcspn(line, "\n") + 1) {
        str_add(out, "  ");
        str_add_bytes(out, line, (int64_t)strcspn(line, "\n") + 1);
    }
    str_add(out,
            "\nNames may be written with - or _, values after a space or =.\n"
            "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 does not fit the budget.\n");
}

void options_overview(Str *out) {
    static const char *const topics[COMMAND_TOPICS] = {
        "what fits, what this machine can do, what it is doing", "learn", "answer", "measure", "models as files",
        "data", "sentences and their meaning as graphs (AMR)"};
    str_add(out,
            "snug - train, tune, evaluate and run language models inside the memory that is there\n\n"
            "usage: snug COMMAND [options]\n");
    for (int t = 0; t < COMMAND_TOPICS; t++) {
        str_addf(out, "\n%s\n", topics[t]);
        for (int i = 0; i < CMD_COUNT; i++)
            if (command_rows[i].topic == (CommandTopic)t)
                str_addf(out, "  %-13s %s\n", command_rows[i].name, command_rows[i].summary);
    }
    str_add(out,
            "\nfirst steps, with the small model that comes with snug:\n"
            "  snug problems --n 600 --out train.jsonl\n"
            "  snug plan  --model tally --data train.jsonl\n"
            "  snug train --model tally --data train.jsonl --mode lora --steps 8 --out run --budget 128MiB\n"
            "\n`snug COMMAND --help` shows the options of one command, `snug --version` the version; --quiet leaves\n"
            "only warnings and errors on standard error.\n"
            "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 does not fit the budget.\n");
}

/* ---- the resolved configuration ---- */

/* One line whatever the text holds: line breaks are shown as \n. */
static void add_shown(Str *out, const char *text) {
    for (; *text; text++) {
        if (*text == '\n')
            str_add(out, "\\n");
        else if (*text == '\t')
            str_add(out, "\\t");
        else
            str_add_char(out, *text);
    }
}

void options_print(Str *out, const Options *o, bool changed_only) {
    static const char *const honoured[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME",
                                           "OMP_NUM_THREADS"};
    for (int i = 0; i < OPT_COUNT; i++) {
        const OptRow *row = &option_rows[i];
        const OptValue *v = &o->value[i];
        if (!(row->commands >> o->command & 1) || !v->set || (changed_only && !v->origin)) continue;
        if (row->once && !v->origin) continue; /* a switch of this invocation that is off says nothing */
        Str text = {0};
        add_shown(&text, v->text);
        str_addf(out, v->origin ? "  %-17s %-28s %s\n" : "  %-17s %s\n", row->name, str_text(&text), v->origin);
        str_free(&text);
    }
    for (int i = 0; i < COUNT_OF(honoured); i++)
        if (getenv(honoured[i])) str_addf(out, "  %-17s %s\n", honoured[i], getenv(honoured[i]));
}

/* ---- the checkpoint's copy ---- */

/* Whether the row's value takes part in this run's mathematics: adapters do not without LoRA. How long a run is
 * may change (train/resume.c). */
static bool takes_part(const Options *o, OptId id) {
    if (!option_rows[id].maths || !(option_rows[id].commands >> o->command & 1)) return false;
    const char *usual = option_rows[id].fallback;
    if (option_rows[id].later && usual && opt_is(o, id, usual)) return false;
    if (option_rows[id].group == GROUP_LORA && id != OPT_MODE) return opt_is(o, OPT_MODE, "lora");
    return true;
}

json_t *options_json(const Options *o, bool maths) {
    json_t *map = json_object();
    for (int i = 0; i < OPT_COUNT; i++) {
        const OptRow *row = &option_rows[i];
        bool in = maths ? takes_part(o, (OptId)i) : (row->commands >> o->command & 1) && !row->once;
        if (in && o->value[i].set) json_object_set_new(map, row->name, json_string(o->value[i].text));
    }
    return map;
}
