/* setup_budget.c - which memory a job may take, here and on the host, and what is said when it does not fit. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/units.h"
#include "base/work.h"
#include "cli/setup.h"
#include "obs/sensors.h"

/* ---- limits ---- */

static void add_limit(Str *out, const SensorRoom *r) {
    str_addf(out, "%s is %s", r->limit, units_bytes(r->limit_bytes).s);
}

int64_t setup_room(Str *why, const Machine *m) {
    if (m->kind != MACHINE_CPU) {
        int64_t bytes = m->free_bytes[POOL_DEVICE] + m->context_bytes;
        if (why) str_addf(why, "%s is free now", units_bytes(bytes).s);
        return bytes > 0 ? bytes : INT64_MAX;
    }
    SensorRoom r = sensors_room();
    if (why) str_addf(why, "%s is free now", units_bytes(MAX2(r.bytes, 0)).s);
    if (why && r.limit) {
        str_add(why, " (");
        add_limit(why, &r);
        str_add(why, ")");
    }
    return r.bytes < 0 ? INT64_MAX : r.bytes;
}

/* Others may take memory meanwhile; nobody shares a limit that was set for this process. */
static int64_t free_less_margin(const Machine *m) {
    Str why = {0};
    int64_t room = setup_room(&why, m), margin = MIN2(MAX2(256 * MIB, room / 20), room / 8);
    if (room < INT64_MAX)
        log_line("no --budget given: %s, less a margin of %s", str_text(&why), units_bytes(margin).s);
    str_free(&why);
    return room < INT64_MAX ? MAX2(room - margin, 1) : INT64_MAX;
}

/* Memory beside a device that is here. The driver locks pages itself, so the limit on locked memory does not
 * count; the machine's memory and the control group's limit do. What stays free for everybody else: a twentieth,
 * at least 1 GiB. */
static int64_t host_room(const Options *o, const Machine *m) {
    bool elsewhere = o->command == CMD_PLAN && opt_given(o, OPT_GPU);
    int64_t available = sensors_memory().available_bytes;
    if (m->kind == MACHINE_CPU || elsewhere || available <= 0) return 0;
    return MAX2(available - MAX2(1024 * MIB, available / 20), 1);
}

/* Of the disk with --offload-dir, where that is here. */
static int64_t disk_room(const Options *o) {
    bool elsewhere = o->command == CMD_PLAN && opt_given(o, OPT_GPU);
    if (!opt_given(o, OPT_OFFLOAD_DIR) || elsewhere) return 0;
    int64_t room = file_free_bytes(opt_text(o, OPT_OFFLOAD_DIR)), file = process_limits().file_bytes;
    if (file >= 0) room = room < 0 ? file : MIN2(room, file); /* it is one file */
    return room < 0 ? 0 : MAX2(room, 1);
}

typedef struct Caps {
    int64_t pool[POOL_COUNT]; /* 0: none */
} Caps;

/* "device=12GiB,host=32GiB,disk=100GiB"; a size alone is the device's; other libraries' words are known. */
static bool parse_caps(Caps *caps, const Options *o, Err *e) {
    static const struct {
        const char *word;
        Pool pool;
    } words[] = {{"device", POOL_DEVICE}, {"gpu", POOL_DEVICE}, {"cuda", POOL_DEVICE}, {"0", POOL_DEVICE},
                 {"host", POOL_HOST},     {"cpu", POOL_HOST},   {"pinned", POOL_HOST}, {"disk", POOL_DISK}};
    const char *const *list;
    *caps = (Caps){0};
    for (int i = 0, n = opt_list(o, OPT_MAX_MEMORY, &list); i < n; i++) {
        const char *equals = strchr(list[i], '=');
        int64_t bytes;
        int w = 0;
        size_t len = equals ? (size_t)(equals - list[i]) : 0;
        while (equals && w < COUNT_OF(words) &&
               (strlen(words[w].word) != len || strncmp(words[w].word, list[i], len)))
            w++;
        if (w == COUNT_OF(words))
            return fail(e, ERR_USAGE, "--max-memory %s: '%.*s' is not a pool; use device=SIZE,host=SIZE,disk=SIZE",
                        list[i], (int)len, list[i]);
        if (!units_parse_bytes(equals ? equals + 1 : list[i], &bytes) || bytes <= 0)
            return fail(e, ERR_USAGE, "--max-memory %s: is not a size; for example device=12GiB,host=32GiB",
                        list[i]);
        caps->pool[equals ? words[w].pool : POOL_DEVICE] = bytes;
    }
    return true;
}

