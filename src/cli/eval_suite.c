/* eval_suite.c - snug eval --suite: from options to items, an engine of the size they need, and where results go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/gen_setup.h"
#include "cli/show.h"
#include "obs/sensors.h"
#include "suite/suite.h"

enum { LENGTHS_MOST = 16 };

typedef struct SuiteJob {
    const Options *o;
    GenSetup setup;
    Suite *suite;
    int64_t length[LENGTHS_MOST];
    int n_lengths;
    double seconds;
} SuiteJob;

/* ---- options ---- */

static bool check_names(const Options *o, Err *e) {
    const char *const *name;
    int n = opt_list(o, OPT_SUITE, &name);
    for (int i = 0; i < n; i++) {
        Str known = {0};
        suite_names(&known);
        if (!suite_known(name[i])) fail(e, ERR_USAGE, "--suite %s: is not one of %s", name[i], str_text(&known));
        str_free(&known);
        if (!suite_known(name[i])) return false;
        if (suite_needs_folder(name[i]) && !opt_given(o, OPT_SUITE_DATA))
            return fail(e, ERR_USAGE, "--suite %s: needs --suite-data DIR, where its rows are", name[i]);
        if (!strcmp(name[i], "perplexity") && !opt_given(o, OPT_DATA))
            return fail(e, ERR_USAGE, "--suite perplexity: needs --data FILE, the text to score");
        for (int k = 0; k < i; k++)
            if (!strcmp(name[i], name[k])) return fail(e, ERR_USAGE, "--suite %s: stands there twice", name[i]);
    }
    return true;
}

static bool read_lengths(SuiteJob *j, Err *e) {
    const char *const *text;
    int n = opt_list(j->o, OPT_LENGTHS, &text);
    if (n > LENGTHS_MOST) return fail(e, ERR_USAGE, "--lengths: %d at most", LENGTHS_MOST);
    for (int i = 0; i < n; i++) {
        char *end;
        int64_t length = j->length[j->n_lengths++] = strtoll(text[i], &end, 10);
        if (*end || length < 64 || length > 4194304)
            return fail(e, ERR_USAGE, "--lengths %s: must be a whole number of tokens from 64 to 4194304",
                        text[i]);
        for (int k = 0; k < i; k++)
            if (j->length[k] == length) return fail(e, ERR_USAGE, "--lengths %s: stands there twice", text[i]);
    }
    return true;
}

/* Tokens that the model may see: its positions, or fewer by --context or a sliding window. */
static int64_t positions_of(const SuiteJob *j) {
    const ModelConfig *c = &j->setup.model.config;
    int64_t n = c->max_positions ? c->max_positions : 2048;
    if (c->sliding_window) n = MIN2(n, c->sliding_window - 1);
    return opt_given(j->o, OPT_CONTEXT) ? MIN2(n, opt_int(j->o, OPT_CONTEXT)) : n;
}

static SuiteSpec spec_of(const SuiteJob *j) {
    const Options *o = j->o;
    SuiteSpec s = {.tokenizer = j->setup.words.tokenizer,
                   .folder = opt_text(o, OPT_SUITE_DATA),
                   .text_field = opt_text(o, OPT_TEXT_FIELD),
                   .limit = opt_int(o, OPT_LIMIT),
                   .shots = opt_given(o, OPT_NUM_FEWSHOT) ? opt_int(o, OPT_NUM_FEWSHOT) : -1,
                   .positions = positions_of(j),
                   .stop_id = j->setup.stop.id,
                   .n_stop_ids = j->setup.stop.n,
                   .length = j->length,
                   .n_lengths = j->n_lengths,
                   .depths = (int)opt_int(o, OPT_DEPTHS),
                   .seed = (uint64_t)opt_int(o, OPT_SEED)};
    s.n_names = opt_list(o, OPT_SUITE, &s.name);
    s.n_texts = opt_list(o, OPT_DATA, &s.text);
    return s;
}

/* ---- the engine ---- */

static bool start(SuiteJob *j, Err *e) {
    GenSpec *spec = &j->setup.spec;
    spec->context = suite_context(j->suite);
    spec->slots = gen_setup_slots(&j->setup, suite_at_once(j->suite));
    GenHost host = {.requests = suite_bytes(j->suite)};
    return gen_setup_start(&j->setup, &host, !opt_given(j->o, OPT_SLOTS), spec->context, e);
}

