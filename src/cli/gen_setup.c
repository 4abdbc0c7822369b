/* gen_setup.c - how options become an engine. */
#include "cli/gen_setup.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/show.h"
#include "store/adapter.h"
#include "store/identity.h"
#include "weights/weights.h"

/* ---- when an answer ends ---- */

static void add_stop_id(StopIds *s, int64_t id, int64_t vocab) {
    if (id < 0 || id >= vocab || s->n == GEN_STOP_IDS) return;
    for (int i = 0; i < s->n; i++)
        if (s->id[i] == id) return;
    s->id[s->n++] = (int32_t)id;
}

static void add_stop_json(StopIds *s, const json_t *ids, int64_t vocab) { /* a number or a list of them */
    if (json_is_integer(ids)) add_stop_id(s, json_integer_value(ids), vocab);
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (json_is_integer(json_array_get(ids, i))) add_stop_id(s, json_integer_value(json_array_get(ids, i)), vocab);
}

bool gen_setup_stop_ids(StopIds *s, const ModelFiles *m, const Tokenizer *t, Err *e) {
    static const char *const files[] = {"generation_config.json", "config.json"};
    *s = (StopIds){0};
    for (int i = 0; i < COUNT_OF(files); i++) {
        char path[1200];
        json_error_t je;
        Str text = {0};
        snprintf(path, sizeof path, "%s/%s", m->folder, files[i]);
        if (!file_exists(path)) continue;
        if (!file_read(path, &text, 1 << 20, e)) return false;
        json_t *j = json_loadb(str_text(&text), (size_t)text.len, 0, &je);
        str_free(&text);
        if (!j) return fail(e, ERR_FAIL, "%s:%d: is not JSON: %s", path, je.line, je.text);
        add_stop_json(s, json_object_get(j, "eos_token_id"), m->config.vocab);
        json_decref(j);
    }
    if (t) add_stop_id(s, tokenizer_eos(t), m->config.vocab);
    return true;
}

/* ---- the shape ---- */

/* Weights are all that generation can offload. */
static bool set_offload(GenSpec *s, const Options *o, const Machine *m, Err *e) {
    Offload *f = &s->m.offload;
    const char *offload = opt_text(o, OPT_OFFLOAD);
    bool automatic = !strcmp(offload, "auto"), has_folder = opt_given(o, OPT_OFFLOAD_DIR);
    s->may_use_disk = automatic && has_folder;
    s->may_offload = automatic && (m->kind != MACHINE_CPU || has_folder); /* there all pools are the same memory */
    if (automatic) return true;
    if (!offload_parse(f, s->m.config.layers, offload, e)) return false;
    if (f->layers[OFFLOAD_MOMENTS] || f->layers[OFFLOAD_GRADIENTS] || f->layers[OFFLOAD_INPUTS])
        return fail(e, ERR_USAGE,
                    "--offload %s: answers have nothing but weights to offload; use weights, weights=N or "
                    "weights=disk:N",
                    offload);
    return !f->on_disk[OFFLOAD_WEIGHTS] || has_folder ||
           fail(e, ERR_USAGE, "--offload %s: what is kept on disk needs a folder; give --offload-dir DIR", offload);
}

void gen_setup_offload_text(Str *out, const GenSpec *s) {
    int64_t disk = s->m.offload.on_disk[OFFLOAD_WEIGHTS], pinned = s->m.offload.layers[OFFLOAD_WEIGHTS] - disk;
    if (pinned) str_addf(out, "weights of %lld of %d layers in pinned memory", (long long)pinned, s->m.config.layers);
    if (disk)
        str_addf(out, "%s%lld%s on disk", pinned ? ", of " : "weights of ", (long long)disk,
                 pinned ? " more" : " layers");
}

static Format activations_of(const Options *o, const ModelConfig *c, const Machine *m) {
    if (opt_is(o, OPT_PRECISION, "fp32") || (opt_is(o, OPT_PRECISION, "auto") && c->dtype == FMT_F32)) return FMT_F32;
    bool fp16 = opt_is(o, OPT_PRECISION, "fp16") || setup_lacks_bf16(o, m, FMT_BF16);
    return fp16 ? FMT_F16 : FMT_BF16;
}