bool setup_has_budget(const Options *o) {
    Caps caps;
    return opt_given(o, OPT_BUDGET) || (parse_caps(&caps, o, NULL) && caps.pool[POOL_DEVICE]);
}

int64_t setup_given_budget(const Options *o) {
    Caps caps = {0};
    parse_caps(&caps, o, NULL);
    int64_t device = caps.pool[POOL_DEVICE] ? caps.pool[POOL_DEVICE] : INT64_MAX;
    return opt_given(o, OPT_BUDGET) ? MIN2(opt_bytes(o, OPT_BUDGET), device) : device;
}

static int64_t lower(int64_t room, int64_t cap) { /* 0: none */
    return room && cap ? MIN2(room, cap) : MAX2(room, cap);
}

bool setup_limits(FitLimits *l, const Options *o, const Machine *m, Err *e) {
    Caps caps;
    if (!parse_caps(&caps, o, e)) return false;
    l->device_bytes = setup_has_budget(o) ? setup_given_budget(o) : free_less_margin(m);
    l->host_bytes = lower(host_room(o, m), m->kind == MACHINE_CPU ? 0 : caps.pool[POOL_HOST]);
    l->disk_bytes = lower(disk_room(o), caps.pool[POOL_DISK]);
    return true;
}

/* ---- the search ---- */

SearchFreedom setup_freedom(const Options *o) {
    return (SearchFreedom){
        .recompute = opt_is(o, OPT_RECOMPUTE, "auto"),
        .offload = opt_is(o, OPT_OFFLOAD, "auto"),
        .disk = opt_given(o, OPT_OFFLOAD_DIR),
        .head_chunk = !opt_given(o, OPT_HEAD_CHUNK),
        .head_room = !opt_given(o, OPT_HEAD_CHUNK) && !opt_flag(o, OPT_DETERMINISTIC),
        .update_in_backward = opt_is(o, OPT_UPDATE_IN_BACKWARD, "auto") && opt_real(o, OPT_CLIP) <= 0,
        .ffn_chunks = opt_is(o, OPT_FFN_CHUNKS, "auto"),
        .attention = opt_is(o, OPT_ATTENTION, "auto"),
        .micro_batch = !opt_given(o, OPT_MICRO_BATCH) && !opt_given(o, OPT_ACCUM) &&
                       !opt_is(o, OPT_UPDATE_IN_BACKWARD, "on")};
}

static unsigned allowed(const Options *o) {
    static const char *const names[] = {"8bit", "int8", "nf4", "rank", "seq"};
    const char *const *list;
    unsigned allow = 0;
    for (int i = 0, n = opt_list(o, OPT_ALLOW, &list); i < n; i++)
        for (int k = 0; k < COUNT_OF(names); k++)
            if (!strcmp(list[i], names[k])) allow |= 1u << k;
    return opt_given(o, OPT_ADAPTER) ? allow & ~(unsigned)ALLOW_RANK : allow; /* a given adapter has its rank */
}

static void explain(const Search *f) {
    log_line("tried %lld plans in %.0f ms; per update:", (long long)f->fit.n, f->ms);
    for (int64_t i = 0; i < f->fit.n; i++) {
        const FitTrial *t = &f->fit.trial[i];
        JobSpec spec = search_spec(f, i);
        Str flags = {0};
        technique_layout_flags(&flags, &spec);
        log_line("  %10s device %10s host %9s  %s%s  %s", units_bytes(t->c.device_bytes).s,
                 units_bytes(t->c.host_bytes).s, units_seconds(t->c.seconds).s, t->fits ? "fits" : "-   ",
                 i == f->fit.best ? " *" : "  ", str_text(&flags));
        str_free(&flags);
    }
}

