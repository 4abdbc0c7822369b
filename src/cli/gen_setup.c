/* gen_setup.c - how options become an engine that answers, on top of what setup_model.c makes of them. */
#include "cli/gen_setup.h"

#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/jobs.h"
#include "cli/show.h"
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

bool gen_setup_stop_ids(StopIds *s, const ModelFiles *m, const Words *w, Err *e) {
    static const char *const files[] = {"generation_config.json", "config.json"};
    *s = (StopIds){0};
    for (int i = 0; i < COUNT_OF(files); i++) {
        FilePath path = file_in(m->folder, files[i]);
        json_error_t je;
        Str text = {0};
        if (!file_exists(path.s)) continue;
        if (!file_read(path.s, &text, 1 << 20, e)) return false;
        json_t *j = json_loadb(str_text(&text), (size_t)text.len, 0, &je);
        str_free(&text);
        if (!j) return fail(e, ERR_FAIL, "%s:%d: is not JSON: %s", path.s, je.line, je.text);
        add_stop_json(s, json_object_get(j, "eos_token_id"), m->config.vocab);
        json_decref(j);
    }
    if (w->tokenizer) add_stop_id(s, tokenizer_eos(w->tokenizer), m->config.vocab);
    if (w->chat) add_stop_id(s, template_turn_end(w->chat, w->tokenizer), m->config.vocab);
    return true;
}

/* ---- the shape ---- */

/* Weights are all that answers can offload; auto leaves it to gen_fit. */
static bool set_offload(GenSpec *s, const Options *o, const Machine *m, Err *e) {
    const int64_t *layers = s->m.offload.layers;
    bool automatic = opt_is(o, OPT_OFFLOAD, "auto"), has_folder = opt_given(o, OPT_OFFLOAD_DIR);
    s->may_use_disk = automatic && has_folder;
    s->may_offload = automatic && (m->kind != MACHINE_CPU || has_folder); /* there all pools are the same memory */
    return !(layers[OFFLOAD_MOMENTS] || layers[OFFLOAD_GRADIENTS] || layers[OFFLOAD_INPUTS]) ||
           fail(e, ERR_USAGE,
                "--offload %s: answers have nothing but weights to offload; use weights, weights=N or weights=disk:N",
                opt_text(o, OPT_OFFLOAD));
}

void gen_setup_offload_text(Str *out, const GenSpec *s) {
    int64_t disk = s->m.offload.on_disk[OFFLOAD_WEIGHTS], pinned = s->m.offload.layers[OFFLOAD_WEIGHTS] - disk;
    if (pinned) str_addf(out, "weights of %lld of %d layers in pinned memory", (long long)pinned, s->m.config.layers);
    if (disk)
        str_addf(out, "%s%lld%s on disk", pinned ? ", of " : "weights of ", (long long)disk,
                 pinned ? " more" : " layers");
}

static bool set_spec(GenSpec *s, const Options *o, const ModelConfig *c, const Machine *m, Err *e) {
    *s = (GenSpec){.slots = 1, .chunk = opt_int(o, OPT_PREFILL_CHUNK), .invariant = opt_flag(o, OPT_INVARIANT)};
    if (!setup_model_spec(&s->m, o, c, e)) return false;
    setup_fall_back_model(&s->m, o, m);
    s->cache = opt_is(o, OPT_KV_CACHE, "int8") ? FMT_INT8 : s->m.activations;
    if (s->m.activations == FMT_F16 && c->dtype == FMT_BF16) s->m.config.dtype = FMT_F16, s->m.recast = true;
    if (!s->chunk) s->chunk = m->kind == MACHINE_CPU ? 256 : 2048;
    return set_offload(s, o, m, e);
}

