/* plan_generate.c - what answers take before anything is loaded: the plan that `snug generate` would make, here or
 * on a card that is not here. */
#include "base/log.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/gen_setup.h"
#include "cli/plan_page.h"
#include "cli/show.h"
#include "ir/cards.h"

typedef struct GenCase {
    const Options *o;
    GenSetup setup; /* its backend is NULL for a card that is not here; spec and limits: fitted */
    GenHost host;
    bool has_budget, fits;
} GenCase;

static int64_t offloaded(const GenSpec *s) { return s->m.offload.layers[OFFLOAD_WEIGHTS]; }

/* ---- from options to a plan ---- */

static bool prepare(GenCase *c, Err *e) {
    const Options *o = c->o;
    GenSetup *n = &c->setup;
    if (!gen_setup_begin(n, o, e) || !gen_setup_limits(n, &c->host, e)) return false;
    c->has_budget = setup_has_budget(o);
    if (!machine_has_bf16(&n->machine) && n->spec.m.activations == FMT_BF16)
        log_line("%s has no bf16; the bytes of fp16 are the same", n->machine.name);
    int64_t known = n->model.config.max_positions, both = opt_int(o, OPT_PROMPT_TOKENS) + opt_int(o, OPT_MAX_TOKENS);
    n->spec.context = opt_given(o, OPT_CONTEXT) ? opt_int(o, OPT_CONTEXT) : known ? MIN2(both, known) : both;
    n->spec.slots = gen_setup_slots(n, INT64_MAX);
    return true;
}

/* What fits, or what was asked for at its smallest, to show by how much it does not. */
static bool fit(GenCase *c, Err *why, Err *e) {
    GenSetup *n = &c->setup;
    bool fewer = !opt_given(c->o, OPT_SLOTS);
    c->fits = gen_fit(&n->spec, &n->machine, &c->host, fewer, n->spec.context, n->limits.device_bytes, why);
    if (!c->fits && why->code != ERR_BUDGET) return fail(e, why->code, "%s", why->text);
    n->gen = MEM_NEW(Gen, 1);
    return gen_plan(n->gen, &n->ring, &n->spec, &n->machine, &c->host, e);
}

/* ---- shown ---- */

static void say_formats(Str *text, const GenSpec *s) {
    str_addf(text, "weights %s%s, activations and cache %s",
             format_name(s->m.quantised ? s->m.stored : s->m.config.dtype), s->m.head_int8 ? ", head int8" : "",
             format_name(s->m.activations));
    if (offloaded(s)) str_add(text, "; ");
    gen_setup_offload_text(text, s);
}

static void add_plan(Str *text, const GenCase *c) {
    const Ring *r = &c->setup.ring;
    int64_t process = ring_process_bytes(r), room = c->setup.limits.device_bytes;
    gen_setup_text(text, &c->setup, NULL);
    if (offloaded(&c->setup.spec)) {
        gen_setup_offload_text(text, &c->setup.spec);
        str_add(text, "\n");
    }
    show_disk(text, r);
    str_addf(text, "%s: %s bytes; %s by %s\n", c->has_budget ? "budget" : "free, less a margin",
             units_count(room).s, process <= room ? "FITS" : "DOES NOT FIT",
             units_bytes(process <= room ? room - process : process - room).s);
}

/* Prompts are read one at a time, in chunks; a decode pass gives every slot a token, here at its full context. */
static void add_forecast(Str *text, json_t *root, const GenCase *c) {
    const Gen *g = c->setup.gen;
    const GenPass *prompt = &g->prefill[g->n_prefill - 1], *answer = &g->decode[g->n_decode - 1];
    double prefill = (double)prompt->seq / plan_step_seconds(&c->setup.ring.p, &c->setup.ring.machine, prompt->phase),
           decode = (double)answer->rows / plan_step_seconds(&c->setup.ring.p, &c->setup.ring.machine, answer->phase);
    const char *source = c->setup.ring.machine.source;
    str_addf(text, "predicted: prompts %s tokens/s, answers %s tokens/s in %lld slots, %.1f each (%s rates)\n",
             units_count((int64_t)(prefill + 0.5)).s, units_count((int64_t)(decode + 0.5)).s,
             (long long)answer->rows, decode / (double)answer->rows, source);
    json_object_set_new(root, "predicted",
                        json_pack("{s:f, s:f, s:s}", "prefill_tokens_per_s", prefill, "decode_tokens_per_s",
                                  decode, "rates", source));
}

