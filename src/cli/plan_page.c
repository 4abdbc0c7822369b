/* plan_page.c - a training plan as a PlanPage, and the files that --svg and --html ask for. */
#include "cli/plan_page.h"

#include "base/file.h"
#include "base/units.h"
#include "cli/plan_case.h"
#include "cli/show.h"

bool plan_wants_page(const Options *o) {
    return opt_text(o, OPT_HTML) != NULL;
}

bool plan_write_pictures(PlanPage *page, Err *e) {
    const char *svg = opt_text(page->options, OPT_SVG), *html = opt_text(page->options, OPT_HTML);
    Str picture = {0}, whole = {0};
    if (svg) plan_svg(&picture, page);
    if (html) plan_html(&whole, page);
    bool ok = (!svg || file_write_str(svg, &picture, e)) && (!html || file_write_str(html, &whole, e));
    str_free(&whole);
    str_free(&page->job);
    str_free(&page->flags);
    json_decref(page->facts);
    return ok;
}

/* ---- a training job ---- */

static void add_fact(json_t *facts, const char *label, Str *text) {
    json_object_set_new(facts, label, json_string(str_text(text)));
    str_clear(text);
}

static void say_trained(Str *text, const Job *j) {
    const JobSpec *s = &j->spec;
    str_addf(text, "%s parameters, %s trained", units_count(config_parameters(&s->m.config)).s,
             units_count(model_count(&j->ring->p, true)).s);
    if (s->lora) str_addf(text, " as adapters of rank %d", s->m.adapter.rank);
}

static json_t *facts_of(const PlanCase *c) {
    const Job *j = &c->base.job;
    const JobSpec *s = &j->spec;
    json_t *facts = json_object();
    Str text = {0};
    say_trained(&text, j);
    add_fact(facts, "trained", &text);
    str_addf(&text, "%lld x %lld tokens a micro-batch, %lld micro-batches an update, global batch %lld",
             (long long)s->micro_batch, (long long)s->seq, (long long)s->accum, (long long)c->base.global_batch);
    add_fact(facts, "batch", &text);
    if (c->has_grpo) {
        plan_grpo_say_update(&text, c);
        add_fact(facts, "an update", &text);
    }
    show_dtypes(&text, s);
    add_fact(facts, "number formats", &text);
    str_addf(&text, "%s; rates: %s", c->base.machine.name, c->base.machine.source);
    add_fact(facts, "device", &text);
    int64_t bound = j->ring->placement.lower_bound_bytes[POOL_DEVICE], arena = j->ring->ledger.arena_bytes[POOL_DEVICE];
    str_addf(&text, "%s steps, %s tensors, placed at %.4f of the lower bound in %.1f ms", units_count(j->ring->p.n_s).s,
             units_count(j->ring->p.n_t - 1).s, bound ? (double)arena / (double)bound : 1, j->ring->plan_ms);
    add_fact(facts, "program", &text);
    str_free(&text);
    return facts;
}

bool plan_case_write(const PlanCase *c, const json_t *plan, const char *refusal, Err *e) {
    const JobSpec *s = &c->base.job.spec;
    PlanPage page = {.options = c->base.o,
                     .model = s->m.config.name,
                     .facts = facts_of(c),
                     .plan = plan,
                     .program = &c->base.ring.p,
                     .machine = &c->base.ring.machine,
                     .ledger = &c->base.ring.ledger,
                     .process_bytes = ring_process_bytes(&c->base.ring),
                     .room_bytes = plan_case_room(c),
                     .room = c->has_budget                   ? "the budget"
                             : opt_given(c->base.o, OPT_GPU) ? "free on such a card"
                                                             : "free here now",
                     .refusal = refusal};
    technique_layout_flags(&page.flags, s);
    str_addf(&page.job, "%s%s: %lld x %lld tokens x %lld", c->has_grpo ? "grpo, " : "", s->lora ? "lora" : "full",
             (long long)s->micro_batch, (long long)s->seq, (long long)s->accum);
    return plan_write_pictures(&page, e);
}
