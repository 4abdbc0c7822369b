/* savings.c - what each technique that is on saves and costs: the same job planned without that one alone.
 *
 * Savings do not add up to the whole: what recompute saves is less where the micro-batch is already small. Each
 * line answers "what if only this were off", which is the question a person can act on. */
#include <stdio.h>
#include <string.h>

#include "train/search.h"

void job_plain_spec(JobSpec *plain, const JobSpec *spec, int64_t rows) {
    *plain = *spec;
    int64_t all = job_rows(spec);
    plain->micro_batch = rows;
    plain->accum = (all + rows - 1) / rows;
    plain->head_chunk = 0;
    plain->ffn_chunks = 0;
    plain->quantised = plain->head_int8 = false;
    plain->update_in_backward = false;
    if (plain->moments == MOMENTS_8BIT) plain->moments = spec->weights == FMT_F32 ? MOMENTS_F32 : MOMENTS_BF16;
    memset(plain->away, 0, sizeof plain->away);
    memset(plain->on_disk, 0, sizeof plain->on_disk);
    for (int l = 0; l < spec->model.layers; l++) plain->recompute[l] = RECOMPUTE_NONE;
}

static void name_recompute(char *name, size_t size, const JobSpec *s) {
    int count[RECOMPUTE_LEVELS] = {0}, used = snprintf(name, size, "recompute");
    for (int l = 0; l < s->model.layers; l++) count[s->recompute[l]]++;
    for (int level = RECOMPUTE_LEVELS - 1; level > RECOMPUTE_NONE; level--) /* the heaviest first */
        if (count[level]) {
            used += snprintf(name + used, size - (size_t)used, used > 10 ? ", %s x %d" : " %s x %d",
                             plan_recompute_name((RecomputeLevel)level), count[level]);
        }
}

typedef struct Compared {
    Saving *out;
    int n;
    const Job *now;
    const HostBytes *host;
} Compared;

/* The name is in place; `without` differs from the job in this one thing. */
static void compare(Compared *c, const JobSpec *without, bool maths) {
    Job *j = MEM_NEW(Job, 1);
    Saving *s = &c->out[c->n];
    if (c->n < JOB_SAVINGS && job_open(j, without, &c->now->machine, c->host, NULL)) {
        s->device_bytes = job_process_bytes(j) - job_process_bytes(c->now);
        s->host_bytes = c->now->machine.kind == MACHINE_CPU ? 0 : job_host_bytes(c->now) - job_host_bytes(j);
        s->seconds = job_update_seconds(c->now) - job_update_seconds(j);
        s->maths = maths;
        c->n++;
        job_close(j);
    }
    mem_free(j);
}

static void compare_away(Compared *c, const JobSpec *spec, const JobSpec *plain) {
    static const char *const what[AWAY_KINDS] = {"weights", "moments", "gradients", "inputs kept for backward"};
    for (int k = 0; k < AWAY_KINDS; k++)
        for (int disk = 0; disk < 2; disk++) {
            int64_t here = disk ? spec->on_disk[k] : spec->away[k] - spec->on_disk[k];
            if (!here || spec->away[k] == plain->away[k] || c->n == JOB_SAVINGS) continue;
            JobSpec without = *spec;
            without.away[k] -= here;
            if (disk) without.on_disk[k] = 0;
            snprintf(c->out[c->n].name, sizeof c->out->name, "%s of %lld layers %s", what[k], (long long)here,
                     disk ? "on disk" : "in pinned memory");
            compare(c, &without, false);
        }
}

int job_savings(Saving *out, const Job *j, const JobSpec *plain, const HostBytes *host) {
    const JobSpec *s = &j->spec;
    Compared c = {.out = out, .now = j, .host = host};
    JobSpec without = *s;
    if (s->micro_batch != plain->micro_batch) {
        without.micro_batch = plain->micro_batch;
        without.accum = plain->accum;
        snprintf(out[c.n].name, sizeof out->name, "micro-batch %lld x %lld, not %lld x %lld",
                 (long long)s->micro_batch, (long long)s->accum, (long long)plain->micro_batch,
                 (long long)plain->accum);
        compare(&c, &without, false);
        without = *s;
    }
    if (memcmp(s->recompute, plain->recompute, sizeof s->recompute)) {
        memcpy(without.recompute, plain->recompute, sizeof without.recompute);
        name_recompute(out[c.n].name, sizeof out->name, s);
        compare(&c, &without, false);
        without = *s;
    }
    if (s->head_chunk && s->head_chunk <= job_default_chunk(s, j->machine.kind)) { /* larger ones save time, not memory */
        without.head_chunk = plain->head_chunk;
        snprintf(out[c.n].name, sizeof out->name, "head in chunks of %lld", (long long)s->head_chunk);
        compare(&c, &without, false);
        without = *s;
    }
    if (s->ffn_chunks > 1) {
        without.ffn_chunks = plain->ffn_chunks;
        snprintf(out[c.n].name, sizeof out->name, "feed-forward in %lld pieces", (long long)s->ffn_chunks);
        compare(&c, &without, false);
        without = *s;
    }
    if (s->attend != plain->attend) {
        without.attend = plain->attend;
        snprintf(out[c.n].name, sizeof out->name, "attention by snug's own kernels");
        compare(&c, &without, false);
        without = *s;
    }
    if (s->update_in_backward) {
        without.update_in_backward = false;
        snprintf(out[c.n].name, sizeof out->name, "update inside backward");
        compare(&c, &without, false);
        without = *s;
    }
    compare_away(&c, s, plain);
    if (s->quantised) {
        without.quantised = false;
        snprintf(out[c.n].name, sizeof out->name, "frozen weights in %s", format_name(s->stored));
        compare(&c, &without, true);
        without = *s;
    }
    if (s->head_int8) {
        without.head_int8 = false;
        snprintf(out[c.n].name, sizeof out->name, "head in int8");
        compare(&c, &without, true);
        without = *s;
    }
    if (s->moments != plain->moments) {
        without.moments = plain->moments;
        snprintf(out[c.n].name, sizeof out->name, "moments in 8 bit");
        compare(&c, &without, true);
    }
    return c.n;
}
