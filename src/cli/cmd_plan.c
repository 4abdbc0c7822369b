/* cmd_plan.c - snug plan: what a job takes, before anything is loaded. */
#include <stdio.h>

#include "base/units.h"
#include "cli/cmd.h"
#include "cli/peak.h"
#include "cli/plan_case.h"
#include "cli/plan_page.h"
#include "cli/show.h"
#include "ir/cards.h"

static void print_cards(void) {
    printf("%-14s %10s %5s %9s %9s %8s %8s  %s\n", "name", "memory", "cc", "matrix", "vector", "memory", "copies",
           "source");
    for (int i = 0; i < card_count(); i++) {
        const Card *c = card_at(i);
        printf("%-14s %6lld MiB %3d.%d %4.0f TF/s %4.0f TF/s %4.0f GB/s %3.0f GB/s  %s\n", c->name,
               (long long)c->memory_mib, c->capability / 10, c->capability % 10, c->matrix_tflops,
               c->vector_tflops, c->memory_gbps, c->copy_gbps, c->source);
    }
}

/* Without a budget: whether it would fit what is free, here or on the card that was asked about. */
static void add_verdict(Str *text, const PlanCase *c) {
    int64_t room = plan_case_room(c);
    str_addf(text, "no --budget given; %s %s: it would %sfit\n", units_bytes(room).s,
             opt_given(c->base.o, OPT_GPU) ? "on such a card" : "free here now",
             ring_process_bytes(&c->base.ring) <= room ? "" : "not ");
}

static bool add_tables(Str *text, json_t *root, const PlanCase *c, Err *e) {
    const Options *o = c->base.o;
    const char *const *list;
    if (opt_flag(o, OPT_LADDER)) plan_add_ladder(text, root, c);
    if (opt_flag(o, OPT_BATCHES)) plan_add_batches(text, root, c);
    if (opt_flag(o, OPT_CARDS)) (c->has_grpo ? plan_add_grpo_cards : plan_add_cards)(text, root, c);
    return !opt_list(o, OPT_COMPARE, &list) || plan_add_compared(text, root, c, e);
}

/* Without a budget the device refuses nothing; the host and the disk do. */
static bool check_limits(const PlanCase *c, Err *refusal) {
    FitLimits limits = c->base.limits;
    if (!c->has_budget) limits.device_bytes = INT64_MAX;
    return setup_check_budget(&c->base.job, &c->base.host, limits, refusal);
}

static bool print_plan(const PlanCase *c, Err *e) {
    const JobSetup *b = &c->base;
    int64_t budget = c->has_budget ? b->limits.device_bytes : 0;
    bool as_json = opt_flag(b->o, OPT_JSON);
    Err refusal = {0};
    json_t *root = as_json || plan_wants_page(b->o) ? show_plan_json(&b->job, &b->host, budget) : json_object();
    Str text = {0};
    show_plan(&text, &b->job, budget, NULL);
    if (!budget) add_verdict(&text, c);
    plan_add_forecast(&text, root, c);
    if (c->has_grpo) plan_add_grpo(&text, root, c);
    else plan_add_saving(&text, root, c);
    plan_add_savings(&text, root, c);
    bool ok = add_tables(&text, root, c, e), fits = check_limits(c, &refusal);
    if (!fits) json_object_set_new(root, "fits", json_false()); /* the host's memory counts too */
    int64_t read = b->host.data + b->host.tokenizer + b->host.reading;
    Peak peak = peak_of_planning(&b->machine, b->backend, &b->ring.p, read);
    peak_add_planning(root, &peak); /* the page holds what --json prints */
    if (ok) ok = plan_case_write(c, root, fits ? NULL : refusal.text, e);
    if (opt_flag(b->o, OPT_LISTING)) prog_listing(&text, &b->ring.p);
    show_print_report(&text, as_json);
    if (as_json) show_print_json(root);
    else json_decref(root);
    str_free(&text);
    if (ok && !fits) *e = refusal;
    return ok && fits && peak_settle(&peak, b->o, e);
}

bool cmd_plan(const Options *o, Err *e) {
    if (opt_is(o, OPT_GPU, "list")) {
        print_cards();
        return true;
    }
    if (opt_is(o, OPT_TASK, "generate")) return plan_generate(o, e);
    PlanCase *c = MEM_NEW(PlanCase, 1);
    bool ok = plan_case_open(c, o, e) && print_plan(c, e);
    plan_case_close(c);
    mem_free(c);
    return ok;
}
