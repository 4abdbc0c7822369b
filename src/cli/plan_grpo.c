/* plan_grpo.c - how options name the models beside a policy, and what their ring looks like to a person: whose
 * weights are where, what each phase takes, on which cards it goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "cli/plan_case.h"
#include "ir/cards.h"

enum { SIDE_REFERENCE, SIDE_EVALUATOR, SIDES };

/* ---- from options to models ---- */

static bool parse_word(SideModel *m, bool *placed, const char *word, int64_t len) {
    char text[32] = "", *end;
    if (len >= (int64_t)sizeof text) return false;
    memcpy(text, word, (size_t)len);
    bool nf4 = !strcmp(text, "nf4");
    if (nf4 || !strcmp(text, "int8")) {
        m->quantised = true;
        m->stored = nf4 ? FMT_NF4 : FMT_INT8;
        return true;
    }
    *placed = true;
    m->sent = strcmp(text, "streamed") ? 0 : m->model.layers;
    if (m->sent || !strcmp(text, "resident")) return true;
    if (strncmp(text, "streamed=", 9)) return false;
    m->sent = strtol(text + 9, &end, 10);
    return !*end && m->sent >= 1 && m->sent <= m->model.layers;
}

/* "int8,streamed=24" */
static bool parse_how(SideModel *m, bool *placed, const char *flag, const char *how, Err *e) {
    for (const char *at = how; at && *at; at += *at == ',') {
        int64_t len = (int64_t)strcspn(at, ",");
        if (!parse_word(m, placed, at, len))
            return fail(
                e, ERR_USAGE,
                "%s: '%.*s' is not a way to keep a model of %d layers; use int8, nf4, resident, streamed or "
                "streamed=LAYERS",
                flag, (int)len, at, m->model.layers);
        at += len;
    }
    return true;
}

/* MODEL[:HOW]; a path may hold colons, HOW never holds a slash. */
static bool open_side(SideModel *m, bool *may_stream, const char *flag, const char *text, const ModelConfig *same,
                      Err *e) {
    char name[1024];
    const char *colon = strrchr(text, ':');
    if (colon && strchr(colon, '/')) colon = NULL;
    snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - text) : (int)strlen(text), text);
    *m = (SideModel){0};
    if (same && !strcmp(name, "same")) {
        m->model = *same;
    } else {
        Model found;
        if (!setup_model_named(&found, flag, name, e)) return false;
        m->model = found.config;
    }
    if (m->model.quant == QUANT_OWN) m->quantised = true, m->stored = m->model.quant_format;
    bool placed = false;
    if (!parse_how(m, &placed, flag, colon ? colon + 1 : NULL, e)) return false;
    *may_stream = !placed;
    return true;
}

static bool open_reference(PlanCase *c, Err *e) {
    const char *text = opt_text(c->o, OPT_REFERENCE);
    GrpoSpec *g = &c->grpo;
    if (!strcmp(text, "none")) return true;
    bool base = !strcmp(text, "same") && c->asked.lora;
    g->reference_kind = base ? REFERENCE_BASE : REFERENCE_MODEL;
    return base ||
           open_side(&g->reference, &c->may_stream[SIDE_REFERENCE], "--reference", text, &c->model.config, e);
}

bool plan_grpo_prepare(PlanCase *c, Err *e) {
    const Options *o = c->o;
    GrpoSpec *g = &c->grpo;
    JobSpec *s = &c->asked;
    *g = (GrpoSpec){.group = opt_int(o, OPT_GROUP),
                    .prompt_tokens = opt_int(o, OPT_PROMPT_TOKENS),
                    .answer_tokens = opt_int(o, OPT_MAX_TOKENS),
                    .slots = opt_int(o, OPT_SLOTS),
                    .chunk = opt_int(o, OPT_PREFILL_CHUNK)};
    g->evaluator_tokens = opt_given(o, OPT_EVALUATOR_TOKENS) ? opt_int(o, OPT_EVALUATOR_TOKENS) : g->answer_tokens;
    if (!g->chunk) g->chunk = 2048;
    int64_t row = g->prompt_tokens + g->answer_tokens;
    if (opt_given(o, OPT_SEQ) && s->seq != row)
        return fail(e, ERR_USAGE,
                    "--seq %lld: a row of grpo is a prompt and its answer, --prompt-tokens and --max-tokens: %lld",
                    (long long)s->seq, (long long)row);
    s->seq = row;
    if (!opt_given(o, OPT_GLOBAL_BATCH) && !opt_given(o, OPT_MICRO_BATCH) && !opt_given(o, OPT_ACCUM)) {
        s->micro_batch = c->global_batch = g->group;
        s->accum = 1;
    }
    if (c->global_batch % g->group)
        return fail(e, ERR_USAGE,
                    "a global batch of %lld answers is not made of groups of %lld; see --group and --global-batch",
                    (long long)c->global_batch, (long long)g->group);
    if (!open_reference(c, e)) return false;
    g->has_evaluator = opt_given(o, OPT_EVALUATOR);
    if (g->has_evaluator && !open_side(&g->evaluator, &c->may_stream[SIDE_EVALUATOR], "--evaluator",
                                       opt_text(o, OPT_EVALUATOR), NULL, e))
        return false;
    c->grpo_now = *g;
    c->beside = grpo_beside(g);
    c->beside_now = grpo_beside(&c->grpo_now);
    s->beside = &c->beside;
    s->sweep = false; /* what flows into the head depends on the log-probabilities it gives */
    return true;
}