/* ---- results ---- */

static bool write_with(void (*put)(Str *out, const Suite *s), const SuiteJob *j, OptId id, Err *e) {
    Str text = {0};
    if (!opt_given(j->o, id)) return true;
    put(&text, j->suite);
    const char *path = opt_text(j->o, id);
    if (!file_write_str(path, &text, e)) return false;
    log_line("written: %s", path);
    return true;
}

static bool write_files(const SuiteJob *j, Err *e) {
    if (opt_given(j->o, OPT_ITEMS) && !suite_write_items(j->suite, opt_text(j->o, OPT_ITEMS), e)) return false;
    return write_with(suite_svg, j, OPT_SVG, e) && write_with(suite_page, j, OPT_HTML, e);
}

static void print_json(const SuiteJob *j, const Peak *peak) {
    const GenSetup *n = &j->setup;
    const EngineCounts *c = &n->engine.counts;
    json_t *root = suite_json(j->suite);
    json_t *more = json_pack("{s:f, s:I, s:I, s:I, s:f, s:f, s:I, s:I}", "seconds", j->seconds, "prefill_tokens",
                             (json_int_t)c->prefill_tokens, "shared_tokens", (json_int_t)c->shared_tokens, "tokens",
                             (json_int_t)c->new_tokens, "prefill_seconds", c->prefill_seconds, "decode_seconds",
                             c->decode_seconds, "slots", (json_int_t)n->gen->spec.slots, "context",
                             (json_int_t)n->gen->spec.context);
    peak_add_ring(more, &n->ring, peak);
    json_object_update_new(root, more);
    show_print_json(root);
}

static void say_speed(const SuiteJob *j) {
    const EngineCounts *c = &j->setup.engine.counts;
    int64_t all = c->prefill_tokens + c->shared_tokens + c->new_tokens;
    log_line(
        "%s tokens of prompts (%s more found in the cache) and %s of continuations in %.2f s: %.1f tokens/s, "
        "prefill %.1f tokens/s, decode %.1f tokens/s",
        units_count(c->prefill_tokens).s, units_count(c->shared_tokens).s, units_count(c->new_tokens).s,
        j->seconds, j->seconds > 0 ? (double)all / j->seconds : 0,
        c->prefill_seconds > 0 ? (double)c->prefill_tokens / c->prefill_seconds : 0,
        c->decode_seconds > 0 ? (double)c->new_tokens / c->decode_seconds : 0);
}

static bool report(SuiteJob *j, Err *e) {
    Peak peak = gen_setup_show_measured(&j->setup);
    say_speed(j);
    if (opt_flag(j->o, OPT_JSON))
        print_json(j, &peak);
    else {
        Str text = {0};
        suite_table(&text, j->suite);
        printf("%s", str_text(&text));
        str_free(&text);
    }
    return write_files(j, e) && peak_settle(&peak, j->o, e);
}

/* ---- the whole ---- */

static bool evaluate(SuiteJob *j, Err *e) {
    if (!gen_setup_begin(&j->setup, j->o, e)) return false;
    if (!j->setup.words.tokenizer)
        return fail(e, ERR_FAIL, "%s: has no tokenizer.json; give --tokenizer DIR", j->setup.model.folder);
    SuiteSpec spec = spec_of(j);
    if (!suite_open(&j->suite, &spec, e)) return false;
    if (opt_given(j->o, OPT_SVG) && !suite_has_picture(j->suite))
        return fail(e, ERR_USAGE, "--svg: only --suite needle has a picture");
    if (!start(j, e)) return false;
    double began = sensors_seconds();
    gen_setup_tell(&j->setup, "evaluating", "request", 0);
    if (!suite_run(j->suite, &j->setup.engine, e)) return false;
    j->seconds = sensors_seconds() - began;
    return report(j, e);
}

bool eval_suite(const Options *o, Err *e) {
    SuiteJob j = {.o = o};
    if (!check_names(o, e) || !read_lengths(&j, e)) return false;
    bool ok = evaluate(&j, e);
    suite_close(j.suite);
    gen_setup_end(&j.setup);
    return ok;
}
