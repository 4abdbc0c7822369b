/* plan_grpo.c - what the ring of a policy looks like to a person: whose weights are where, what each phase takes,
 * on which cards it goes. */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "cli/plan_case.h"
#include "cli/plan_picture.h"
#include "ir/cards.h"

/* ---- the models ---- */

static int64_t weight_bytes(const Program *p, const char *model, Pool pool) {
    int64_t sum = 0;
    for (Tid t = 1; t < p->n_t; t++) {
        const Tensor *w = prog_t(p, t);
        bool own = model ? w->model && !strcmp(w->model, model) : !w->model;
        if (own && w->role == ROLE_WEIGHT && !w->base && w->home.pool == pool && w->birth >= 0) sum += w->bytes;
    }
    return sum;
}

static void add_model(Str *text, json_t *list, const Program *p, const char *role, const char *prefix,
                      const ModelConfig *m, Format stored, const char *how) {
    int64_t device = weight_bytes(p, prefix, POOL_DEVICE), pinned = weight_bytes(p, prefix, POOL_PINNED);
    str_addf(text, "  %-10s %-14s %16s  %-5s %11s %11s  %s\n", role, m->name, units_count(config_parameters(m)).s,
             format_name(stored), units_bytes(device).s, pinned ? units_bytes(pinned).s : "-", how);
    json_array_append_new(
        list, json_pack("{s:s, s:s, s:I, s:s, s:I, s:I}", "role", role, "model", m->name, "parameters",
                        (json_int_t)config_parameters(m), "stored", format_name(stored), "device_bytes",
                        (json_int_t)device, "pinned_bytes", (json_int_t)pinned));
}

static Format stored_of(const ModelSpec *m) {
    return m->quantised ? m->stored : m->config.dtype;
}

static const char *how_kept(const PlanCase *c, int side, const ModelSpec *m) {
    int64_t planned = c->base.job.spec.side_offload[side], n = planned ? planned : m->offload.layers[OFFLOAD_WEIGHTS];
    if (side == GRPO_SIDE_EVALUATOR && grpo_ring(&c->base.job)->evaluator.phase_load >= 0)
        return n ? "frozen, loaded by phase, partly streamed" : "frozen, loaded by phase";
    return !n ? "frozen, resident" : n < m->config.layers ? "frozen, partly streamed" : "frozen, streamed";
}

static void add_models(Str *text, json_t *root, const PlanCase *c) {
    const JobSpec *s = &c->base.job.spec;
    const GrpoSpec *g = &c->grpo.spec;
    const Program *p = &c->base.ring.p;
    json_t *list = json_array();
    Format own = s->m.quantised ? s->m.stored : s->lora ? s->m.config.dtype : s->weights;
    str_addf(text, "\nthe models\n  %-10s %-14s %16s  %-5s %11s %11s\n", "", "", "parameters", "", "device",
             "pinned");
    bool by_phase = grpo_ring(&c->base.job)->policy.phase_load >= 0;
    const char *trained = s->lora ? "adapters are trained" : "trained";
    add_model(text, list, p, "policy", NULL, &s->m.config, own,
              by_phase ? "adapters are trained, base loaded by phase" : trained);
    if (g->reference_kind == REFERENCE_BASE)
        str_add(text, "  reference  the policy's weights without its adapters\n");
    if (g->reference_kind == REFERENCE_MODEL)
        add_model(text, list, p, "reference", GRPO_REFERENCE, &g->reference.config, stored_of(&g->reference),
                  how_kept(c, GRPO_SIDE_REFERENCE, &g->reference));
    if (g->has_evaluator)
        add_model(text, list, p, "evaluator", GRPO_EVALUATOR, &g->evaluator.config, stored_of(&g->evaluator),
                  how_kept(c, GRPO_SIDE_EVALUATOR, &g->evaluator));
    json_object_set_new(root, "models", list);
}

/* ---- the phases ---- */

static double plays_of(const Ring *r, int phase) { /* in one update */
    for (int i = 0; i < r->n_plays; i++)
        if (r->plays[i].phase == phase) return r->plays[i].times;
    return 0;
}