void setup_fit(JobSetup *j) {
    const Options *o = j->o;
    SearchFreedom free = setup_freedom(o);
    Search *f = MEM_NEW(Search, 1);
    JobSpec *s = &j->spec, asked = *s;
    FitLimits limits = j->limits;
    Str flags = {0}, taken = {0};
    Work work;
    work_begin(&work, WORK_COUNT, 0, "planning");
    bool fits = job_search(f, s, &j->machine, &j->host, free, limits);
    work_end(&work);
    int64_t plain_bytes = f->asked_bytes;
    bool plain_fits = f->fit.n && f->fit.trial[0].fits;
    if (opt_flag(o, OPT_EXPLAIN)) explain(f);
    if (!fits && allowed(o)) {
        search_free(f);
        fits = job_search_allowed(f, s, &j->machine, &j->host, free, limits, allowed(o));
        if (fits && opt_flag(o, OPT_EXPLAIN)) explain(f);
        if (fits) technique_changed_flags(&taken, s, &asked, true);
        if (fits)
            log_warn("nothing fits without changing the mathematics; taken, as --allow %s allows: %s",
                     opt_text(o, OPT_ALLOW), str_text(&taken));
    }
    if (fits && (f->fit.best > 0 || taken.len)) {
        technique_layout_flags(&flags, s);
        log_line("as asked it takes %s; %s with %s%s%s", units_bytes(plain_bytes).s,
                 plain_fits ? "it is faster" : "it fits", str_text(&taken),
                 taken.len ? " " : "", str_text(&flags));
    }
    if (!fits && limits.disk_bytes) { /* what only the disk does not hold is refused with its bytes: setup_check_disk */
        limits.disk_bytes = 0;
        search_free(f);
        job_search(f, s, &j->machine, &j->host, free, limits);
    }
    search_free(f);
    str_free(&flags);
    str_free(&taken);
    mem_free(f);
}

void setup_record_taken(Options *o, Taken *t, const JobSpec *s) {
    static const char *const moments[] = {"fp32", "bf16", "8bit"};
    if (s->moments == MOMENTS_8BIT && !opt_is(o, OPT_MOMENTS, "8bit"))
        options_settle(o, OPT_MOMENTS, moments[s->moments], "--allow");
    if (s->m.head_int8) options_settle(o, OPT_QUANTIZE_HEAD, "int8", "--allow");
    if (s->m.quantised) options_settle(o, OPT_QUANTIZE, s->m.stored == FMT_NF4 ? "nf4" : "int8", "--allow");
    if (s->lora && s->m.adapter.rank != opt_int(o, OPT_LORA_RANK) && !opt_given(o, OPT_ADAPTER)) {
        snprintf(t->text[0], sizeof t->text[0], "%d", s->m.adapter.rank);
        snprintf(t->text[1], sizeof t->text[1], "%g", (double)s->m.adapter.alpha);
        options_settle(o, OPT_LORA_RANK, t->text[0], "--allow");
        options_settle(o, OPT_LORA_ALPHA, t->text[1], "--allow");
    }
    if (job_sample_tokens(s) != opt_int(o, OPT_SEQ)) {
        snprintf(t->text[2], sizeof t->text[2], "%lld", (long long)job_sample_tokens(s));
        options_settle(o, OPT_SEQ, t->text[2], "--allow");
    }
}

/* ---- the verdict ---- */

static bool check_host(const Job *j, FitLimits limits, Err *e) {
    int64_t pinned = ledger_process_bytes(&j->ring->ledger, POOL_PINNED), need = ring_host_bytes(j->ring);
    if (j->ring->machine.kind == MACHINE_CPU || !limits.host_bytes || need <= limits.host_bytes) return true;
    SensorMemory here = sensors_memory();
    return fail(
        e, ERR_BUDGET,
        "does not fit the host: %s of its memory are needed (%s of it pinned, for what is offloaded), %s may be "
        "taken, %s (%s bytes) are missing%s%s. Nothing was loaded. Offload less, end what holds memory, or raise "
        "--max-memory host=",
        units_bytes(need).s, units_bytes(pinned).s, units_bytes(limits.host_bytes).s,
        units_bytes(need - limits.host_bytes).s, units_count(need - limits.host_bytes).s,
        here.limit ? "; a control group's limit decides: " : "", here.limit ? here.limit : "");
}