typedef struct Storage {
    const char *name;
    bool quantised;
    Format stored;
} Storage;
static const Storage storages[] = {
    {"as on file", false, FMT_BF16}, {"int8", true, FMT_INT8}, {"nf4", true, FMT_NF4}};

/* For lengths up to the model's own: how many requests at a time fit, by how the weights are stored, at home. */
static void add_contexts(Str *text, json_t *root, const GenCase *c, int64_t room) {
    json_t *list = json_array();
    int64_t longest = c->setup.model.config.max_positions ? MIN2(c->setup.model.config.max_positions, 131072) : 32768;
    str_addf(text, "\nhow many at a time fit %s, nothing in pinned memory\n  %9s", units_bytes(room).s, "context");
    for (int k = 0; k < COUNT_OF(storages); k++) str_addf(text, " %11s", storages[k].name);
    str_add(text, "\n");
    for (int64_t context = 2048; context <= longest || context == 2048; context *= 4) {
        json_t *row = json_pack("{s:I}", "context", (json_int_t)MIN2(context, longest));
        str_addf(text, "  %9s", units_count(MIN2(context, longest)).s);
        for (int k = 0; k < COUNT_OF(storages); k++) {
            GenSpec s = c->setup.spec;
            s.context = MIN2(context, longest);
            s.m.quantised = storages[k].quantised;
            s.m.stored = storages[k].stored;
            s.m.offload = (Offload){0};
            int64_t n = gen_most_slots(&s, &c->setup.machine, &c->host, room);
            str_addf(text, " %11lld", (long long)n);
            json_object_set_new(row, k ? storages[k].name : "as_on_file", json_integer(n));
        }
        str_add(text, "\n");
        json_array_append_new(list, row);
    }
    json_object_set_new(root, "slots_that_fit", list);
}

/* The engine as asked on every card; where it does not fit, with as few layers offloaded as it takes. */
static void add_cards(Str *text, json_t *root, const GenCase *c, const GenSpec *asked) {
    json_t *list = json_array();
    int64_t whole = 0; /* bytes as asked: the same on all of them */
    str_addf(text, "\nthe cards: an empty one of each kind, %lld tokens a request\n  %-14s %10s  %-11s %10s  %s\n",
             (long long)asked->context, "", "memory", "verdict", "takes", "slots");
    for (int i = 0; i < card_count(); i++) {
        Machine m = card_machine(card_at(i));
        GenSpec s = *asked;
        int64_t room = m.free_bytes[POOL_DEVICE] + m.context_bytes, bytes = 0;
        if (!whole) gen_bytes(&whole, &s, &m, &c->host, NULL);
        bool fits = whole <= room || gen_fit(&s, &m, &c->host, !opt_given(c->o, OPT_SLOTS), s.context, room, NULL);
        bytes = whole;
        if (whole > room) gen_bytes(&bytes, &s, &m, &c->host, NULL);
        const char *verdict = !fits ? "no" : offloaded(&s) ? "offloaded" : "fits";
        str_addf(text, "  %-14s %10s  %-11s %10s  %lld", card_at(i)->name, units_bytes(room).s, verdict,
                 units_bytes(bytes).s, (long long)(fits ? s.slots : 0));
        if (fits && offloaded(&s)) str_addf(text, "  --offload weights=%lld", (long long)offloaded(&s));
        str_add(text, "\n");
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:s, s:I, s:I, s:I}", "name", card_at(i)->name, "room_bytes",
                            (json_int_t)room, "verdict", verdict, "device_bytes", (json_int_t)bytes, "slots",
                            (json_int_t)(fits ? s.slots : 0), "layers_sent", (json_int_t)offloaded(&s)));
    }
    json_object_set_new(root, "cards", list);
}

static json_t *as_json(const GenCase *c) {
    const GenSpec *s = &c->setup.spec;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:f, s:I, s:I, s:b, s:o}", "task", "generate", "model",
                     s->m.config.name, "parameters", (json_int_t)config_parameters(&s->m.config), "slots",
                     (json_int_t)s->slots, "context", (json_int_t)s->context, "layers_sent", (json_int_t)offloaded(s),
                     "stored", format_name(s->m.quantised ? s->m.stored : s->m.config.dtype), "machine",
                     c->setup.machine.name, "plan_ms", c->setup.ring.plan_ms, "layers_on_disk",
                     (json_int_t)s->m.offload.on_disk[OFFLOAD_WEIGHTS], "offload_dir_bytes",
                     (json_int_t)ring_disk_bytes(&c->setup.ring), "fits", c->fits, "pools",
                     show_pools_json(&c->setup.ring.ledger, c->has_budget ? c->setup.limits.device_bytes : 0));
}

