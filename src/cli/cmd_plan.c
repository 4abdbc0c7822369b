/* cmd_plan.c - snug plan: what a job takes, before anything is loaded. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/plan_case.h"
#include "cli/plan_task.h"
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
             opt_given(c->o, OPT_GPU) ? "on such a card" : "free here now",
             job_process_bytes(&c->job) <= room ? "" : "not ");
}

static bool add_tables(Str *text, json_t *root, const PlanCase *c, Err *e) {
    const Options *o = c->o;
    const char *const *list;
    if (opt_flag(o, OPT_LADDER)) plan_add_ladder(text, root, c);
    if (opt_flag(o, OPT_BATCHES)) plan_add_batches(text, root, c);
    if (opt_flag(o, OPT_CARDS)) (c->has_grpo ? plan_add_grpo_cards : plan_add_cards)(text, root, c);
    return !opt_list(o, OPT_COMPARE, &list) || plan_add_compared(text, root, c, e);
}

static bool write_pictures(const PlanCase *c, const char *text, Err *e) {
    const char *svg = opt_text(c->o, OPT_SVG), *html = opt_text(c->o, OPT_HTML);
    Str out = {0};
    bool ok = true;
    if (svg) {
        plan_svg(&out, c);
        ok = file_write_all(svg, out.data, out.len, e);
        str_clear(&out);
    }
    if (ok && html) {
        plan_html(&out, c, text);
        ok = file_write_all(html, out.data, out.len, e);
    }
    str_free(&out);
    return ok;
}

static bool print_plan(const PlanCase *c, Err *e) {
    int64_t budget = c->has_budget ? c->limits.device_bytes : 0;
    bool as_json = opt_flag(c->o, OPT_JSON);
    json_t *root = as_json ? show_plan_json(&c->job, &c->host, budget) : json_object();
    Str text = {0};
    show_plan(&text, &c->job, budget, NULL);
    if (!budget) add_verdict(&text, c);
    plan_add_forecast(&text, root, c);
    if (c->has_grpo) plan_add_grpo(&text, root, c);
    else plan_add_saving(&text, root, c);
    plan_add_savings(&text, root, c);
    bool ok = add_tables(&text, root, c, e) && write_pictures(c, str_text(&text), e);
    if (opt_flag(c->o, OPT_LISTING)) prog_listing(&text, &c->job.p);
    fputs(str_text(&text), as_json ? stderr : stdout);
    SearchLimits limits = c->limits;
    if (!budget) limits.device_bytes = INT64_MAX;
    if (ok) ok = setup_check_budget(&c->job, &c->host, limits, e);
    if (as_json) {
        if (e->code == ERR_BUDGET)
            json_object_set_new(root, "fits", json_false()); /* the host's memory counts too */
        show_print_json(root);
    }
    json_decref(root);
    str_free(&text);
    return ok;
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