bool gen_setup_spec(GenSpec *s, const Options *o, const ModelConfig *c, const Machine *m, Err *e) {
    Format numbers = activations_of(o, c, m);
    *s = (GenSpec){.m = {.config = *c,
                         .activations = numbers,
                         .quantised = !opt_is(o, OPT_QUANTIZE, "none"),
                         .stored = opt_is(o, OPT_QUANTIZE, "nf4") ? FMT_NF4 : FMT_INT8,
                         .head_int8 = opt_is(o, OPT_QUANTIZE_HEAD, "int8"),
                         .random_init = opt_given(o, OPT_INIT),
                         .seed = (uint64_t)opt_int(o, OPT_SEED)},
                   .cache = opt_is(o, OPT_KV_CACHE, "int8") ? FMT_INT8 : numbers,
                   .slots = 1,
                   .chunk = opt_int(o, OPT_PREFILL_CHUNK),
                   .invariant = opt_flag(o, OPT_INVARIANT)};
    if (c->quant == QUANT_OWN && !opt_given(o, OPT_INIT)) { /* as its folder holds it, unless that is contradicted */
        if (!opt_given(o, OPT_QUANTIZE)) s->m.quantised = true, s->m.stored = c->quant_format;
        s->m.head_int8 |= c->quant_head && !opt_given(o, OPT_QUANTIZE_HEAD);
    }
    if (numbers == FMT_F16 && c->dtype == FMT_BF16) s->m.config.dtype = FMT_F16, s->m.recast = true;
    if (!s->chunk) s->chunk = m->kind == MACHINE_CPU ? 256 : 2048;
    if (!set_offload(s, o, m, e)) return false;
    if (!opt_given(o, OPT_ADAPTER)) return true;
    AdapterConfig a;
    if (!adapter_config_read(&a, opt_text(o, OPT_ADAPTER), e)) return false;
    s->m.adapter = (LoraSpec){
        .rank = a.rank, .alpha = (float)(adapter_scale(&a) * a.rank), .targets = a.targets, .format = s->m.activations};
    return true;
}

bool gen_setup_begin(GenSetup *n, const Options *o, Err *e) {
    *n = (GenSetup){.o = o};
    return setup_model(&n->model, o, e) &&
           (opt_given(o, OPT_INIT) || setup_need_weights(&n->model, o, e)) &&
           setup_words(&n->words, o, &n->model, e) && setup_backend(&n->backend, &n->machine, o, e) &&
           gen_setup_spec(&n->spec, o, &n->model.config, &n->machine, e) &&
           ((o->command == CMD_GENERATE && opt_flag(o, OPT_IGNORE_EOS)) ||
            gen_setup_stop_ids(&n->stop, &n->model, n->words.tokenizer, e));
}

void gen_setup_end(GenSetup *n) {
    engine_close(&n->engine);
    if (n->gen) gen_close(n->gen);
    mem_free(n->gen);
    ring_close(&n->ring);
    if (n->backend) n->backend->close(n->backend);
    setup_words_free(&n->words);
}

/* ---- memory ---- */

static bool check_free(const GenSetup *n, Err *e) {
    bool cpu = n->machine.kind == MACHINE_CPU;
    int64_t wants = ring_process_bytes(&n->ring) - (cpu ? 0 : n->machine.context_bytes); /* the context is there */
    Str why = {0};
    int64_t has = cpu ? setup_room(&why, &n->machine) : n->machine.free_bytes[POOL_DEVICE];
    if (!cpu) str_addf(&why, "%s is free", units_bytes(has).s);
    bool fits = has <= 0 || wants <= has;
    if (!fits)
        fail(e, ERR_BUDGET,
             "%s: %s (%s bytes) are planned, %s. Nothing was loaded. End what holds it, raise the limit, or give "
             "a --budget of %lldMiB or less",
             n->machine.name, units_bytes(wants).s, units_count(wants).s, str_text(&why), (long long)(has / MIB));
    str_free(&why);
    return fits;
}

/* Puts the limit that stands behind a refusal in front of it. */
static bool name_limit(const GenSetup *n, Err *e) {
    Str limit = {0};
    if (e->code == ERR_BUDGET && !setup_has_budget(n->o) && setup_limit_text(&limit, &n->machine, INT64_MAX))
        fail_within(e, "%s", str_text(&limit));
    str_free(&limit);
    return false;
}

