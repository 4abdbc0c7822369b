/* changes.c - what could be changed to make a job smaller, each tried as an exact plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/job.h"

typedef struct Search {
    const Job *job;
    const HostBytes *host;
    int64_t budget_bytes, now_bytes;
    double now_seconds;
    Change found[64];
    int n;
} Search;

/* Plans the changed spec; keeps it when it saves and (with a budget) fits. */
static bool try_spec(Search *s, const JobSpec *spec, bool maths, const char *flags) {
    Job *j = MEM_NEW(Job, 1);
    bool kept = false;
    if (job_open(j, spec, &s->job->machine, s->host, NULL)) {
        int64_t bytes = job_process_bytes(j);
        if (bytes < s->now_bytes && (!s->budget_bytes || bytes <= s->budget_bytes) && s->n < COUNT_OF(s->found)) {
            Change *c = &s->found[s->n++];
            *c = (Change){.saves_bytes = s->now_bytes - bytes, .maths = maths};
            c->slowdown = s->now_seconds > 0 ? job_update_seconds(j) / s->now_seconds : 0;
            snprintf(c->flags, sizeof c->flags, "%s", flags);
            kept = true;
        }
        job_close(j);
    }
    mem_free(j);
    return kept;
}

static bool uniform(const JobSpec *s, RecomputeLevel level) {
    for (int l = 0; l < s->model.layers; l++)
        if (s->recompute[l] != level) return false;
    return true;
}

static void set_all(JobSpec *s, RecomputeLevel level) {
    for (int l = 0; l < s->model.layers; l++) s->recompute[l] = level;
}

/* As few whole blocks as the budget needs; the rest keeps the cheap level. */
static bool try_some_blocks(Search *s, const JobSpec *base, const char *more) {
    int low = 1, high = base->model.layers - 1, best = 0;
    if (!s->budget_bytes || !uniform(base, RECOMPUTE_NONE)) return false;
    while (low <= high) { /* bytes fall as more layers are recomputed */
        int middle = (low + high) / 2, kept = s->n;
        JobSpec spec = *base;
        set_all(&spec, RECOMPUTE_NORM);
        for (int l = 0; l < middle; l++) spec.recompute[l] = RECOMPUTE_BLOCK;
        bool fits = try_spec(s, &spec, false, "");
        s->n = kept;
        if (fits) {
            best = middle;
            high = middle - 1;
        } else {
            low = middle + 1;
        }
    }
    if (!best) return false;
    JobSpec spec = *base;
    set_all(&spec, RECOMPUTE_NORM);
    for (int l = 0; l < best; l++) spec.recompute[l] = RECOMPUTE_BLOCK;
    char flags[160];
    snprintf(flags, sizeof flags, "--recompute block:0-%d,norm:%d-%d%s", best - 1, best, base->model.layers - 1, more);
    return try_spec(s, &spec, false, flags);
}

static void try_recompute(Search *s, const JobSpec *base, const char *more) {
    static const struct {
        RecomputeLevel level;
        const char *name;
    } levels[] = {{RECOMPUTE_NORM, "norm"}, {RECOMPUTE_FFN, "ffn"}, {RECOMPUTE_BLOCK, "block"}};
    if (!base->train) return;
    for (int i = 0; i < COUNT_OF(levels); i++) {
        if (!uniform(base, RECOMPUTE_NONE) && (i < 2 || uniform(base, RECOMPUTE_BLOCK))) continue;
        JobSpec spec = *base;
        set_all(&spec, levels[i].level);
        char flags[160];
        snprintf(flags, sizeof flags, "--recompute %s%s", levels[i].name, more);
        if (i == 2) try_some_blocks(s, base, more); /* fewer blocks are cheaper than all */
        if (try_spec(s, &spec, false, flags) && s->budget_bytes) return;
    }
}

static void try_head_chunk(Search *s, const JobSpec *base) {
    int64_t chunk = base->head_chunk ? base->head_chunk : job_default_chunk(base, s->job->machine.kind);
    if (chunk <= HEAD_TILE || base->micro_batch * base->seq <= HEAD_TILE) return;
    JobSpec spec = *base;
    spec.head_chunk = HEAD_TILE;
    char flags[160];
    snprintf(flags, sizeof flags, "--head-chunk %d", HEAD_TILE);
    try_spec(s, &spec, false, flags);
}

static void try_ffn_chunks(Search *s, const JobSpec *base) {
    int64_t pieces = base->micro_batch * base->seq / 2048;
    if (pieces < 4 || base->ffn_chunks > 1 || !uniform(base, RECOMPUTE_BLOCK)) return;
    JobSpec spec = *base;
    spec.ffn_chunks = pieces;
    char flags[160];
    snprintf(flags, sizeof flags, "--ffn-chunks %lld", (long long)pieces);
    try_spec(s, &spec, false, flags);
}

static void write_batch(char *flags, size_t size, const JobSpec *s) {
    Str text = {0};
    job_batch_flags(&text, s, s->micro_batch, s->accum);
    snprintf(flags, size, "%s", str_text(&text));
    str_free(&text);
}

