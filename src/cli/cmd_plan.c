/* cmd_plan.c - snug plan: what a job takes, before anything is loaded. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/setup.h"
#include "cli/show.h"
#include "ir/cards.h"
#include "obs/sensors.h"

static void print_json(const Job *j, int64_t budget) {
    json_t *root = show_plan_json(j, NULL, budget);
    char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9));
    printf("%s\n", text);
    mem_free(text);
    json_decref(root);
}

static void print_cards(void) {
    printf("%-14s %10s %5s %9s %9s %8s %8s  %s\n", "name", "memory", "cc", "matrix", "vector", "memory", "copies", "source");
    for (int i = 0; i < card_count(); i++) {
        const Card *c = card_at(i);
        printf("%-14s %6lld MiB %3d.%d %4.0f TF/s %4.0f TF/s %4.0f GB/s %3.0f GB/s  %s\n", c->name, (long long)c->memory_mib,
               c->capability / 10, c->capability % 10, c->matrix_tflops, c->vector_tflops, c->memory_gbps, c->copy_gbps, c->source);
    }
}

/* Without a budget: whether it would fit what is free, here or on the card that was asked about. */
static void add_verdict(Str *text, const Options *o, const Job *j) {
    const Machine *m = &j->machine;
    bool card = m->kind == MACHINE_CUDA;
    int64_t room = card ? m->free_bytes[POOL_DEVICE] + m->context_bytes : sensors_memory().available_bytes;
    str_addf(text, "no --budget given; %s %s: it would %sfit\n", units_bytes(room).s,
             opt_given(o, OPT_GPU) ? "on such a card" : "free here now", job_process_bytes(j) <= room ? "" : "not ");
}

static bool print_plan(const Options *o, const Job *j, Err *e) {
    int64_t budget = opt_given(o, OPT_BUDGET) ? opt_bytes(o, OPT_BUDGET) : 0;
    if (opt_flag(o, OPT_JSON)) print_json(j, budget);
    Str text = {0};
    show_plan(&text, j, budget, NULL);
    if (opt_flag(o, OPT_LISTING)) prog_listing(&text, &j->p);
    if (!budget) add_verdict(&text, o, j);
    fputs(str_text(&text), opt_flag(o, OPT_JSON) ? stderr : stdout);
    str_free(&text);
    return !budget || setup_check_budget(j, NULL, budget, e);
}

bool cmd_plan(const Options *o, Err *e) {
    Model m;
    JobSpec s;
    int64_t global_batch;
    if (opt_is(o, OPT_GPU, "list")) {
        print_cards();
        return true;
    }
    if (!setup_model(&m, o, e) || !setup_spec(&s, &global_batch, o, &m.config, true, e)) return false;
    if (!setup_attention(&s, o, opt_is(o, OPT_PACK, "on"), e)) return false; /* auto: the larger of the two */
    s.evaluate = opt_given(o, OPT_EVAL_DATA) || opt_real(o, OPT_VAL_SPLIT) > 0;
    Backend *b;
    Machine machine;
    if (!setup_backend(&b, &machine, o, e)) return false;
    if (!setup_fall_back(&s, o, &machine, e)) {
        if (b) b->close(b);
        return false;
    }
    setup_fit(&s, o, &machine, NULL, setup_budget(o, &machine));
    Job *j = MEM_NEW(Job, 1);
    bool ok = job_open(j, &s, &machine, NULL, e);
    if (ok) {
        ok = print_plan(o, j, e);
        job_close(j);
    }
    mem_free(j);
    if (b) b->close(b);
    return ok;
}