bool gen_setup_begin(GenSetup *n, const Options *o, Err *e) {
    *n = (GenSetup){.o = o};
    bool plans = o->command == CMD_PLAN, endless = o->command == CMD_GENERATE && opt_flag(o, OPT_IGNORE_EOS);
    return setup_model(&n->model, o, e) &&
           (plans || opt_given(o, OPT_INIT) || setup_need_weights(&n->model, o, e)) &&
           setup_words(&n->words, o, &n->model, e) && setup_backend(&n->backend, &n->machine, o, e) &&
           set_spec(&n->spec, o, &n->model.config, &n->machine, e) &&
           (plans || endless || gen_setup_stop_ids(&n->stop, &n->model, &n->words, e));
}

void gen_setup_tell(GenSetup *n, const char *phase, const char *unit, int64_t total) {
    snprintf(n->status.unit, sizeof n->status.unit, "%s", unit);
    n->status.total_steps = total;
    status_phase(&n->status, phase);
}

void gen_setup_end(GenSetup *n) {
    status_end(&n->status);
    engine_close(&n->engine);
    if (n->gen) gen_close(n->gen);
    mem_free(n->gen);
    ring_close(&n->ring);
    if (n->backend) n->backend->close(n->backend);
    setup_words_free(&n->words);
}

/* ---- memory ---- */

int64_t gen_setup_slots(const GenSetup *n, int64_t most) {
    if (opt_given(n->o, OPT_SLOTS)) return opt_int(n->o, OPT_SLOTS);
    return MIN2(n->machine.kind == MACHINE_CPU ? 32 : 64, most);
}

bool gen_setup_limits(GenSetup *n, GenHost *host, Err *e) {
    if (!setup_limits(&n->limits, n->o, &n->machine, e)) return false;
    n->spec.host_room_bytes = n->limits.host_bytes;
    if (n->words.tokenizer) host->tokenizer = tokenizer_bytes(n->words.tokenizer);
    return true;
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
    if (log_is_terminal()) log_progress("%s%s", what, what[0] ? " ..." : ""); /* "" clears the line */
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
    engine_open(&n->engine, g, n->words.tokenizer, (EngineOptions){.piece = piece, .status = &n->status});
    n->status.measured_bytes = ring_most_bytes(r);
    status_phase(&n->status, "answering");
    return begin_stage("", e);
}

void gen_setup_text(Str *out, const GenSetup *n, const Measured *measured) {
    const GenSpec *s = &n->spec;
    const Ring *r = &n->ring;
    str_addf(out,
             "%s: %s parameters; %lld slots of %lld tokens, on %s; planned in %.1f ms (%lld tensors, %lld steps)\n",
             s->m.config.name, units_count(config_parameters(&s->m.config)).s, (long long)s->slots,
             (long long)s->context, n->machine.name, r->plan_ms, (long long)r->p.n_t, (long long)r->p.n_s);
    str_addf(out, "dtypes: weights %s%s, activations %s, cache %s\n",
             format_name(s->m.quantised ? s->m.stored : s->m.config.dtype), s->m.head_int8 ? ", head int8" : "",
             format_name(s->m.activations), format_name(s->cache));
    show_ledger(out, &r->ledger, ring_process_bytes(r), n->machine.kind == MACHINE_CPU, measured);
}

static void show(const GenSetup *n, const Measured *measured) {
    int64_t budget = n->limits.device_bytes;
    Str text = {0};
    gen_setup_text(&text, n, measured);
    if (budget != INT64_MAX && !measured)
        str_addf(&text, "budget: %s bytes; FITS by %s\n", units_count(budget).s,
                 units_bytes(budget - ring_process_bytes(&n->ring)).s);
    log_str(&text);
}

