/* plan_generate.c - what answers take before anything is loaded: the plan that `snug generate` would make, here or
 * on a card that is not here. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "cli/gen_setup.h"
#include "cli/plan_task.h"
#include "cli/show.h"
#include "ir/cards.h"

typedef struct GenCase {
    const Options *o;
    Model model;
    Words words;
    Backend *backend; /* NULL: a card that is not here */
    Machine machine;
    SearchLimits limits;
    bool has_budget;
    GenHost host;
    GenSpec spec; /* fitted */
    Gen gen;
    bool fits, planned;
} GenCase;

/* ---- from options to a plan ---- */

static bool prepare(GenCase *c, Err *e) {
    const Options *o = c->o;
    if (!setup_model(&c->model, o, e) || !setup_words(&c->words, o, &c->model, e) ||
        !setup_backend(&c->backend, &c->machine, o, e) ||
        !gen_setup_spec(&c->spec, o, &c->model.config, &c->machine, e) ||
        !setup_limits(&c->limits, o, &c->machine, e))
        return false;
    c->has_budget = setup_has_budget(o);
    c->spec.host_room_bytes = c->limits.host_bytes;
    if (!machine_has_bf16(&c->machine) && c->spec.activations == FMT_BF16)
        log_line("%s has no bf16; the bytes of fp16 are the same", c->machine.name);
    int64_t known = c->model.config.max_positions;
    c->spec.context = opt_int(o, OPT_PROMPT_TOKENS) + opt_int(o, OPT_MAX_TOKENS);
    if (known) c->spec.context = MIN2(c->spec.context, known);
    if (opt_given(o, OPT_CONTEXT)) c->spec.context = opt_int(o, OPT_CONTEXT);
    c->spec.slots = opt_given(o, OPT_SLOTS) ? opt_int(o, OPT_SLOTS) : c->machine.kind == MACHINE_CPU ? 32 : 64;
    if (c->words.tokenizer) c->host.tokenizer = tokenizer_bytes(c->words.tokenizer);
    return true;
}

/* What fits, or what was asked for at its smallest, to show by how much it does not. */
static bool fit(GenCase *c, Err *why, Err *e) {
    GenSpec s = c->spec;
    c->fits =
        gen_fit(&s, &c->machine, &c->host, !opt_given(c->o, OPT_SLOTS), s.context, c->limits.device_bytes, why);
    if (!c->fits && why->code != ERR_BUDGET) return fail(e, why->code, "%s", why->text);
    c->spec = s;
    c->planned = true;
    return gen_plan(&c->gen, &s, &c->machine, &c->host, e);
}

/* ---- shown ---- */

static void add_plan(Str *text, const GenCase *c) {
    const GenSpec *s = &c->spec;
    int64_t process = gen_process_bytes(&c->gen), room = c->limits.device_bytes;
    str_addf(
        text,
        "%s: %s parameters; %lld slots of %lld tokens, on %s; planned in %.1f ms (%lld tensors, %lld steps)\n",
        s->model.name, units_count(config_parameters(&s->model)).s, (long long)s->slots, (long long)s->context,
        c->machine.name, c->gen.plan_ms, (long long)c->gen.p.n_t, (long long)c->gen.p.n_s);
    str_addf(text, "dtypes: weights %s%s, activations and cache %s", format_name(s->quantised ? s->stored : s->model.dtype),
             s->head_int8 ? ", head int8" : "", format_name(s->activations));
    if (s->sent) str_add(text, "; ");
    gen_setup_offload_text(text, s);
    str_add(text, "\n");
    show_ledger(text, &c->gen.ledger, process, c->machine.kind == MACHINE_CPU, NULL);
    int64_t disk = c->gen.placement.arena_bytes[POOL_DISK], own = gen_disk_bytes(&c->gen);
    if (disk)
        str_addf(text, "on disk: %s in --offload-dir, %s in the model's own files\n", units_bytes(own).s,
                 units_bytes(disk - own).s);
    str_addf(text, "%s: %s bytes; %s by %s\n", c->has_budget ? "budget" : "free, less a margin",
             units_count(room).s, process <= room ? "FITS" : "DOES NOT FIT",
             units_bytes(process <= room ? room - process : process - room).s);
}

/* Prompts are read one at a time, in chunks; a decode pass gives every slot a token, here at its full context. */
static void add_forecast(Str *text, json_t *root, const GenCase *c) {
    const Gen *g = &c->gen;
    const GenPass *prompt = &g->prefill[g->n_prefill - 1], *answer = &g->decode[g->n_decode - 1];
    double prefill = (double)prompt->seq / plan_step_seconds(&g->p, &g->machine, prompt->phase),
           decode = (double)answer->rows / plan_step_seconds(&g->p, &g->machine, answer->phase);
    const char *source = g->machine.source ? g->machine.source : "estimated";
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
    int64_t longest = c->model.config.max_positions ? MIN2(c->model.config.max_positions, 131072) : 32768;
    str_addf(text, "\nhow many at a time fit %s, nothing in pinned memory\n  %9s", units_bytes(room).s, "context");
    for (int k = 0; k < COUNT_OF(storages); k++) str_addf(text, " %11s", storages[k].name);
    str_add(text, "\n");
    for (int64_t context = 2048; context <= longest || context == 2048; context *= 4) {
        json_t *row = json_pack("{s:I}", "context", (json_int_t)MIN2(context, longest));
        str_addf(text, "  %9s", units_count(MIN2(context, longest)).s);
        for (int k = 0; k < COUNT_OF(storages); k++) {
            GenSpec s = c->spec;
            s.context = MIN2(context, longest);
            s.quantised = storages[k].quantised;
            s.stored = storages[k].stored;
            s.sent = s.on_disk = 0;
            int64_t n = gen_most_slots(&s, &c->machine, &c->host, room);
            str_addf(text, " %11lld", (long long)n);
            json_object_set_new(row, k ? storages[k].name : "as_on_file", json_integer(n));
        }
        str_add(text, "\n");
        json_array_append_new(list, row);
    }
    json_object_set_new(root, "slots_that_fit", list);
}