static int64_t copied_by(const Program *p, const Phase *phase) { /* a load phase */
    int64_t bytes = 0;
    for (int i = phase->begin; i < phase->end && phase->stay; i++) bytes += prog_bytes(p, p->s[i].copy.out.dst);
    return bytes;
}

static void add_phases(Str *text, json_t *root, const PlanCase *c) {
    const Job *j = &c->base.job;
    const Program *p = &j->ring->p;
    Timeline t;
    plan_timeline(&t, p, &j->ring->machine, POOL_DEVICE);
    int peak = prog_phase_of(p, t.peak_step);
    json_t *list = json_array();
    str_addf(text,
             "\nthe phases of an update, the largest shape of each: what is alive of %s\n  %-24s %9s %10s %11s\n",
             units_bytes(j->ring->ledger.arena_bytes[POOL_DEVICE]).s, "", "plays", "time", "peak");
    for (int i = 0; i < p->n_phases; i++) {
        double plays = plays_of(j->ring, i), seconds = plan_step_seconds(p, &j->ring->machine, i);
        int64_t bytes = picture_phase_peak(&t, &p->phase[i]), copied = copied_by(p, &p->phase[i]);
        json_t *row = json_pack("{s:s, s:f, s:f, s:I}", "name", p->phase[i].name, "plays", plays, "seconds",
                                plays * seconds, "peak_bytes", (json_int_t)bytes);
        if (copied) json_object_set_new(row, "copied_bytes", json_integer(copied));
        json_array_append_new(list, row);
        if (plays <= 0 && i != peak) continue;
        str_addf(text, "  %-24s %9s %10s %11s%s", p->phase[i].name, units_count((int64_t)plays).s,
                 units_seconds(plays * seconds).s, units_bytes(bytes).s, i == peak ? "  the peak" : "");
        str_addf(text, copied ? "  %s copied in\n" : "\n", units_bytes(copied).s);
    }
    json_object_set_new(root, "phases", list);
    json_object_set_new(root, "peak_phase", json_string(peak >= 0 ? p->phase[peak].name : ""));
    plan_timeline_free(&t);
}

void plan_grpo_say_update(Str *text, const PlanCase *c) {
    const GrpoSpec *g = &c->grpo.spec;
    str_addf(text, "%lld prompts of up to %lld tokens, %lld answers of up to %lld to each",
             (long long)(c->base.global_batch / g->group), (long long)g->prompt_tokens, (long long)g->group,
             (long long)g->answer_tokens);
    if (g->has_evaluator) str_addf(text, ", each evaluated in up to %lld", (long long)g->evaluator_tokens);
    str_addf(text, "; times are for answers of %lld (%s)", (long long)grpo_expected_tokens(g),
             g->expected_tokens ? "--expected-completion" : "--max-tokens");
}

static const char *why_repeated(const PlanCase *c) {
    if (c->grpo.repeats) return c->grpo.repeats;
    if (opt_is(c->base.o, OPT_SHARE_PROMPTS, "off")) return "--share-prompts off";
    return c->grpo.spec.share_prompts ? "an answer has a row of its own in this micro-batch" : "that is faster";
}

static json_t *seconds_or_null(double seconds) {
    return seconds > 0 ? json_real(seconds) : json_null();
}

/* Of a micro-step, and of the same without sharing; and the times that have decided. */
static void add_shared(Str *text, json_t *root, const PlanCase *c) {
    const JobSpec *s = &c->base.job.spec;
    const GrpoSpec *g = &c->grpo.spec;
    int64_t tokens = s->micro_batch * s->seq, alone = job_micro_samples(s) * (g->prompt_tokens + g->answer_tokens);
    double with = c->grpo.shared_seconds, without = c->grpo.repeated_seconds;
    bool shares = s->row_samples > 1, both = with > 0 && without > 0;
    double faster = both ? shares ? without / with : with / without : 1;
    json_object_set_new(
        root, "shared_prompts",
        json_pack("{s:I, s:I, s:I, s:o, s:o}", "answers_a_row", (json_int_t)MAX2(s->row_samples, 1),
                  "micro_step_tokens", (json_int_t)tokens, "micro_step_tokens_without", (json_int_t)alone,
                  "update_seconds", seconds_or_null(with), "update_seconds_without",
                  seconds_or_null(without)));
    if (shares)
        str_addf(text, "prompts are shared: %lld answers a row, %s tokens a micro-step of %lld answers, %s without",
                 (long long)s->row_samples, units_count(tokens).s, (long long)job_micro_samples(s),
                 units_count(alone).s);
    else
        str_addf(text, "prompts are repeated: %s", why_repeated(c));
    if (both && faster != 1)
        str_addf(text, "; an update is predicted to take %.2f times as long the other way", faster);
    str_add(text, "\n");
}

