/* options_help.c - what the options table looks like to a person: --help, the resolved configuration, and the
 * record of the mathematics that a resumed run is held against. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
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
    [CMD_PLAN] =
        {.name = "plan",
         .summary = "say, to the byte, what a training job will take; needs no weights",
         .about =
             "Every option of train is accepted, so that a training command can be planned as it stands; those "
             "not listed here do not change the plan. Exit code 3, with the cheapest changes, when --budget is "
             "too small.",
         .examples =
             "snug plan --model qwen2.5-7b --mode lora --lora-rank 128 --seq 1536 --accum 16 --recompute block\n"
             "snug plan --model qwen2.5-0.5b --seq 512 --budget 4GiB --json\n"
             "snug plan --model llama-3.1-8b --mode lora --global-batch 16 --gpu rtx-4090 --ladder --cards\n"},
    [CMD_INIT] = {.name = "init",
                  .summary = "write a model with random weights as a Hugging Face folder",
                  .about = "--set changes a value of the model's config.json and may be repeated.",
                  .examples =
                      "snug init --model qwen2.5-0.5b --out m0 --set num_hidden_layers=2 --set vocab_size=4096\n"},
    [CMD_CONVERT] = {.name = "convert",
                     .summary = "turn weights in another format into a Hugging Face folder",
                     .positional = "FILE|DIR",
                     .least = 1,
                     .most = 1,
                     .examples =
                         "snug convert --from llama2c stories260K.bin --tokenizer tok512.bin --out stories\n"
                         "snug convert --from dense Qwen2.5-0.5B --out sparse\n"},
    [CMD_TRAIN] =
        {.name = "train",
         .summary = "train or tune a model inside a memory budget",
         .about =
             "The folder --out receives config.yaml, plan.json, metrics.jsonl, train.log, TensorBoard events, "
             "checkpoint-N/, and the result as adapter/ or model/. The plan is made and checked against the "
             "budget before anything is loaded; at the end planned and "
             "measured bytes stand side by side. SIGINT, SIGTERM and SIGHUP save a checkpoint and leave with exit "
             "code 0.",
         .examples =
             "snug train --model m0 --data train.jsonl --out out --mode lora --lr 2e-4 --seq 512 --budget 2GiB\n"
             "snug train --model m0 --data tokens --mode full --seq 1024\n"
             "snug train --config recipes/sft-lora.yaml --set lr=1e-4\n"
             "snug train --config out/config.yaml --resume\n"},
    [CMD_PREPARE] =
        {.name = "prepare",
         .summary = "turn files of text into token shards that are trained on from disk",
         .positional = "FILE...",
         .least = 1,
         .most = 4096,
         .about = "JSON lines, tables, texts, and folders of them, also .gz and .zst. --out receives shards and "
                  "manifest.json; train and eval take the folder as --data and read it a row at a time. Killed or "
                  "stopped, the same command goes on.",
         .examples = "snug prepare --tokenizer m0 --out tokens books/ web.jsonl.zst\n"
                     "snug prepare --tokenizer m0 --out packed --pack-rows 2048 web.jsonl.gz\n"},
    [CMD_GRPO] =
        {.name = "grpo",
         .summary = "train a policy on its own answers (GRPO), judged by rewards or an evaluator model",
         .about =
             "Prompts of --data are answered --group times each, with the weights that are trained; answers, or "
             "what an --evaluator answers to them, are rewarded; the policy moves towards the better ones of a "
             "group, held near to --reference. One ring, one budget: `snug plan --task grpo` prints it. "
             "--batch-size counts answers.",
         .examples = "snug grpo --config recipes/grpo-demo.yaml\n"
                     "snug grpo --model m0 --parser easy_math --data gsm8k.jsonl --mode lora --out runs/g\n"},
    [CMD_GRPO_EVAL] = {.name = "grpo-eval",
                       .summary =
                           "a tuned policy beside the one it began as: mean rewards with intervals, best of K",
                       .about = "Both policies answer the same prompts greedily, the same evaluator carries out "
                                "what they wrote, the same "
                                "rewards score it; the difference is paired, item by item. With --best-of K each "
                                "prompt is also answered K "
                                "times, and its best answer counts. The models take turns in memory. --out: a "
                                "JSON line for each item.",
                       .examples =
                           "snug grpo-eval --model m0 --tuned runs/g --parser easy_math --data test.jsonl --json\n"
                           "snug grpo-eval --model m0 --tuned runs/g/adapter --evaluator m1:int8 --data "
                           "test.jsonl --best-of 8\n"},
    [CMD_EVAL] =
        {.name = "eval",
         .summary = "loss and perplexity of a model, with or without an adapter; benchmarks",
         .about =
             "With --suite, the benchmarks that people quote: choices are scored by their log-likelihood, answers "
             "of gsm8k "
             "are generated and extracted, prompts and measures are those of lm-evaluation-harness; rows are read "
             "from local files, nothing is downloaded. --json prints the results in its layout "
             "(results.hellaswag[\"acc_norm,none\"]). docs/evaluation.md tells more.",
         .examples = "snug eval --model m0 --adapter out/adapter --data test.jsonl --json\n"
                     "snug eval --model m0 --suite hellaswag,arc,mmlu --suite-data bench --limit 200 --json\n"
                     "snug eval --model m0 --suite needle --lengths 1024,4096 --svg needle.svg\n"},
    [CMD_TOKENIZE] = {.name = "tokenize",
                      .summary = "texts in, token ids out",
                      .about =
                          "Reads {\"text\": ...} lines from standard input and writes {\"ids\": [...]} lines.",
                      .examples = "snug tokenize --tokenizer m0 < texts.jsonl\n"},
    [CMD_MERGE] = {.name = "merge",
                   .summary = "fold a LoRA adapter into its model",
                   .examples = "snug merge --model m0 --adapter out/adapter --out merged\n"},
    [CMD_DOCTOR] =
        {.name = "doctor",
         .summary = "say what this machine is and can do, measured",
         .about = "Measures products, attention, memory and copies with the kernels that training uses, takes and "
                  "returns a real load, and writes the machine file: plan, train and eval then use the measured "
                  "rates and the same product algorithms.",
         .examples = "snug doctor --quick\nsnug doctor --device cuda:1 --quick --write h100.json\n"},
    [CMD_QUANTIZE] =
        {.name = "quantize",
         .summary = "store a model's projections as int8 or nf4, or say what that costs",
         .about =
             "--out writes a folder that train, eval and plan read without quantising again; --report compares "
             "perplexity. With both, the report comes first.",
         .examples = "snug quantize --model m0 --quantize nf4 --report --data test.jsonl --json\n"
                     "snug quantize --model m0 --quantize nf4 --out m0-nf4\n"},
    [CMD_GENERATE] =
        {.name = "generate",
         .summary = "answer prompts, many at a time, inside a memory budget",
         .about =
             "A prompt on the command line is answered on standard output. A file of prompts has a JSON object a "
             "line: text, "
             "messages (rendered by the model's chat template) or ids, and where wanted its own id, seed and "
             "max_tokens; the "
             "answers are JSON lines in the same order with text, ids, token counts and why each ended. As many "
             "requests run "
             "at a time as --slots says or the budget holds; one that ends leaves its place to the next at once.",
         .examples = "snug generate --model m0 --prompt Hello --max-tokens 64\n"
                     "snug generate --model m0 --adapter out/adapter --prompts p.jsonl --out a.jsonl --n 4\n"},
    [CMD_CHAT] = {.name = "chat",
                  .summary = "talk with a model in the terminal",
                  .about = "Lines in, answers out as they come, by the model's own chat template. /reset forgets "
                           "the conversation, "
                           "/quit (or the end of input) leaves, an interrupt ends the answer.",
                  .examples = "snug chat --model m0 --adapter out/adapter\n"},
    [CMD_REASON] =
        {.name = "reason",
         .summary = "solve math problems, judge the solutions, improve the weak ones",
         .about = "One set of weights plays all three roles. Each problem is solved step by step, judged by four "
                  "criteria, and "
                  "improved while its quality is below --threshold and rounds are left; the better version is "
                  "kept, and answers "
                  "are compared with the reference where the data has one. --out FILE.json holds the records, "
                  "FILE.csv and "
                  "FILE.html beside it the same as a table and as a page. Every reply is kept in "
                  "FILE.json.progress: the same "
                  "command goes on after a kill or an interrupt. Without --data, arithmetic problems are made up.",
         .examples =
             "snug reason --config recipes/reason.yaml --data gsm8k.jsonl --dataset gsm8k --out out.json\n"
             "snug reason --model m0 --num-examples 20 --max-iterations 1 --max-tokens 512 --out out.json\n"
             "snug reason --list-datasets\n"},
    [CMD_PROBLEMS] = {.name = "problems",
                      .summary = "arithmetic word problems as JSON lines, drawn by a seed",
                      .about = "Rows are conversations of the three roles of snug reason, to train on: solve, "
                               "judge (right and spoiled "
                               "solutions in turn), improve. Those of --part held-out have phrasings and numbers "
                               "that no row of --part "
                               "train has.",
                      .examples =
                          "snug problems --n 200000 --part train --out train.jsonl\n"
                          "snug problems --n 100 --roles none --part held-out --seed 7 --out problems.jsonl\n"},
    [CMD_AMR] =
        {.name = "amr",
         .summary = "sentences and their AMR graphs: check, rewrite, count, ask for, collect and draw them",
         .positional = "VERB [FILE]",
         .least = 1,
         .most = 2,
         .about =
             "check FILE: which blocks hold a valid graph, and what is wrong with the others. normalise FILE: the "
             "same blocks, graphs laid out alike. stats FILE: what is in them. triples FILE: every graph as "
             "triples, JSON lines. rows FILE: lines for snug train, or with --without-answers prompts for snug "
             "generate (FILE: blocks, or a sentence a line). collect ANSWERS.jsonl: what snug generate wrote "
             "becomes a file of blocks, one a sentence, failures in place. draw: small sentences with their "
             "graphs, "
             "made up. docs/amr.md tells the task from corpus to score.",
         .examples = "snug amr check train.amr --json\n"
                     "snug amr rows train.amr --amr-prompt unified --val-split 0.05 --out rows.jsonl\n"
                     "snug amr rows test.amr --without-answers --out prompts.jsonl\n"
                     "snug amr collect answers.jsonl --out pred.amr\n"
                     "snug amr draw --n 5000 --lang vi --out train.amr\n"},
    [CMD_AMR_PARSE] =
        {.name = "amr parse",
         .summary = "sentences in, one AMR graph each out, inside a memory budget",
         .positional = "FILE",
         .least = 1,
         .most = 1,
         .about = "FILE: blocks with # ::snt, or a sentence a line. Asks as --amr-prompt says, which must be what "
                  "the model "
                  "was trained with; ends an answer where its graph does; writes a block a sentence, in order. An "
                  "answer "
                  "without a valid graph keeps its place as # ::failed. --resume goes on with what an interrupted "
                  "run left. "
                  "The plan is that of snug generate, and so is what is told of it.",
         .examples = "snug amr parse test.amr --model m0 --adapter out/adapter --out pred.amr\n"
                     "snug amr parse sentences.txt --model m0 --amr-prompt unified --repair --out pred.amr\n"},
    [CMD_SMATCH] =
        {.name = "smatch",
         .summary = "how alike files of AMR graphs are: SMATCH, proved where it can be",
         .positional = "GOLD PRED...",
         .least = 2,
         .most = 64,
         .about =
             "Precision, recall and F1 over all triples of the file, with a 95 % interval; beside it the share of "
             "valid predictions, concepts, relations and roots, and SMATCH without labels, without senses, of "
             "re-entrancies. Scores equal those of the Python package smatch where that finds the best mapping; "
             "here it is proved for every pair that --node-limit allows. A prediction that is no valid graph "
             "counts "
             "as one without triples. Several predictions are compared in one table.",
         .examples = "snug smatch gold.amr pred.amr\n"
                     "snug smatch gold.amr checkpoint-200.amr checkpoint-400.amr --json\n"},
    [CMD_UNLEARN] =
        {.name = "unlearn",
         .summary = "take what was learned from some samples out of a model again",
         .about =
             "Works on a run that was trained with --step-log. The last line says how many updates saw the "
             "samples, "
             "how many Hessian products were made, the norm of the correction and whether it is certified; the "
             "record of it is audit.jsonl beside the weights. docs/unlearning.md tells what is promised.",
         .examples =
             "snug unlearn --run out --forget forget01 --window 10 --out out/forgot01\n"
             "snug unlearn --run out --forget rows.txt --hessian exact --epsilon 1 --bound 0.1 --out private\n"
             "snug unlearn --run out --method retrain --forget forget01 --out oracle\n"
             "snug unlearn --run out --method replay --at 40 --out theta40\n"},
    [CMD_UNLEARN_EVAL] =
        {.name = "unlearn-eval",
         .summary = "TOFU's metrics of a model that was made to forget",
         .about =
             "Probability, ROUGE-L, truth ratio, forget quality, model utility, extraction strength, exact "
             "memorisation, "
             "membership attacks and privleak, from a folder with TOFU's files. --out gets TOFU_EVAL.json and "
             "TOFU_SUMMARY.json in open-unlearning's layout; the last line has the aggregates. docs/unlearning.md "
             "has the formulas.",
         .examples =
             "snug unlearn-eval --model u/model --retain-model oracle/model --data tofu --forget forget01\n"
             "snug unlearn-eval --model out/model --data tofu --retain-logs eval/TOFU_EVAL.json --out eval2\n"},
    [CMD_MONITOR] =
        {.name = "monitor",
         .summary = "watch GPUs, memory and running jobs; record them; measure a command",
         .positional = "[-- COMMAND...]",
         .least = 0,
         .most = 4096,
         .about =
             "In a terminal all GPUs are drawn live with their processes, and every running snug job with its "
             "step, loss, time left and its memory beside the plan; q leaves. --once prints one look; --csv "
             "records "
             "the GPUs as rows; --serve shows all of it in a browser. Behind -- a command is run as it is: its "
             "exit "
             "code is passed on, and what it and all it started took is said at its end. Readings come from the "
             "driver's NVML; without a GPU the host's memory and the jobs are shown. "
             "docs/monitor.md tells more.",
         .examples = "snug monitor --interval 2\n"
                     "snug monitor --once --json\n"
                     "snug monitor --csv gpu.csv --interval 1 --duration 60\n"
                     "snug monitor -- python train.py --epochs 3\n"
                     "snug monitor --serve 8080\n"},
};

bool command_find(Command *c, const char *word, Err *e) {
    const char *names[CMD_COUNT];
    for (int i = 0; i < CMD_COUNT; i++) {
        names[i] = command_rows[i].name;
        *c = (Command)i;
        if (!strcmp(names[i], word)) return true;
    }
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

/* The choices without their other spellings: "cosine|linear|constant". */
static void add_choices(Str *out, const char *choices) {
    for (const char *c = choices; *c; c += strcspn(c, "|"), c += *c == '|') {
        str_add(out, c == choices ? "" : "|");
        str_add_bytes(out, c, (int64_t)strcspn(c, "=|"));
    }
}

