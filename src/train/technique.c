/* technique.c - the rows of the table: one group of short functions a technique. */
#include "train/technique.h"

#include <string.h>

/* Behind what is there already. */
#define FLAG(out, ...) ((out)->len ? str_add_char(out, ' ') : (void)0, str_addf(out, __VA_ARGS__))
#define ROW(name) name##_is_on, name##_undo, name##_describe, name##_flags, name##_take

/* ---- micro-batch: the global batch stays ---- */

static bool micro_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return job_micro_samples(s) != job_micro_samples(plain);
}

static void micro_undo(const Technique *t, JobSpec *s, const JobSpec *plain) {
    s->micro_batch = plain->micro_batch;
    s->accum = plain->accum;
    if (!s->task) return;
    s->seq = plain->seq; /* a task's rows are as long as what lies in them */
    s->row_samples = plain->row_samples;
    s->shared_tokens = plain->shared_tokens;
    s->rows = plain->rows;
}

static void micro_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    str_addf(out, "micro-batch %lld x %lld, not %lld x %lld", (long long)job_micro_samples(s), (long long)s->accum,
             (long long)job_micro_samples(plain), (long long)plain->accum);
}

static void micro_flags(const Technique *t, Str *out, const JobSpec *s) {
    if (s->rows)
        FLAG(out, "--micro-batch %lld --global-batch %lld", (long long)job_micro_samples(s),
             (long long)s->rows->samples);
    else
        FLAG(out, "--micro-batch %lld --accum %lld", (long long)job_micro_samples(s), (long long)s->accum);
}

static bool micro_take(const Technique *t, JobSpec *s, MachineKind kind) {
    if (job_micro_samples(s) < 2 || s->update_in_backward) return false;
    job_set_micro(s, job_micro_samples(s) / 2, kind);
    return true;
}

/* ---- recompute ---- */

static bool recompute_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return memcmp(s->recompute, plain->recompute, sizeof s->recompute) != 0;
}

static void recompute_undo(const Technique *t, JobSpec *s, const JobSpec *plain) {
    memcpy(s->recompute, plain->recompute, sizeof s->recompute);
}

static void recompute_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    int count[RECOMPUTE_LEVELS] = {0};
    const char *gap = "recompute ";
    for (int l = 0; l < s->m.config.layers; l++) count[s->recompute[l]]++;
    for (int level = RECOMPUTE_LEVELS - 1; level > RECOMPUTE_NONE; level--) /* the heaviest first */
        if (count[level])
            str_addf(out, "%s%s x %d", gap, plan_recompute_name((RecomputeLevel)level), count[level]), gap = ", ";
}

/* Stretches of layers at one level. */
static void recompute_flags(const Technique *t, Str *out, const JobSpec *s) {
    int layers = s->m.config.layers, same = 1;
    while (same < layers && s->recompute[same] == s->recompute[0]) same++;
    FLAG(out, "--recompute ");
    for (int first = 0, next; first < layers; first = next) {
        const char *name = plan_recompute_name(s->recompute[first]);
        for (next = first; next < layers && s->recompute[next] == s->recompute[first];) next++;
        if (same == layers) str_add(out, name);
        else str_addf(out, "%s%s:%d-%d", first ? "," : "", name, first, next - 1);
    }
}

static bool recompute_take(const Technique *t, JobSpec *s, MachineKind kind) {
    RecomputeLevel least = RECOMPUTE_BLOCK;
    for (int l = 0; l < s->m.config.layers; l++) least = MIN2(least, s->recompute[l]);
    if (!s->train || least >= RECOMPUTE_BLOCK) return false;
    for (int l = 0; l < s->m.config.layers; l++) s->recompute[l] = MAX2(s->recompute[l], least + 1);
    return true;
}

/* ---- offload: rows by kind and by where it waits ---- */

static OffloadKind kind_of(const Technique *t) { return (OffloadKind)(t->arg / 2); }
static bool on_disk(const Technique *t) { return t->arg % 2; }

static int64_t offloaded(const Technique *t, const JobSpec *s) {
    const Offload *o = &s->m.offload;
    int64_t disk = o->on_disk[kind_of(t)];
    return on_disk(t) ? disk : o->layers[kind_of(t)] - disk;
}