bool gen_setup_start(GenSetup *n, const GenHost *host, bool fewer_slots, int64_t least_context, Err *e) {
    GenHost h = *host;
    int64_t slots = n->spec.slots, context = n->spec.context;
    if (!gen_setup_limits(n, &h, e)) return false;
    if (!gen_fit(&n->spec, &n->machine, &h, fewer_slots, least_context, n->limits.device_bytes, e))
        return name_limit(n, e);
    if (n->spec.may_offload && n->spec.m.offload.layers[OFFLOAD_WEIGHTS]) {
        Str offloaded = {0};
        gen_setup_offload_text(&offloaded, &n->spec);
        log_line("%s (--offload)", str_text(&offloaded));
        str_free(&offloaded);
    }
    if (n->spec.slots < slots || n->spec.context < context)
        log_line("the budget holds %lld slots of %lld tokens (wanted: %lld of %lld)", (long long)n->spec.slots,
                 (long long)n->spec.context, (long long)slots, (long long)context);
    n->gen = MEM_NEW(Gen, 1);
    if (!gen_plan(n->gen, &n->ring, &n->spec, &n->machine, &h, e)) return false;
    if (n->o->command != CMD_CHAT) show(n, NULL);
    if (!setup_check_free(&n->ring, n->backend, e) || !setup_check_disk(ring_disk_bytes(&n->ring), n->limits, e))
        return false;
    jobs_announce(&n->status, n->o, &n->ring, "", 0);
    return load(n, e);
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

json_t *gen_setup_job(const GenSetup *n, const OptId *same, int n_same, Err *e) {
    const Options *o = n->o;
    uint64_t model = 0, adapter = 0;
    bool drawn = !n->model.has_folder; /* a preset with --init random: its name and the seed say it all */
    if (!drawn && !identity_of(&model, n->model.folder, e)) return NULL;
    if (opt_given(o, OPT_ADAPTER) && !identity_of(&adapter, opt_text(o, OPT_ADAPTER), e)) return NULL;
    json_t *job = json_object(); /* what a person set comes first, to be named first */
    for (int i = 0; i < n_same; i++)
        if (opt_text(o, same[i]))
            json_object_set_new(job, option_rows[same[i]].name, json_string(opt_text(o, same[i])));
    if (drawn) json_object_set_new(job, "model", json_string(opt_text(o, OPT_MODEL)));
    else json_set_hex(job, "model", model);
    json_set_hex(job, "adapter", adapter);
    json_object_set_new(job, "context", json_sprintf("%lld", (long long)n->spec.context));
    return job;
}

/* ---- requests ---- */

Sampling gen_setup_sampling(const Options *o, float temperature) {
    return (Sampling){.temperature = opt_given(o, OPT_TEMPERATURE) ? (float)opt_real(o, OPT_TEMPERATURE) : temperature,
                      .top_k = MAX2(opt_int(o, OPT_TOP_K), 0),
                      .top_p = (float)opt_real(o, OPT_TOP_P),
                      .min_p = (float)opt_real(o, OPT_MIN_P),
                      .repetition = (float)opt_real(o, OPT_REPETITION)};
}

Request gen_setup_request(const GenSetup *n, uint64_t seed) {
    const Options *o = n->o;
    bool many = o->command == CMD_GENERATE;
    Request r = {.max_new = opt_int(o, OPT_MAX_TOKENS),
                 .samples = many ? (int)opt_int(o, OPT_N) : 1,
                 .key = rng_fold(seed, 0x6e17),
                 .stop_id = n->stop.id,
                 .n_stop_ids = n->stop.n,
                 .want_logp = opt_flag(o, OPT_LOGPROBS)};
    r.sampling = gen_setup_sampling(o, o->command == CMD_CHAT ? 0.7f : 0);
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

bool gen_setup_encode_turn(const GenSetup *n, TokenIds *out, const char *text, int64_t bytes, Err *e) {
    json_t *messages = json_pack("[{s:s, s:s%}]", "role", "user", "content", text, (size_t)bytes);
    if (!messages) return fail(e, ERR_FAIL, "the prompt is not UTF-8");
    bool ok = gen_setup_encode_chat(n, out, messages, e);
    json_decref(messages);
    return ok;
}