/* The reference first: it is read once for many rows; the evaluator once for every token. */
static bool stream_more(GrpoSpec *g, const bool *may_stream) {
    SideModel *side[SIDES] = {&g->reference, &g->evaluator};
    const bool there[SIDES] = {g->reference_kind == REFERENCE_MODEL, g->has_evaluator};
    for (int i = 0; i < SIDES; i++)
        if (there[i] && may_stream[i] && !side[i]->sent) {
            side[i]->sent = side[i]->model.layers;
            return true;
        }
    return false;
}

bool plan_grpo_stream_more(PlanCase *c) {
    return c->has_grpo && stream_more(&c->grpo_now, c->may_stream);
}

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

static Format stored_of(const SideModel *m) {
    return m->quantised ? m->stored : m->model.dtype;
}

static const char *how_kept(const SideModel *m) {
    return !m->sent                    ? "frozen, resident"
           : m->sent < m->model.layers ? "frozen, partly streamed"
                                       : "frozen, streamed";
}

static void add_models(Str *text, json_t *root, const PlanCase *c) {
    const JobSpec *s = &c->job.spec;
    const GrpoSpec *g = &c->grpo_now;
    const Program *p = &c->job.p;
    json_t *list = json_array();
    Format own = s->quantised ? s->stored : s->lora ? s->model.dtype : s->weights;
    str_addf(text, "\nthe models\n  %-10s %-14s %16s  %-5s %11s %11s\n", "", "", "parameters", "", "device",
             "pinned");
    add_model(text, list, p, "policy", NULL, &s->model, own, s->lora ? "adapters are trained" : "trained");
    if (g->reference_kind == REFERENCE_BASE)
        str_add(text, "  reference  the policy's weights without its adapters\n");
    if (g->reference_kind == REFERENCE_MODEL)
        add_model(text, list, p, "reference", GRPO_REFERENCE, &g->reference.model, stored_of(&g->reference),
                  how_kept(&g->reference));
    if (g->has_evaluator)
        add_model(text, list, p, "evaluator", GRPO_EVALUATOR, &g->evaluator.model, stored_of(&g->evaluator),
                  how_kept(&g->evaluator));
    json_object_set_new(root, "models", list);
}

/* ---- the phases ---- */

static double plays_of(const Job *j, int phase) { /* in one update */
    for (int i = 0; i < j->n_plays; i++)
        if (j->plays[i].phase == phase) return j->plays[i].times;
    return phase == j->phase_micro ? (double)j->spec.accum : phase == j->phase_update;
}

static int64_t peak_of(const Timeline *t, const Phase *phase) {
    int64_t most = 0;
    for (int i = phase->begin; i < phase->end; i++) {
        int64_t sum = 0;
        for (int k = 0; k < t->n_lines; k++) sum += t->bytes[(int64_t)k * t->n_steps + i];
        most = MAX2(most, sum);
    }
    return most;
}

static void add_phases(Str *text, json_t *root, const PlanCase *c) {
    const Job *j = &c->job;
    const Program *p = &j->p;
    Timeline t;
    plan_timeline(&t, p, &j->machine, POOL_DEVICE);
    int peak = prog_phase_of(p, t.peak_step);
    json_t *list = json_array();
    str_addf(text,
             "\nthe phases of an update, the largest shape of each: what is alive of %s\n  %-24s %9s %10s %11s\n",
             units_bytes(j->ledger.arena_bytes[POOL_DEVICE]).s, "", "plays", "time", "peak");
    for (int i = 0; i < p->n_phases; i++) {
        double plays = plays_of(j, i), seconds = plan_step_seconds(p, &j->machine, i);
        int64_t bytes = peak_of(&t, &p->phase[i]);
        if (plays > 0 || i == peak)
            str_addf(text, "  %-24s %9s %10s %11s%s\n", p->phase[i].name, units_count((int64_t)plays).s,
                     units_seconds(plays * seconds).s, units_bytes(bytes).s, i == peak ? "  the peak" : "");
        json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:I}", "name", p->phase[i].name, "plays", plays,
                                              "seconds", plays * seconds, "peak_bytes", (json_int_t)bytes));
    }
    json_object_set_new(root, "phases", list);
    json_object_set_new(root, "peak_phase", json_string(peak >= 0 ? p->phase[peak].name : ""));
    plan_timeline_free(&t);
}

void plan_grpo_say_update(Str *text, const PlanCase *c) {
    const GrpoSpec *g = &c->grpo;
    str_addf(text, "%lld prompts of up to %lld tokens, %lld answers of up to %lld to each",
             (long long)(c->global_batch / g->group), (long long)g->prompt_tokens, (long long)g->group,
             (long long)g->answer_tokens);
    if (g->has_evaluator) str_addf(text, ", each evaluated in up to %lld", (long long)g->evaluator_tokens);
}

