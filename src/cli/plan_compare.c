/* plan_compare.c - several configurations of a job side by side, each planned as a person would ask for it. */
#include <string.h>

#include "base/units.h"
#include "cli/plan_case.h"

enum { COMPARE_WORDS = 256 };

/* The words of the command line that would say the same as `o`, then those of `more`. */
typedef struct CommandLine {
    Arena arena; /* owns the texts */
    char *word[COMPARE_WORDS];
    int n;
} CommandLine;

static bool add_word(CommandLine *l, char *word) {
    if (l->n == COMPARE_WORDS) return false;
    l->word[l->n++] = word;
    return true;
}

static bool make_command_line(CommandLine *l, const Options *o, const char *more, Err *e) {
    bool ok = true;
    for (int id = 0; id < OPT_COUNT; id++) {
        bool about_the_job = !option_rows[id].once || id == OPT_GPU || id == OPT_MACHINE;
        if (about_the_job && opt_given(o, (OptId)id) && id != OPT_SET && o->value[id].text)
            ok &= add_word(l, arena_printf(&l->arena, "--%s=%s", option_rows[id].name, o->value[id].text));
    }
    while (*(more += strspn(more, " \t"))) {
        int n = (int)strcspn(more, " \t");
        ok &= add_word(l, arena_printf(&l->arena, "%.*s", n, more));
        more += n;
    }
    return ok || fail(e, ERR_USAGE, "--compare: more than %d words", COMPARE_WORDS);
}

static json_t *add_column(Str *text, const PlanCase *c, char letter, const char *flags) {
    const JobSpec *s = &c->base.job.spec;
    int64_t bytes = ring_process_bytes(&c->base.ring), room = plan_case_room(c), host = ring_host_bytes(&c->base.ring);
    Forecast f = plan_forecast(c, s, &c->base.machine, ring_round_seconds(&c->base.ring, &c->base.ring.machine));
    Str offload = {0};
    offload_text(&offload, &s->m.offload, s->m.config.layers);
    int blocks = 0;
    for (int l = 0; l < s->m.config.layers; l++) blocks += s->recompute[l] >= RECOMPUTE_BLOCK;
    str_addf(text, "  %c %4lld x %-5lld %6lld %11s %11s  %-4s %9s %6.0f %%  %9s  %s; blocks %d/%d, offload %s\n",
             letter, (long long)job_micro_samples(s), (long long)s->accum, (long long)s->seq, units_bytes(bytes).s,
             units_bytes(host).s, bytes <= room ? "fits" : "NO", units_count((int64_t)(f.tokens_per_s + 0.5)).s,
             100 * f.ceiling_share, units_seconds(f.job_seconds > 0 ? f.job_seconds : f.seconds_per_million).s,
             c->base.machine.name, blocks, s->m.config.layers, str_text(&offload));
    json_t *row = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:f, s:f, s:i, s:s}", "flags", flags, "machine",
        c->base.machine.name, "micro_batch", (json_int_t)job_micro_samples(s), "accum", (json_int_t)s->accum,
        "global_batch", (json_int_t)c->base.global_batch, "seq", (json_int_t)s->seq, "device_bytes", (json_int_t)bytes,
        "host_bytes", (json_int_t)host, "fits", bytes <= room, "tokens_per_s", f.tokens_per_s, "ceiling_share",
        f.ceiling_share, "update_seconds", f.update_seconds, "blocks_recomputed", blocks, "offload",
        str_text(&offload));
    str_free(&offload);
    return row;
}

/* Plans the job of `c` with other flags beside it. */
static bool add_other(Str *text, json_t *list, const PlanCase *c, char letter, const char *flags, Err *e) {
    CommandLine *line = MEM_NEW(CommandLine, 1);
    PlanCase *other = MEM_NEW(PlanCase, 1);
    Options o = {0};
    arena_init(&line->arena, "compare");
    bool parsed = make_command_line(line, c->base.o, flags, e), ok = false;
    if (parsed) {
        ok = options_parse(&o, CMD_PLAN, line->n, line->word, e) && plan_case_open(other, &o, e);
        if (ok) json_array_append_new(list, add_column(text, other, letter, flags));
        plan_case_close(other);
        options_free(&o);
    }
    arena_free(&line->arena);
    mem_free(other);
    mem_free(line);
    return ok;
}

bool plan_add_compared(Str *text, json_t *root, const PlanCase *c, Err *e) {
    const char *const *flags;
    int n = opt_list(c->base.o, OPT_COMPARE, &flags);
    json_t *list = json_array();
    str_add(text, "\ncompared: A is the job as asked\n");
    for (int i = 0; i < n; i++) str_addf(text, "  %c %s\n", 'B' + i, flags[i]);
    str_addf(text, "    %-12s %6s %11s %11s  %-4s %9s %8s  %9s\n", "micro-batch", "length", "device", "host", "",
             "tokens/s", "ceiling", c->updates ? "the job" : "1M tokens");
    json_array_append_new(list, add_column(text, c, 'A', ""));
    bool ok = n <= 25 || fail(e, ERR_USAGE, "--compare: at most 25 configurations");
    for (int i = 0; ok && i < n; i++) ok = add_other(text, list, c, (char)('B' + i), flags[i], e);
    json_object_set_new(root, "compared", list);
    return ok;
}
