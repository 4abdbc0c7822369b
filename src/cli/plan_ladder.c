/* plan_ladder.c - how far a card can be filled: the ladder of budgets, and the table of micro-batches. */
#include <string.h>

#include "base/units.h"
#include "cli/plan_case.h"
#include "ir/cards.h"

/* ---- the ladder ---- */

static const struct Rung {
    const char *name;
    double share; /* of the memory there is */
} rungs[] = {{"safe", 0.70}, {"balanced", 0.85}, {"aggressive", 0.95}, {"maximum", 1.00}};

/* Of "--micro-batch 2 --accum 8 --recompute ...": what has no column of its own. */
static const char *after_batch(const char *flags) {
    const char *next = strstr(flags, " --"); /* behind the micro-batch, then behind what gives the global one */
    next = next ? strstr(next + 1, " --") : NULL;
    return next ? next + 1 : "";
}

static json_t *add_rung(Str *text, const PlanCase *c, const struct Rung *r, const Search *f, const JobSpec *s,
                        int64_t room) {
    int64_t budget = (int64_t)(r->share * (double)room);
    str_addf(text, "  %-10s %3.0f %% %10s  ", r->name, 100 * r->share, units_bytes(budget).s);
    json_t *row = json_pack("{s:s, s:f, s:I, s:b}", "name", r->name, "share", r->share, "budget_bytes",
                            (json_int_t)budget, "fits", f->fit.best >= 0);
    if (f->fit.best < 0) {
        str_add(text, "does not fit\n");
        return row;
    }
    const FitCost *t = &f->taken;
    Forecast fore = plan_forecast(c, s, &c->base.machine, t->seconds);
    Str flags = {0};
    technique_layout_flags(&flags, s);
    str_addf(text, "%4lld x %-5lld %10s  %5.1f %%  %9s  %4.0f %%  %s\n", (long long)job_micro_samples(s),
             (long long)s->accum, units_bytes(t->device_bytes).s, 100 * (double)t->device_bytes / (double)room,
             units_count((int64_t)(fore.tokens_per_s + 0.5)).s, 100 * fore.ceiling_share,
             after_batch(str_text(&flags)));
    json_object_update_new(
        row, json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:s}", "micro_batch", (json_int_t)job_micro_samples(s),
                       "accum", (json_int_t)s->accum, "device_bytes", (json_int_t)t->device_bytes, "host_bytes",
                       (json_int_t)t->host_bytes, "memory_share", (double)t->device_bytes / (double)room,
                       "tokens_per_s", fore.tokens_per_s, "ceiling_share", fore.ceiling_share, "flags",
                       str_text(&flags)));
    str_free(&flags);
    return row;
}

void plan_add_ladder(Str *text, json_t *root, const PlanCase *c) {
    int64_t room = plan_case_room(c);
    SearchMemo memo = {.machine = &c->base.machine, .n_machines = 1};
    SearchFreedom free = c->free;
    Search *f = MEM_NEW(Search, 1);
    json_t *list = json_array();
    free.micro_batch = true;
    str_addf(text, "\nthe ladder: the fastest plan within a share of %s, global batch %lld\n", units_bytes(room).s,
             (long long)c->base.global_batch);
    str_addf(text, "  %-10s %5s %10s  %-12s %10s  %7s  %9s  %s\n", "", "", "memory", "micro-batch", "takes",
             "share", "tokens/s", "ceiling");
    for (int i = 0; i < COUNT_OF(rungs); i++) {
        JobSpec s = c->asked;
        FitLimits limits = c->base.limits;
        limits.device_bytes = (int64_t)(rungs[i].share * (double)room);
        job_search_memo(f, &s, &memo, 0, &c->base.host, free, limits);
        json_array_append_new(list, add_rung(text, c, &rungs[i], f, &s, room));
        search_free(f);
    }
    json_object_set_new(root, "ladder", list);
    search_memo_free(&memo);
    mem_free(f);
}

/* ---- the batch table ---- */

static int64_t card_room(const Card *card) {
    Machine m = card_machine(card);
    return m.free_bytes[POOL_DEVICE] + m.context_bytes;
}