static void add_left(Str *out, const OptRow *row) {
    bool is_on = row->type == OPT_FLAG && row->fallback && !strcmp(row->fallback, "true");
    str_addf(out, "--%s%s", is_on ? "[no-]" : "", row->name);
    if (row->type == OPT_FLAG) return;
    str_add(out, row->bare ? " [" : " ");
    if (row->type == OPT_CHOICE)
        add_choices(out, row->choices);
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
    const char *sep = " [";
    if (row->type == OPT_LIST && row->choices) {
        str_add(out, sep);
        add_choices(out, row->choices);
        sep = "; ";
    }
    if (fallback && row->type != OPT_FLAG) {
        str_addf(out, "%sdefault %s", sep, fallback);
        sep = "; ";
    }
    bool number = row->type == OPT_INT || row->type == OPT_REAL;
    if (number && row->high < 1e5 && row->high == floor(row->high)) {
        str_addf(out, "%s%.15g to %.15g", sep, row->low, row->high);
        sep = "; ";
    }
    if (row->aliases && row->aliases[0] != ',') {
        int len = (int)strcspn(row->aliases, ",=");
        str_addf(out, "%salso %.*s", sep, len, row->aliases);
        for (char *at = out->data + out->len - len; *at; at++) *at = (char)(*at == '-' ? '_' : *at);
        sep = "; ";
    }
    if (sep[0] == ';') str_add_char(out, ']');
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
    str_add(out,
            "snug - train, tune and run language models inside the memory that is there\n\n"
            "usage: snug COMMAND [options]\n\n");
    for (int i = 0; i < CMD_COUNT; i++)
        str_addf(out, "  %-10s %s\n", command_rows[i].name, command_rows[i].summary);
    str_add(
        out,
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
    if (option_rows[id].later && opt_is(o, id, option_rows[id].fallback)) return false;
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

bool options_check_maths(const Options *o, const json_t *saved, Err *e) {
    Str changes = {0};
    for (int i = 0; i < OPT_COUNT; i++) {
        if (!takes_part(o, (OptId)i)) continue;
        const char *name = option_rows[i].name, *now = opt_text(o, (OptId)i);
        const char *then = json_string_value(json_object_get(saved, name));
        if (now == then || (now && then && !strcmp(now, then))) continue;
        str_addf(&changes, "%s--%s was %.60s, is %.60s", changes.len ? "; " : "", name, then ? then : "not set",
                 now ? now : "not set");
    }
    bool same = changes.len == 0;
    if (!same)
        fail(e, ERR_USAGE,
             "this changes the mathematics of the run that is resumed: %.700s. "
             "Use the old values, or begin a new run in another --out",
             str_text(&changes));
    str_free(&changes);
    return same;
}