/* What is being done before the first token, on a terminal; false: an interrupt asks to leave it at that. */
static bool begin_stage(const char *what, Err *e) {
    if (stop_signal) return fail(e, ERR_FAIL, "interrupted before the first token");
    if (log_is_terminal()) log_progress("%s%s", what, what[0] ? " ..." : ""); /* "": the line is free again */
    return true;
}

/* Takes the memory, reads the weights and plays every pass once. */
static bool load(GenSetup *n, Err *e) {
    char weights[100];
    Gen *g = n->gen;
    Ring *r = &n->ring;
    const LedgerLine *line = ledger_find(&r->ledger, POOL_DEVICE, "weights");
    bool drawn = n->spec.m.random_init;
    snprintf(weights, sizeof weights, "reading %s of weights", units_bytes(line ? line->planned_bytes : 0).s);
    if (!ring_open(r, n->backend, e) || !gen_open(g, e) || !begin_stage(drawn ? "drawing weights" : weights, e))
        return false;
    if (!drawn && !weights_load(&r->x, NULL, ROLE_WEIGHT, n->model.folder, e)) return false;
    if (opt_given(n->o, OPT_ADAPTER) && !weights_load(&r->x, NULL, ROLE_ADAPTER, opt_text(n->o, OPT_ADAPTER), e))
        return false;
    if (!ring_settle(r, e) || !begin_stage("playing every pass once", e) || !gen_warm(g, e)) return false;
    int64_t piece = n->o->command == CMD_CHAT ? 0 : opt_int(n->o, OPT_PREFILL_PIECE);
    engine_open(&n->engine, g, n->words.tokenizer, (EngineOptions){.piece = piece});
    return begin_stage("", e);
}

bool gen_setup_start(GenSetup *n, const GenHost *host, bool fewer_slots, int64_t least_context, Err *e) {
    GenHost h = *host;
    if (n->words.tokenizer) h.tokenizer = tokenizer_bytes(n->words.tokenizer);
    int64_t slots = n->spec.slots, context = n->spec.context;
    FitLimits limits;
    if (!setup_limits(&limits, n->o, &n->machine, e)) return false;
    n->budget_bytes = limits.device_bytes;
    n->spec.host_room_bytes = limits.host_bytes;
    if (!gen_fit(&n->spec, &n->machine, &h, fewer_slots, least_context, n->budget_bytes, e))
        return name_limit(n, e);
    if (n->spec.may_offload && n->spec.m.offload.layers[OFFLOAD_WEIGHTS]) {
        Str sent = {0};
        gen_setup_offload_text(&sent, &n->spec);
        log_line("%s (--offload)", str_text(&sent));
        str_free(&sent);
    }
    if (n->spec.slots < slots || n->spec.context < context)
        log_line("the budget holds %lld slots of %lld tokens (wanted: %lld of %lld)", (long long)n->spec.slots,
                 (long long)n->spec.context, (long long)slots, (long long)context);
    n->gen = MEM_NEW(Gen, 1);
    if (!gen_plan(n->gen, &n->ring, &n->spec, &n->machine, &h, e)) return false;
    if (n->o->command != CMD_CHAT) gen_setup_show(n);
    return check_free(n, e) && setup_check_disk(ring_disk_bytes(&n->ring), limits, e) && load(n, e);
}

static void show(const GenSetup *n, const Measured *measured) {
    const Gen *g = n->gen;
    int64_t process = ring_process_bytes(&n->ring);
    Str text = {0};
    str_addf(
        &text,
        "%s: %s parameters; %lld slots of %lld tokens, on %s; planned in %.1f ms (%lld tensors, %lld steps)\n",
        n->model.config.name, units_count(config_parameters(&n->model.config)).s, (long long)g->spec.slots,
        (long long)g->spec.context, n->machine.name, n->ring.plan_ms, (long long)n->ring.p.n_t,
        (long long)n->ring.p.n_s);
    str_addf(&text, "dtypes: weights %s%s, activations %s, cache %s\n",
             format_name(g->spec.m.quantised ? g->spec.m.stored : g->spec.m.config.dtype),
             g->spec.m.head_int8 ? ", head int8" : "", format_name(g->spec.m.activations),
             format_name(g->spec.cache));
    show_ledger(&text, &n->ring.ledger, process, n->ring.machine.kind == MACHINE_CPU, measured);
    if (n->budget_bytes != INT64_MAX && !measured)
        str_addf(&text, "budget: %s bytes; FITS by %s\n", units_count(n->budget_bytes).s,
                 units_bytes(n->budget_bytes - process).s);
    log_line("%s", str_text(&text));
    str_free(&text);
}