void plan_add_grpo(Str *text, json_t *root, const PlanCase *c) {
    str_add(text, "an update: ");
    plan_grpo_say_update(text, c);
    str_add(text, "\n");
    add_shared(text, root, c);
    add_models(text, root, c);
    add_phases(text, root, c);
}

/* ---- the cards ---- */

/* The first card of the catalogue with that much memory stands for all of it. */
static bool is_first_of_its_size(int card) {
    for (int i = 0; i < card; i++)
        if (card_at(i)->label_gb == card_at(card)->label_gb) return false;
    return true;
}

static json_t *add_card(Str *text, const PlanCase *c, SearchMemo *memo, int which, const Card *card) {
    Search *f = MEM_NEW(Search, 1);
    const Machine *m = &memo->machine[which];
    int64_t room = m->free_bytes[POOL_DEVICE] + m->context_bytes;
    JobSpec s = c->asked;
    bool fits = job_search_memo(f, &s, memo, which, &c->base.host, c->free, (FitLimits){.device_bytes = room});
    json_t *row = json_pack("{s:s, s:I, s:s}", "name", card->name, "room_bytes", (json_int_t)room, "verdict",
                            !fits ? "no" : f->fit.best ? "fits with" : "fits");
    str_addf(text, "  %4d GB  %-14s %10s  ", card->label_gb, card->name, units_bytes(room).s);
    if (fits) {
        const FitCost *cost = &f->taken;
        Str flags = {0}, note = {0};
        technique_layout_flags(&flags, &s);
        for (int i = 0; i < JOB_SIDES; i++)
            if (s.side_offload[i]) str_addf(&note, "%s%s", note.len ? ", " : "", c->grpo.task.task.side[i].name);
        str_addf(text, "%10s  %10s  %s%s%s\n", units_bytes(cost->device_bytes).s, units_seconds(cost->seconds).s,
                 str_text(&flags), note.len ? "; streamed: " : "", str_text(&note));
        json_object_update_new(
            row, json_pack("{s:I, s:I, s:f, s:s, s:s}", "device_bytes", (json_int_t)cost->device_bytes,
                           "host_bytes", (json_int_t)cost->host_bytes, "update_seconds", cost->seconds, "flags",
                           str_text(&flags), "streamed", str_text(&note)));
        str_free(&flags);
        str_free(&note);
    } else {
        str_add(text, "        no  smaller models, --evaluator MODEL:nf4, or --mode lora are needed\n");
    }
    search_free(f);
    mem_free(f);
    return row;
}

void plan_add_grpo_cards(Str *text, json_t *root, const PlanCase *c) {
    int n = 0;
    Machine *m = MEM_NEW(Machine, card_count());
    const Card **card = MEM_NEW(const Card *, card_count());
    for (int i = 0; i < card_count(); i++)
        if (is_first_of_its_size(i)) m[n] = card_machine_as(card_at(i), &c->base.machine), card[n++] = card_at(i);
    SearchMemo memo = {.machine = m, .n_machines = n};
    json_t *list = json_array();
    str_addf(text, "\nthe cards, one of each size, empty; global batch %lld\n  %7s  %-14s %10s  %10s  %10s\n",
             (long long)c->base.global_batch, "", "", "memory", "takes", "an update");
    for (int i = 0; i < n; i++) json_array_append_new(list, add_card(text, c, &memo, i, card[i]));
    json_object_set_new(root, "cards", list);
    search_memo_free(&memo);
    mem_free(card);
    mem_free(m);
}