static int64_t bytes_of(const GenSpec *s, const Machine *m, const GenHost *host) {
    Gen *g = MEM_NEW(Gen, 1);
    int64_t bytes = gen_plan(g, s, m, host, NULL) ? gen_process_bytes(g) : 0;
    gen_close(g);
    mem_free(g);
    return bytes;
}

/* The engine as asked on every card; where it does not fit, with as few layers sent as it takes. */
static void add_cards(Str *text, json_t *root, const GenCase *c, const GenSpec *asked) {
    json_t *list = json_array();
    int64_t whole = 0; /* bytes as asked: the same on all of them */
    str_addf(text, "\nthe cards: an empty one of each kind, %lld tokens a request\n  %-14s %10s  %-11s %10s  %s\n",
             (long long)asked->context, "", "memory", "verdict", "takes", "slots");
    for (int i = 0; i < card_count(); i++) {
        Machine m = card_machine(card_at(i));
        GenSpec s = *asked;
        int64_t room = m.free_bytes[POOL_DEVICE] + m.context_bytes, bytes = 0;
        if (!whole) whole = bytes_of(&s, &m, &c->host);
        bool fits = whole <= room || gen_fit(&s, &m, &c->host, !opt_given(c->o, OPT_SLOTS), s.context, room, NULL);
        bytes = whole <= room ? whole : bytes_of(&s, &m, &c->host);
        const char *verdict = !fits ? "no" : s.sent ? "offloaded" : "fits";
        str_addf(text, "  %-14s %10s  %-11s %10s  %lld", card_at(i)->name, units_bytes(room).s, verdict,
                 units_bytes(bytes).s, (long long)(fits ? s.slots : 0));
        if (fits && s.sent) str_addf(text, "  --offload weights=%lld", (long long)s.sent);
        str_add(text, "\n");
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:s, s:I, s:I, s:I}", "name", card_at(i)->name, "room_bytes",
                            (json_int_t)room, "verdict", verdict, "device_bytes", (json_int_t)bytes, "slots",
                            (json_int_t)(fits ? s.slots : 0), "layers_sent", (json_int_t)s.sent));
    }
    json_object_set_new(root, "cards", list);
}

static json_t *as_json(const GenCase *c) {
    const GenSpec *s = &c->spec;
    json_t *root = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:f}", "task", "generate", "model",
                             s->model.name, "parameters", (json_int_t)config_parameters(&s->model), "slots",
                             (json_int_t)s->slots, "context", (json_int_t)s->context, "layers_sent",
                             (json_int_t)s->sent, "stored", format_name(s->quantised ? s->stored : s->model.dtype),
                             "machine", c->machine.name, "plan_ms", c->gen.plan_ms);
    json_object_set_new(root, "layers_on_disk", json_integer(s->on_disk));
    json_object_set_new(root, "offload_dir_bytes", json_integer(gen_disk_bytes(&c->gen)));
    json_object_set_new(root, "fits", json_boolean(c->fits));
    json_object_set_new(root, "pools",
                        show_pools_json(&c->gen.ledger, c->has_budget ? c->limits.device_bytes : 0));
    return root;
}

static bool show(GenCase *c, const GenSpec *asked, const Err *why, Err *e) {
    bool json = opt_flag(c->o, OPT_JSON);
    int64_t host = gen_beside_bytes(&c->gen), host_room = c->limits.host_bytes;
    bool host_fits = !host_room || host <= host_room;
    Str text = {0};
    Err disk = {0};
    if (!host_fits || !setup_check_disk(gen_disk_bytes(&c->gen), c->limits, &disk)) c->fits = false;
    json_t *root = as_json(c);
    add_plan(&text, c);
    add_forecast(&text, root, c);
    add_contexts(&text, root, c, c->limits.device_bytes);
    if (opt_flag(c->o, OPT_CARDS)) add_cards(&text, root, c, asked);
    if (opt_flag(c->o, OPT_LISTING)) prog_listing(&text, &c->gen.p);
    fputs(str_text(&text), json ? stderr : stdout);
    if (json) show_print_json(root);
    json_decref(root);
    str_free(&text);
    if (!host_fits)
        return fail(e, ERR_BUDGET, "does not fit: %s of the host's memory are needed, %s may be taken",
                    units_bytes(host).s, units_bytes(host_room).s);
    if (disk.code != ERR_NONE) why = &disk;
    return c->fits || fail(e, why->code, "%s", why->text);
}

bool plan_generate(const Options *o, Err *e) {
    GenCase *c = MEM_NEW(GenCase, 1);
    Err why = {0};
    c->o = o;
    bool ok = prepare(c, e);
    GenSpec asked = c->spec;
    ok = ok && fit(c, &why, e) && show(c, &asked, &why, e);
    if (c->planned) gen_close(&c->gen);
    if (c->backend) c->backend->close(c->backend);
    setup_words_free(&c->words);
    mem_free(c);
    return ok;
}
