/* cmd_amr_parse.c - snug amr parse: sentences in, one graph each out, as `snug generate` answers prompts; an
 * answer ends where its graph does. */
#include <stdio.h>

#include "amr/prompt.h"
#include "base/log.h"
#include "cli/amr_verbs.h"
#include "cli/generate.h"

typedef struct Parsing {
    const Options *o;
    AmrPrompt prompt;
    AmrRowStyle style;
    AmrCollect collect;
    AmrStop *stop; /* owns; of each prompt */
} Parsing;

/* ---- sentences ---- */

/* A block without a sentence keeps its place: its prompt is made and refused. */
static bool add_prompt(Parsing *a, Prompts *p, const GenSetup *g, const AmrBlock *block, int64_t index, Err *e) {
    AmrBlock b = *block;
    if (!b.sentence) b.sentence = "";
    json_t *row = amr_row(&a->prompt, &b, index, a->style);
    bool ok = prompts_add(p, g, row, b.line, e);
    json_decref(row);
    if (!ok || block->sentence) return ok;
    char why[64];
    snprintf(why, sizeof why, "the block of line %lld has no sentence", (long long)b.line);
    prompts_fail(p, p->n - 1, why);
    return true;
}

/* A tree takes some twenty times its text. */
static int64_t corpus_bytes(const AmrInput *in) {
    return 20 * in->corpus.text.len + in->corpus.room * (int64_t)sizeof(AmrBlock);
}

static bool read_prompts(void *self, Prompts *p, const GenSetup *g, Err *e) {
    Parsing *a = self;
    AmrInput in = {0};
    *p = (Prompts){.path = a->o->positional[0]};
    bool ok = amr_input_sentences(&in, p->path, e);
    if (ok) amr_input_choose(&in, a->o);
    for (int64_t i = in.first; ok && i < in.end; i++)
        if (!add_prompt(a, p, g, &in.corpus.block[i], i, e))
            ok = fail_within(e, "%s:%lld", p->path, (long long)in.corpus.block[i].line);
    a->stop = MEM_NEW(AmrStop, MAX2(p->n, 1));
    prompts_added(p, corpus_bytes(&in) + p->n * (int64_t)sizeof(AmrStop));
    amr_corpus_free(&in.corpus);
    return ok;
}

/* ---- answers ---- */

static bool is_whole(void *self, const EngineEvent *ev) {
    Parsing *a = self;
    int64_t used;
    return amr_stop_feed(&a->stop[ev->request->number], ev->fresh, ev->fresh_bytes, &used);
}

static bool make_block(void *self, Str *line, Err *e) {
    Parsing *a = self;
    json_t *row = json_loadb(str_text(line), (size_t)line->len, JSON_ALLOW_NUL, NULL);
    CHECK(row); /* it was written by us */
    str_clear(line);
    bool ok = amr_collect_row(&a->collect, line, row, e);
    json_decref(row);
    return ok;
}

static void sum_up(void *self, json_t *summary) {
    Parsing *a = self;
    Str text = {0};
    if (summary) json_object_update_new(summary, amr_collect_json(&a->collect));
    else amr_collect_report(&text, &a->collect);
    log_str(&text);
}

bool cmd_amr_parse(const Options *o, Err *e) {
    Parsing a = {.o = o, .style = {.without_answer = true}, .collect = amr_collect_by(o)};
    GenerateHooks hooks = {.self = &a,
                           .read = read_prompts,
                           .turn = make_block,
                           .sum_up = sum_up,
                           .whole = a.collect.how.last ? NULL : is_whole};
    a.style.chat = opt_is(o, OPT_TEMPLATE, "chat");
    bool ok = amr_json_needs_out(o, e) && amr_prompt_choose(&a.prompt, &a.style, opt_text(o, OPT_AMR_PROMPT), e) &&
              generate_run(o, &hooks, e);
    amr_prompt_free(&a.prompt);
    mem_free(a.stop);
    return ok;
}