void gen_setup_show(const GenSetup *n) {
    show(n, NULL);
}

Peak gen_setup_peak(const GenSetup *n) {
    return peak_of_job(&n->machine, ring_process_bytes(&n->ring), ring_host_bytes(&n->ring), n->ring.peak_bytes);
}

Peak gen_setup_show_measured(const GenSetup *n) {
    Peak peak = gen_setup_peak(n);
    show(n, &(Measured){n->ring.x.pool_bytes[POOL_DEVICE], peak.budget_bytes, peak.bytes});
    return peak;
}

/* ---- the job ---- */

void gen_setup_job_hex(json_t *job, const char *key, uint64_t number) {
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)number);
    json_object_set_new(job, key, json_string(text));
}

json_t *gen_setup_job(const GenSetup *n, const OptId *same, int n_same, Err *e) {
    const Options *o = n->o;
    uint64_t model = 0, adapter = 0;
    char context[24];
    bool drawn = !n->model.has_folder; /* a preset with --init random: its name and the seed say it all */
    if (!drawn && !identity_of(&model, n->model.folder, e)) return NULL;
    if (opt_given(o, OPT_ADAPTER) && !identity_of(&adapter, opt_text(o, OPT_ADAPTER), e)) return NULL;
    json_t *job = json_object(); /* what a person set comes first, to be named first */
    for (int i = 0; i < n_same; i++)
        if (opt_text(o, same[i]))
            json_object_set_new(job, option_rows[same[i]].name, json_string(opt_text(o, same[i])));
    if (drawn) json_object_set_new(job, "model", json_string(opt_text(o, OPT_MODEL)));
    else gen_setup_job_hex(job, "model", model);
    gen_setup_job_hex(job, "adapter", adapter);
    snprintf(context, sizeof context, "%lld", (long long)n->spec.context);
    json_object_set_new(job, "context", json_string(context));
    return job;
}

/* ---- requests ---- */

Request gen_setup_request(const GenSetup *n, uint64_t seed) {
    const Options *o = n->o;
    bool many = o->command == CMD_GENERATE;
    Request r = {.max_new = opt_int(o, OPT_MAX_TOKENS),
                 .samples = many ? (int)opt_int(o, OPT_N) : 1,
                 .key = rng_fold(seed, 0x6e17),
                 .stop_id = n->stop.id,
                 .n_stop_ids = n->stop.n,
                 .want_logp = opt_flag(o, OPT_LOGPROBS)};
    r.sampling = (Sampling){.temperature = opt_given(o, OPT_TEMPERATURE) ? (float)opt_real(o, OPT_TEMPERATURE)
                                           : o->command == CMD_CHAT      ? 0.7f
                                                                         : 0,
                            .top_k = opt_int(o, OPT_TOP_K),
                            .top_p = (float)opt_real(o, OPT_TOP_P),
                            .min_p = (float)opt_real(o, OPT_MIN_P),
                            .repetition = (float)opt_real(o, OPT_REPETITION)};
    r.stops.n = opt_list(o, OPT_STOP, &r.stops.text);
    return r;
}

static bool need_tokenizer(const GenSetup *n, Err *e) {
    return n->words.tokenizer ||
           fail(e, ERR_FAIL, "%s: has no tokenizer.json; give --tokenizer DIR, or prompts as ids", n->model.folder);
}

bool gen_setup_encode_text(const GenSetup *n, TokenIds *out, const char *text, int64_t bytes, Err *e) {
    return need_tokenizer(n, e) && tokenizer_encode(n->words.tokenizer, out, text, bytes, TOKENIZE_ADD_SPECIAL, e);
}

bool gen_setup_encode_chat(const GenSetup *n, TokenIds *out, const json_t *messages, Err *e) {
    if (!need_tokenizer(n, e)) return false;
    if (!n->words.chat) return fail(e, ERR_FAIL, "%s: has no chat template; give the prompt as text", n->model.folder);
    return template_encode_chat(n->words.chat, n->words.tokenizer, out, messages, e);
}