static void try_micro_batches(Search *s, const JobSpec *base) {
    for (int64_t m = base->micro_batch / 2; m >= 1; m /= 2) { /* the global batch stays */
        JobSpec spec = *base;
        spec.micro_batch = m;
        spec.accum = (job_rows(base) + m - 1) / m;
        char flags[160], more[80];
        write_batch(flags, sizeof flags, &spec);
        bool fits = try_spec(s, &spec, false, flags);
        if (fits && s->budget_bytes) return;
        if (m == 1 && s->budget_bytes) {
            snprintf(more, sizeof more, " %.70s", flags);
            try_recompute(s, &spec, more);
        }
    }
}

/* A change of the mathematics alone or, where that is not enough, with recompute and the smallest micro-batch. */
static bool try_maths_change(Search *s, JobSpec spec, const char *flags) {
    char more[160];
    if (try_spec(s, &spec, true, flags)) return true;
    if (!s->budget_bytes || !spec.train) return false;
    set_all(&spec, RECOMPUTE_BLOCK);
    snprintf(more, sizeof more, "%s --recompute block", flags);
    if (try_spec(s, &spec, true, more)) return true;
    spec.accum = job_rows(&spec);
    spec.micro_batch = 1;
    char batch[80];
    write_batch(batch, sizeof batch, &spec);
    snprintf(more, sizeof more, "%.50s --recompute block %.79s", flags, batch);
    return try_spec(s, &spec, true, more);
}

static void try_maths(Search *s, const JobSpec *base) {
    JobSpec spec = *base;
    char flags[160];
    if (base->train && base->optimizer == OPTIMIZER_ADAMW && base->moments != MOMENTS_8BIT) {
        spec.moments = MOMENTS_8BIT;
        try_maths_change(s, spec, "--moments 8bit");
    }
    if (!base->lora && base->accum == 1 && !base->update_in_backward && job_can_update_early(base)) {
        spec = *base; /* without a clip: with none it is no change of the mathematics, and the planner takes it by itself */
        spec.update_in_backward = true;
        try_spec(s, &spec, true, "--clip 0 --update-in-backward on");
    }
    for (int nf4 = 0; base->lora && nf4 < 2; nf4++) { /* a frozen model's weights */
        if (base->quantised && (base->stored == FMT_NF4 || !nf4)) continue;
        spec = *base;
        spec.quantised = true;
        spec.stored = nf4 ? FMT_NF4 : FMT_INT8;
        try_maths_change(s, spec, nf4 ? "--quantize nf4" : "--quantize int8");
    }
    if (base->lora && !base->head_int8) {
        spec = *base;
        spec.head_int8 = true;
        try_maths_change(s, spec, "--quantize-head int8");
    }
    if (base->train && !base->lora) {
        spec = *base;
        spec.lora = true;
        spec.adapter = (LoraSpec){.rank = 16, .alpha = 32, .targets = (1u << PROJ_COUNT) - 1, .format = spec.weights};
        try_maths_change(s, spec, "--mode lora --lora-rank 16");
    }
    for (int64_t seq = base->seq / 2; seq >= 128; seq /= 2) {
        spec = *base;
        spec.seq = seq;
        snprintf(flags, sizeof flags, "--seq %lld", (long long)seq);
        if (try_spec(s, &spec, true, flags)) break;
    }
    for (int rank = base->adapter.rank / 2; base->lora && rank >= 8; rank /= 2) {
        spec = *base;
        spec.adapter.rank = rank;
        snprintf(flags, sizeof flags, "--lora-rank %d --lora-alpha %g", rank, (double)spec.adapter.alpha);
        if (try_spec(s, &spec, true, flags)) break;
    }
}

static int cheaper(const void *a, const void *b) {
    const Change *x = a, *y = b;
    if (x->maths != y->maths) return x->maths - y->maths;
    if (x->slowdown != y->slowdown) return x->slowdown < y->slowdown ? -1 : 1;
    return x->saves_bytes > y->saves_bytes ? -1 : x->saves_bytes < y->saves_bytes;
}

int job_changes(const Job *j, const HostBytes *host, int64_t budget_bytes, Change *out) {
    Search *s = MEM_NEW(Search, 1);
    *s = (Search){.job = j, .host = host, .budget_bytes = budget_bytes, .now_bytes = job_process_bytes(j),
                  .now_seconds = job_update_seconds(j)};
    try_head_chunk(s, &j->spec);
    try_recompute(s, &j->spec, "");
    try_ffn_chunks(s, &j->spec);
    try_micro_batches(s, &j->spec);
    try_maths(s, &j->spec);
    qsort(s->found, (size_t)s->n, sizeof *s->found, cheaper);
    int n = MIN2(s->n, JOB_CHANGES);
    memcpy(out, s->found, (size_t)n * sizeof *out);
    mem_free(s);
    return n;
}
