/* allow.c - what may be given up when nothing fits as asked, and in which order.
 *
 * The order is that of damage: 8-bit moments change the path of training by less than another seed does; int8 and
 * then NF4 weights change the model that is tuned; a smaller rank learns less; a shorter row does not see the end
 * of its samples. Nothing of it is ever taken unasked. */
#include <string.h>

#include "train/search.h"

bool search_take(JobSpec *s, unsigned allow) {
    bool frozen = !s->train || s->lora;
    if (allow & ALLOW_8BIT && s->train && s->optimizer == OPTIMIZER_ADAMW && s->moments != MOMENTS_8BIT) {
        s->moments = MOMENTS_8BIT;
    } else if (allow & ALLOW_INT8 && frozen && !s->quantised) {
        s->quantised = true;
        s->stored = FMT_INT8;
    } else if (allow & ALLOW_INT8 && frozen && !s->head_int8) {
        s->head_int8 = true;
    } else if (allow & ALLOW_NF4 && frozen && (!s->quantised || s->stored != FMT_NF4)) {
        s->quantised = true;
        s->stored = FMT_NF4;
    } else if (allow & ALLOW_RANK && s->lora && s->adapter.rank >= 16) {
        s->adapter.rank /= 2;
        s->adapter.alpha /= 2;
    } else if (allow & ALLOW_SEQ && s->seq >= 256) {
        s->seq /= 2;
    } else {
        return false;
    }
    return true;
}

/* Bytes fall along the search's ladders: where its smallest plan does not fit, none does. */
static bool smallest_fits(const JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free,
                          SearchLimits limits) {
    Job *j = MEM_NEW(Job, 1);
    JobSpec tight = *spec;
    search_tightest(&tight, m, free);
    bool fits = false;
    if (job_open(j, &tight, m, host, NULL)) {
        fits = job_process_bytes(j) <= limits.device_bytes;
        job_close(j);
    }
    mem_free(j);
    return fits;
}

bool search_least_taken(JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free,
                        SearchLimits limits, unsigned allow) {
    while (search_take(spec, allow))
        if (smallest_fits(spec, m, host, free, limits)) return true;
    return false;
}

/* What was taken on the way and is not needed with what came after it is given back. */
static void give_back(JobSpec *now, const JobSpec *asked, const Machine *m, const HostBytes *host,
                      SearchFreedom free, SearchLimits limits) {
    const bool taken[] = {now->moments != asked->moments, now->quantised != asked->quantised || now->stored != asked->stored,
                          now->adapter.rank != asked->adapter.rank, now->head_int8 != asked->head_int8};
    for (int what = 0; what < COUNT_OF(taken); what++) {
        JobSpec less = *now;
        if (what == 0) less.moments = asked->moments;
        if (what == 1) less.quantised = asked->quantised, less.stored = asked->stored;
        if (what == 2) less.adapter = asked->adapter;
        if (what == 3) less.head_int8 = asked->head_int8;
        if (taken[what] && smallest_fits(&less, m, host, free, limits)) *now = less;
    }
}

bool job_search_allowed(Search *found, JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free,
                        SearchLimits limits, unsigned allow) {
    JobSpec now = *spec;
    while (search_least_taken(&now, m, host, free, limits, allow)) {
        JobSpec fitted = now;
        give_back(&fitted, spec, m, host, free, limits);
        bool fits = job_search(found, &fitted, m, host, free, limits);
        if (!fits) { /* the host's memory: only with all of it */
            fitted = now;
            fits = job_search(found, &fitted, m, host, free, limits);
        }
        if (!fits) continue;
        *spec = fitted;
        return true;
    }
    return false;
}

void search_taken_flags(Str *out, const JobSpec *now, const JobSpec *asked) {
    const char *gap = "";
    if (now->moments != asked->moments) str_add(out, "--moments 8bit"), gap = " ";
    if (now->quantised != asked->quantised || (now->quantised && now->stored != asked->stored))
        str_addf(out, "%s--quantize %s", gap, now->stored == FMT_NF4 ? "nf4" : "int8"), gap = " ";
    if (now->head_int8 != asked->head_int8) str_addf(out, "%s--quantize-head int8", gap), gap = " ";
    if (now->adapter.rank != asked->adapter.rank)
        str_addf(out, "%s--lora-rank %d --lora-alpha %g", gap, now->adapter.rank, (double)now->adapter.alpha),
            gap = " ";
    if (now->seq != asked->seq) str_addf(out, "%s--seq %lld", gap, (long long)now->seq);
}