static bool offload_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return offloaded(t, s) > 0 && offloaded(t, s) != offloaded(t, plain);
}

static void offload_undo(const Technique *t, JobSpec *s, const JobSpec *plain) {
    s->m.offload.layers[kind_of(t)] += offloaded(t, plain) - offloaded(t, s);
    if (on_disk(t)) s->m.offload.on_disk[kind_of(t)] = offloaded(t, plain);
}

static void offload_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    static const char *const what[OFFLOAD_KINDS] = {"weights", "moments", "gradients", "inputs kept for backward"};
    str_addf(out, "%s of %lld layers %s", what[kind_of(t)], (long long)offloaded(t, s),
             on_disk(t) ? "on disk" : "in pinned memory");
}

static void offload_flags(const Technique *t, Str *out, const JobSpec *s) {
    FLAG(out, "--offload ");
    offload_text(out, &s->m.offload, s->m.config.layers);
}

/* ---- other models' weights: said by the option that names the model ---- */

static bool side_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return s->side_offload[t->arg] && s->side_offload[t->arg] != plain->side_offload[t->arg];
}
static void side_undo(const Technique *t, JobSpec *s, const JobSpec *plain) {
    s->side_offload[t->arg] = plain->side_offload[t->arg];
}
static void side_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    str_addf(out, "%s: weights of %lld layers in pinned memory", s->task->side[t->arg].name,
             (long long)s->side_offload[t->arg]);
}

/* ---- what a task has of its own ---- */

static bool task_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return s->task_saving && s->task_saving != plain->task_saving;
}
static void task_undo(const Technique *t, JobSpec *s, const JobSpec *plain) { s->task_saving = plain->task_saving; }
static void task_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    s->task->describe_saving(s->task, s, out);
}

/* ---- update inside backward ---- */

static bool early_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return s->update_in_backward && !plain->update_in_backward;
}
static void early_undo(const Technique *t, JobSpec *s, const JobSpec *plain) {
    s->update_in_backward = plain->update_in_backward;
}
static void early_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    str_add(out, "update inside backward");
}
static void early_flags(const Technique *t, Str *out, const JobSpec *s) {
    if (s->update_in_backward) FLAG(out, "--update-in-backward on");
}

/* ---- the head in smaller chunks ---- */

static bool head_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return s->head_chunk && (!plain->head_chunk || s->head_chunk < plain->head_chunk);
}
static void head_undo(const Technique *t, JobSpec *s, const JobSpec *plain) { s->head_chunk = plain->head_chunk; }
static void head_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    str_addf(out, "head in chunks of %lld", (long long)s->head_chunk);
}
static void head_flags(const Technique *t, Str *out, const JobSpec *s) {
    if (s->head_chunk) FLAG(out, "--head-chunk %lld", (long long)s->head_chunk);
}
static bool head_take(const Technique *t, JobSpec *s, MachineKind kind) {
    int64_t chunk = s->head_chunk ? s->head_chunk : job_default_chunk(s, kind);
    if (chunk <= HEAD_TILE || s->micro_batch * s->seq <= HEAD_TILE) return false;
    s->head_chunk = HEAD_TILE;
    return true;
}

/* ---- the feed-forward in pieces ---- */

static bool ffn_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return s->ffn_chunks > 1 && s->ffn_chunks != plain->ffn_chunks;
}
static void ffn_undo(const Technique *t, JobSpec *s, const JobSpec *plain) { s->ffn_chunks = plain->ffn_chunks; }
static void ffn_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    str_addf(out, "feed-forward in %lld pieces", (long long)s->ffn_chunks);
}
static void ffn_flags(const Technique *t, Str *out, const JobSpec *s) {
    if (s->ffn_chunks > 1) FLAG(out, "--ffn-chunks %lld", (long long)s->ffn_chunks);
}
static bool ffn_take(const Technique *t, JobSpec *s, MachineKind kind) {
    int64_t pieces = job_useful_pieces(s);
    if (!pieces || s->ffn_chunks > 1 || s->recompute[0] < RECOMPUTE_BLOCK) return false;
    s->ffn_chunks = pieces;
    return true;
}

/* ---- attention without a library's scratch ---- */