static json_t *facts_of(const GenCase *c) {
    const GenSpec *s = &c->setup.spec;
    const Program *p = &c->setup.ring.p;
    const char *source = c->setup.ring.machine.source;
    Str formats = {0};
    say_formats(&formats, s);
    json_t *facts = json_pack(
        "{s:s, s:o, s:s, s:o, s:o}", "parameters", units_count(config_parameters(&s->m.config)).s, "requests",
        json_sprintf("%lld at a time, of up to %lld tokens, prompt and answer", (long long)s->slots,
                     (long long)s->context),
        "number formats", str_text(&formats), "device", json_sprintf("%s; rates: %s", c->setup.machine.name, source),
        "program",
        json_sprintf("%s steps, %s tensors, planned in %.1f ms", units_count(p->n_s).s, units_count(p->n_t - 1).s,
                     c->setup.ring.plan_ms));
    str_free(&formats);
    return facts;
}

static bool write_pictures(const GenCase *c, const json_t *plan, const char *refusal, Err *e) {
    const GenSpec *s = &c->setup.spec;
    PlanPage page = {.options = c->o,
                     .model = s->m.config.name,
                     .facts = facts_of(c),
                     .plan = plan,
                     .program = &c->setup.ring.p,
                     .machine = &c->setup.ring.machine,
                     .ledger = &c->setup.ring.ledger,
                     .process_bytes = ring_process_bytes(&c->setup.ring),
                     .room_bytes = c->setup.limits.device_bytes,
                     .room = c->has_budget ? "the budget" : "free, less a margin",
                     .refusal = refusal};
    str_addf(&page.job, "generate: %lld slots of %lld tokens", (long long)s->slots, (long long)s->context);
    str_addf(&page.flags, "--slots %lld --context %lld", (long long)s->slots, (long long)s->context);
    if (offloaded(s)) str_addf(&page.flags, " --offload weights=%lld", (long long)offloaded(s));
    return plan_write_pictures(&page, e);
}

/* NULL: it fits. What is missing of the host and of the disk counts before the device's refusal. */
static const Err *refusal_of(GenCase *c, const Err *why, Err *own) {
    int64_t host = ring_host_bytes(&c->setup.ring), room = c->setup.limits.host_bytes;
    if (room && host > room)
        fail(own, ERR_BUDGET, "does not fit: %s of the host's memory are needed, %s may be taken", units_bytes(host).s,
             units_bytes(room).s);
    else
        setup_check_disk(ring_disk_bytes(&c->setup.ring), c->setup.limits, own);
    if (own->code != ERR_NONE) c->fits = false;
    return own->code != ERR_NONE ? own : c->fits ? NULL : why;
}

static bool show(GenCase *c, const GenSpec *asked, const Err *why, Err *e) {
    bool json = opt_flag(c->o, OPT_JSON);
    Str text = {0};
    Err own = {0};
    const Err *refusal = refusal_of(c, why, &own);
    json_t *root = as_json(c);
    add_plan(&text, c);
    add_forecast(&text, root, c);
    add_contexts(&text, root, c, c->setup.limits.device_bytes);
    if (opt_flag(c->o, OPT_CARDS)) add_cards(&text, root, c, asked);
    if (opt_flag(c->o, OPT_LISTING)) prog_listing(&text, &c->setup.ring.p);
    show_print_report(&text, json);
    Peak peak = peak_of_planning(&c->setup.machine, c->setup.backend, &c->setup.ring.p, c->host.tokenizer);
    peak_add_planning(root, &peak);
    if (json) show_print_json(json_incref(root));
    bool ok = write_pictures(c, root, refusal ? refusal->text : NULL, e);
    json_decref(root);
    str_free(&text);
    if (ok && refusal) return fail(e, refusal->code, "%s", refusal->text);
    return ok && peak_settle(&peak, c->o, e);
}

bool plan_generate(const Options *o, Err *e) {
    GenCase *c = MEM_NEW(GenCase, 1);
    Err why = {0};
    c->o = o;
    bool ok = prepare(c, e);
    GenSpec asked = c->setup.spec;
    ok = ok && fit(c, &why, e) && show(c, &asked, &why, e);
    gen_setup_end(&c->setup);
    mem_free(c);
    return ok;
}