/* "RTX 3090, 24 GB (14 cards)": the smallest that holds it. All of them go to the JSON. */
static json_t *add_holders(Str *text, int64_t bytes) {
    const Card *smallest = NULL;
    json_t *names = json_array();
    for (int i = 0; i < card_count(); i++) {
        const Card *card = card_at(i);
        if (card_room(card) < bytes) continue;
        json_array_append_new(names, json_string(card->name));
        if (!smallest || card->memory_mib < smallest->memory_mib) smallest = card;
    }
    if (!smallest)
        str_addf(text, "  %-27s", "none");
    else
        str_addf(text, "  %-14s %4d GB (%2d)", smallest->name, smallest->label_gb, (int)json_array_size(names));
    return names;
}

/* What grows with the batch: kept for backward, the head's, and scratch. */
static int64_t growing_bytes(const Job *j) {
    static const char *const names[] = {"activations", "head", "workspace", "inputs"};
    int64_t sum = 0;
    for (int i = 0; i < j->ring->ledger.n; i++)
        for (int k = 0; k < COUNT_OF(names); k++)
            if (j->ring->ledger.line[i].pool == POOL_DEVICE && !strcmp(j->ring->ledger.line[i].name, names[k]))
                sum += j->ring->ledger.line[i].planned_bytes;
    return sum;
}

static json_t *add_batch(Str *text, const PlanCase *c, const Machine *m, JobSpec s, bool recomputed) {
    Job *j = MEM_NEW(Job, 1);
    Ring *r = MEM_NEW(Ring, 1);
    json_t *row = NULL;
    for (int l = 0; recomputed && l < s.m.config.layers; l++) s.recompute[l] = RECOMPUTE_BLOCK;
    if (job_plan(j, r, &s, m, &c->base.host, NULL)) {
        int64_t total = ring_process_bytes(j->ring), batch = growing_bytes(j);
        str_addf(text, " %11s %11s", units_bytes(batch).s, units_bytes(total).s);
        row = json_pack("{s:I, s:I}", "activation_bytes", (json_int_t)batch, "total_bytes", (json_int_t)total);
        json_object_set_new(row, "cards", add_holders(text, total));
    }
    ring_close(r);
    mem_free(r);
    mem_free(j);
    return row;
}

void plan_add_batches(Str *text, json_t *root, const PlanCase *c) {
    const Machine *own = &c->base.machine;
    Machine m = own->kind == MACHINE_CUDA ? *own : card_machine(card_at(0)); /* a table about GPUs */
    bool both = c->free.recompute;
    json_t *list = json_array();
    JobSpec one = c->asked;
    job_set_micro(&one, 1, m.kind);
    str_addf(
        text,
        "\nthe batch table: %s of %lld tokens at once%s, on a GPU; smallest card that holds it (of how many)\n",
        c->has_grpo ? "samples" : "rows", (long long)plan_case_sample_tokens(c, &one),
        c->has_grpo && c->grpo.spec.share_prompts ? " that share their prompts" : "");
    str_addf(text, "  %5s %11s %11s  %-27s", "rows", "activations", "total",
             both ? "nothing recomputed" : "as asked");
    str_addf(text, both ? " %11s %11s  %s\n" : "\n", "activations", "total", "blocks recomputed");
    for (int64_t rows = 1; rows <= 256; rows *= 2) {
        JobSpec s = c->asked;
        job_set_micro(&s, rows, m.kind);
        if (!s.rows) s.accum = (MAX2(c->base.global_batch, rows) + rows - 1) / rows;
        if (rows * s.seq > INT32_MAX / 2) break;
        str_addf(text, "  %5lld", (long long)rows);
        json_t *row = add_batch(text, c, &m, s, false);
        if (!row) row = json_object();
        json_object_set_new(row, "micro_batch", json_integer(rows));
        json_t *with = both ? add_batch(text, c, &m, s, true) : NULL;
        if (with) json_object_set_new(row, "recompute_block", with);
        json_array_append_new(list, row);
        str_add(text, "\n");
    }
    json_object_set_new(root, "batches", list);
}