static bool attention_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return s->attend == ATTEND_OWN && plain->attend != ATTEND_OWN;
}
static void attention_undo(const Technique *t, JobSpec *s, const JobSpec *plain) { s->attend = plain->attend; }
static void attention_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    str_add(out, "attention by snug's own kernels");
}
static void attention_flags(const Technique *t, Str *out, const JobSpec *s) {
    if (s->attend == ATTEND_OWN && s->attend_asked != ATTEND_OWN) FLAG(out, "--attention own");
}

/* ---- what changes the mathematics, in order of damage ---- */

static bool is_frozen(const JobSpec *s) { return !s->train || s->lora; }

static bool moments_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return s->moments != plain->moments;
}
static void moments_undo(const Technique *t, JobSpec *s, const JobSpec *plain) { s->moments = plain->moments; }
static void moments_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    str_add(out, "moments in 8 bit");
}
static void moments_flags(const Technique *t, Str *out, const JobSpec *s) {
    static const char *const name[] = {"fp32", "bf16", "8bit"};
    FLAG(out, "--moments %s", name[s->moments]);
}
static bool moments_take(const Technique *t, JobSpec *s, MachineKind kind) {
    if (!s->train || s->optimizer != OPTIMIZER_ADAMW || s->moments == MOMENTS_8BIT) return false;
    s->moments = MOMENTS_8BIT;
    return true;
}

static bool stored_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return s->m.quantised && (int)s->m.stored == t->arg && (!plain->m.quantised || plain->m.stored != s->m.stored);
}
static void stored_undo(const Technique *t, JobSpec *s, const JobSpec *plain) {
    s->m.quantised = plain->m.quantised;
    s->m.stored = plain->m.stored;
}
static void stored_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    str_addf(out, "frozen weights in %s", format_name(s->m.stored));
}
static void stored_flags(const Technique *t, Str *out, const JobSpec *s) {
    if (s->m.quantised) FLAG(out, "--quantize %s", s->m.stored == FMT_NF4 ? "nf4" : "int8");
}
static bool stored_take(const Technique *t, JobSpec *s, MachineKind kind) {
    bool smaller = !s->m.quantised || (s->m.stored == FMT_INT8 && t->arg == FMT_NF4);
    if (!is_frozen(s) || !smaller) return false;
    s->m.quantised = true;
    s->m.stored = (Format)t->arg;
    return true;
}

static bool head8_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return s->m.head_int8 && !plain->m.head_int8;
}
static void head8_undo(const Technique *t, JobSpec *s, const JobSpec *plain) { s->m.head_int8 = plain->m.head_int8; }
static void head8_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    str_add(out, "head in int8");
}
static void head8_flags(const Technique *t, Str *out, const JobSpec *s) {
    if (s->m.head_int8) FLAG(out, "--quantize-head int8");
}
static bool head8_take(const Technique *t, JobSpec *s, MachineKind kind) {
    if (!is_frozen(s) || s->m.head_int8) return false;
    s->m.head_int8 = true;
    return true;
}

static bool rank_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return s->m.adapter.rank != plain->m.adapter.rank;
}
static void rank_undo(const Technique *t, JobSpec *s, const JobSpec *plain) { s->m.adapter = plain->m.adapter; }
static void rank_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    str_addf(out, "rank %d, not %d", s->m.adapter.rank, plain->m.adapter.rank);
}
static void rank_flags(const Technique *t, Str *out, const JobSpec *s) {
    FLAG(out, "--lora-rank %d --lora-alpha %g", s->m.adapter.rank, (double)s->m.adapter.alpha);
}
static bool rank_take(const Technique *t, JobSpec *s, MachineKind kind) {
    if (!s->lora || s->m.adapter.rank < 16) return false;
    s->m.adapter.rank /= 2;
    s->m.adapter.alpha /= 2;
    return true;
}

static bool seq_is_on(const Technique *t, const JobSpec *s, const JobSpec *plain) {
    return !s->task && s->seq != plain->seq;
}
static void seq_undo(const Technique *t, JobSpec *s, const JobSpec *plain) {
    if (!s->task) s->seq = plain->seq;
}
static void seq_describe(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain) {
    str_addf(out, "rows of %lld tokens, not %lld", (long long)s->seq, (long long)plain->seq);
}
static void seq_flags(const Technique *t, Str *out, const JobSpec *s) { FLAG(out, "--seq %lld", (long long)s->seq); }
static bool seq_take(const Technique *t, JobSpec *s, MachineKind kind) {
    if (s->seq < 256 || s->task) return false; /* a task's rows are as long as what it puts there */
    s->seq /= 2;
    return true;
}