bool setup_check_disk(int64_t need_bytes, FitLimits limits, Err *e) {
    int64_t file = process_limits().file_bytes;
    if (!limits.disk_bytes || need_bytes <= limits.disk_bytes) return true;
    if (file >= 0 && need_bytes > file)
        return fail(e, ERR_BUDGET,
                    "does not fit a file: %s are to be kept in one in --offload-dir, and files may have %s "
                    "(ulimit -f). Nothing was loaded. Raise that limit, or offload less",
                    units_bytes(need_bytes).s, units_bytes(file).s);
    return fail(
        e, ERR_BUDGET,
        "does not fit the disk: %s are to be kept in --offload-dir, %s may be taken there, %s (%s bytes) are missing. "
        "Nothing was loaded. Give a folder on another disk, offload less, or raise --max-memory",
        units_bytes(need_bytes).s, units_bytes(limits.disk_bytes).s, units_bytes(need_bytes - limits.disk_bytes).s,
        units_count(need_bytes - limits.disk_bytes).s);
}

/* Where no single change is enough: what --allow would come to. */
static void add_last_resort(Str *text, const Job *j, const HostBytes *host, FitLimits limits) {
    JobSpec s = j->spec;
    SearchFreedom free = {.recompute = true, .offload = true, .head_chunk = true};
    Str flags = {0};
    if (search_least_taken(&s, &j->ring->machine, host, free, limits, ALLOW_ALL)) {
        technique_changed_flags(&flags, &s, &j->spec, true);
        str_addf(text,
                 " No single change makes it fit. With --allow all --recompute auto --offload auto the planner would "
                 "come to %s, which changes the mathematics.",
                 str_text(&flags));
    } else {
        str_add(text,
                " No change of batch, recompute, offload, precision, length or rank makes it fit: choose a smaller "
                "model or a larger budget.");
    }
    str_free(&flags);
}

bool setup_limit_text(Str *out, const Machine *m, int64_t need_bytes) {
    if (m->kind != MACHINE_CPU) return false;
    SensorRoom r = sensors_room();
    if (!r.limit || need_bytes <= r.bytes) return false;
    add_limit(out, &r);
    str_addf(out, "; it leaves %s", units_bytes(r.bytes).s);
    return true;
}

bool setup_check_budget(const Job *j, const HostBytes *host, FitLimits limits, Err *e) {
    int64_t need = ring_process_bytes(j->ring), budget_bytes = limits.device_bytes;
    if (need <= budget_bytes) return check_host(j, limits, e) && setup_check_disk(ring_disk_bytes(j->ring), limits, e);
    Change change[JOB_CHANGES];
    int n = job_changes(j, host, budget_bytes, change);
    Str text = {0};
    str_addf(&text, "does not fit: %s are needed, the budget is %s, %s (%s bytes) are missing.",
             units_bytes(need).s, units_bytes(budget_bytes).s, units_bytes(need - budget_bytes).s,
             units_count(need - budget_bytes).s);
    Str limit = {0};
    if (setup_limit_text(&limit, &j->ring->machine, need)) str_addf(&text, " %s.", str_text(&limit));
    str_free(&limit);
    if (!n)
        add_last_resort(&text, j, host, limits);
    else
        str_add(&text, " Any one of these fits:");
    for (int i = 0; i < MIN2(n, 6); i++) {
        str_addf(&text, "\n    %-44s saves %s", change[i].flags, units_bytes(change[i].saves_bytes).s);
        if (change[i].slowdown > 0) str_addf(&text, ", %.2fx the time", change[i].slowdown);
        if (change[i].maths) str_add(&text, " (changes the mathematics)");
    }
    fail(e, ERR_BUDGET, "%s", str_text(&text));
    str_free(&text);
    return false;
}