void plan_add_grpo(Str *text, json_t *root, const PlanCase *c) {
    str_add(text, "an update: ");
    plan_grpo_say_update(text, c);
    str_add(text, "\n");
    add_models(text, root, c);
    add_phases(text, root, c);
}

/* ---- the cards ---- */

typedef struct Way { /* one more model streamed than the way before */
    GrpoSpec spec;
    JobBeside beside;
    SearchMemo memo;
    int64_t least_bytes; /* that it can be squeezed into; 0: not planned yet */
    char note[48];
} Way;

static int find_ways(Way *way, const PlanCase *c, const Machine *m, int n_machines) {
    GrpoSpec g = c->grpo;
    int n = 0;
    bool more = true;
    for (; more && n <= SIDES; n++) {
        way[n] = (Way){.spec = g, .memo = {.machine = m, .n_machines = n_machines}};
        way[n].beside = grpo_beside(&way[n].spec);
        bool reference = g.reference_kind == REFERENCE_MODEL && g.reference.sent,
             judge = g.has_evaluator && g.evaluator.sent;
        snprintf(way[n].note, sizeof way[n].note, "%s%s%s", reference ? "reference" : "",
                 reference && judge ? ", " : "", judge ? "evaluator" : "");
        more = stream_more(&g, c->may_stream);
    }
    return n;
}

static int64_t least_bytes(const PlanCase *c, JobSpec s, const Machine *m) {
    Job *j = MEM_NEW(Job, 1);
    int64_t bytes = INT64_MAX;
    search_tightest(&s, m, c->free);
    s.estimate = true;
    if (job_open(j, &s, m, &c->host, NULL)) {
        bytes = job_process_bytes(j);
        job_close(j);
    }
    mem_free(j);
    return bytes;
}

/* The first card of the catalogue with that much memory stands for all of it. */
static bool is_first_of_its_size(int card) {
    for (int i = 0; i < card; i++)
        if (card_at(i)->label_gb == card_at(card)->label_gb) return false;
    return true;
}

static json_t *add_card(Str *text, const PlanCase *c, Way *way, int n_ways, int which, const Card *card) {
    Search *f = MEM_NEW(Search, 1);
    const Machine *m = &way->memo.machine[which];
    int64_t room = m->free_bytes[POOL_DEVICE] + m->context_bytes;
    int k = 0;
    bool fits = false;
    for (; k < n_ways && !fits; k++) {
        JobSpec s = c->asked;
        s.beside = &way[k].beside;
        if (!way[k].least_bytes) way[k].least_bytes = least_bytes(c, s, m);
        if (way[k].least_bytes > room) continue;
        fits = job_search_memo(f, &s, &way[k].memo, which, &c->host, c->free, (SearchLimits){.device_bytes = room});
    }
    json_t *row = json_pack("{s:s, s:I, s:s}", "name", card->name, "room_bytes", (json_int_t)room, "verdict",
                            !fits              ? "no"
                            : f->best || k > 1 ? "fits with"
                                               : "fits");
    str_addf(text, "  %4d GB  %-14s %10s  ", card->label_gb, card->name, units_bytes(room).s);
    if (fits) {
        const Try *t = &f->tried[f->best];
        const char *note = way[k - 1].note;
        Str flags = {0};
        search_flags(&flags, t, &c->asked);
        str_addf(text, "%10s  %10s  %s%s%s\n", units_bytes(t->device_bytes).s, units_seconds(t->update_seconds).s,
                 str_text(&flags), *note ? "; streamed: " : "", note);
        json_object_update_new(
            row, json_pack("{s:I, s:I, s:f, s:s, s:s}", "device_bytes", (json_int_t)t->device_bytes, "host_bytes",
                           (json_int_t)t->host_bytes, "update_seconds", t->update_seconds, "flags",
                           str_text(&flags), "streamed", note));
        str_free(&flags);
    } else {
        str_add(text, "        no  smaller models, --evaluator MODEL:nf4, or --mode lora are needed\n");
    }
    mem_free(f);
    return row;
}

void plan_add_grpo_cards(Str *text, json_t *root, const PlanCase *c) {
    int n = 0;
    Machine *m = MEM_NEW(Machine, card_count());
    const Card **card = MEM_NEW(const Card *, card_count());
    Way *way = MEM_NEW(Way, SIDES + 1);
    for (int i = 0; i < card_count(); i++)
        if (is_first_of_its_size(i)) m[n] = card_machine(card_at(i)), card[n++] = card_at(i);
    int n_ways = find_ways(way, c, m, n);
    json_t *list = json_array();
    str_addf(text, "\nthe cards, one of each size, empty; global batch %lld\n  %7s  %-14s %10s  %10s  %10s\n",
             (long long)c->global_batch, "", "", "memory", "takes", "an update");
    for (int i = 0; i < n; i++) json_array_append_new(list, add_card(text, c, way, n_ways, i, card[i]));
    json_object_set_new(root, "cards", list);
    for (int k = 0; k < n_ways; k++) search_memo_free(&way[k].memo);
    mem_free(way);
    mem_free(card);
    mem_free(m);
}