/* ---- the table ---- */

#define OFFLOADED(kind, disk, flags) \
    { 0, 2 * (kind) + (disk), offload_is_on, offload_undo, offload_describe, flags, NULL }

const Technique technique_table[] = {
    {0, 0, ROW(micro)},
    {0, 0, ROW(recompute)},
    OFFLOADED(OFFLOAD_WEIGHTS, 0, offload_flags), /* one option says it for all */
    OFFLOADED(OFFLOAD_WEIGHTS, 1, NULL),
    OFFLOADED(OFFLOAD_MOMENTS, 0, NULL),
    OFFLOADED(OFFLOAD_MOMENTS, 1, NULL),
    OFFLOADED(OFFLOAD_GRADIENTS, 0, NULL),
    OFFLOADED(OFFLOAD_GRADIENTS, 1, NULL),
    OFFLOADED(OFFLOAD_INPUTS, 0, NULL),
    {0, 0, side_is_on, side_undo, side_describe, NULL, NULL},
    {0, 1, side_is_on, side_undo, side_describe, NULL, NULL},
    {0, 0, task_is_on, task_undo, task_describe, NULL, NULL},
    {0, 0, early_is_on, early_undo, early_describe, early_flags, NULL},
    {0, 0, ROW(head)},
    {0, 0, ROW(ffn)},
    {0, 0, attention_is_on, attention_undo, attention_describe, attention_flags, NULL},
    {ALLOW_8BIT, 0, ROW(moments)},
    {ALLOW_INT8, FMT_INT8, ROW(stored)},
    {ALLOW_INT8, 0, ROW(head8)},
    {ALLOW_NF4, FMT_NF4, ROW(stored)},
    {ALLOW_RANK, 0, ROW(rank)},
    {ALLOW_SEQ, 0, ROW(seq)},
};
const int technique_count = COUNT_OF(technique_table);

/* ---- what is made from it ---- */

void technique_plain(JobSpec *plain, const JobSpec *spec, int64_t samples, MachineKind kind) {
    *plain = *spec;
    job_set_micro(plain, samples, kind);
    plain->head_chunk = plain->ffn_chunks = 0;
    plain->attend = spec->attend_asked;
    plain->update_in_backward = plain->m.quantised = plain->m.head_int8 = false;
    if (plain->moments == MOMENTS_8BIT) plain->moments = spec->weights == FMT_F32 ? MOMENTS_F32 : MOMENTS_BF16;
    plain->m.offload = (Offload){0};
    memset(plain->side_offload, 0, sizeof plain->side_offload);
    plain->task_saving = 0;
    for (int l = 0; l < spec->m.config.layers; l++) plain->recompute[l] = RECOMPUTE_NONE;
}

void technique_forget(JobSpec *s, const JobSpec *asked) {
    for (int i = 0; i < technique_count; i++)
        if (!technique_table[i].allow) technique_table[i].undo(&technique_table[i], s, asked);
}

void technique_layout_flags(Str *out, const JobSpec *s) {
    for (int i = 0; i < technique_count; i++)
        if (!technique_table[i].allow && technique_table[i].flags)
            technique_table[i].flags(&technique_table[i], out, s);
}

void technique_changed_flags(Str *out, const JobSpec *now, const JobSpec *asked, bool maths_only) {
    for (int i = 0; i < technique_count; i++) {
        const Technique *t = &technique_table[i];
        Str is = {0}, was = {0};
        if (!t->flags || (maths_only && !t->allow)) continue;
        t->flags(t, &is, now);
        t->flags(t, &was, asked);
        bool on = !t->allow || t->is_on(t, now, asked); /* two rows may share an option */
        if (on && is.len && strcmp(str_text(&is), str_text(&was))) FLAG(out, "%s", str_text(&is));
        str_free(&is);
        str_free(&was);
    }
}

bool technique_take(JobSpec *s, unsigned allow, MachineKind kind) {
    for (int i = 0; i < technique_count; i++) {
        const Technique *t = &technique_table[i];
        if (t->allow & allow && t->take(t, s, kind)) return true;
    }
    return false;
}
