/* plan_cards.c - the job on every card of the catalogue: fits, fits with which flags, is tight, or what to change. */
#include <stdio.h>

#include "base/units.h"
#include "cli/plan_case.h"
#include "ir/cards.h"

enum { WAYS_OUT = 24 };

/* A change of the mathematics, and the least bytes the job can then be squeezed into. */
typedef struct WayOut {
    char flags[120];
    int64_t least_bytes;
} WayOut;

static int64_t least_bytes(const PlanCase *c, const Machine *m, JobSpec s) {
    FitCost cost;
    search_tightest(&s, m, c->free);
    return job_cost_of(&cost, &s, m, &c->base.host) ? cost.device_bytes : INT64_MAX;
}

static int find_ways_out(WayOut *out, const PlanCase *c, const Machine *m) {
    int n = 0;
    JobSpec s = c->asked;
    for (; n < WAYS_OUT - 1 && technique_take(&s, ALLOW_ALL, m->kind); n++) {
        Str flags = {0};
        technique_changed_flags(&flags, &s, &c->asked, true);
        snprintf(out[n].flags, sizeof out[n].flags, "%s", str_text(&flags));
        out[n].least_bytes = least_bytes(c, m, s);
        str_free(&flags);
    }
    if (c->asked.lora) return n;
    s = c->asked;
    s.lora = true;
    s.m.adapter = (LoraSpec){.rank = 16, .alpha = 32, .targets = UINT32_MAX, .format = s.weights};
    out[n] = (WayOut){.flags = "--mode lora --lora-rank 16", .least_bytes = least_bytes(c, m, s)};
    return n + 1;
}

static void add_no(Str *text, json_t *row, const WayOut *way, int n, int64_t room) {
    int i = 0;
    while (i < n && way[i].least_bytes > room) i++;
    str_addf(text, "no          %10s  %9s  %s%s\n", "", "", i < n ? "it could with " : "a smaller model is needed",
             i < n ? way[i].flags : "");
    json_object_set_new(row, "verdict", json_string("no"));
    json_object_set_new(row, "change", i < n ? json_string(way[i].flags) : json_null());
}

static void add_yes(Str *text, json_t *row, const PlanCase *c, const Machine *m, const Search *f, const JobSpec *s,
                    int64_t room) {
    const FitCost *t = &f->taken;
    int64_t least = f->fit.trial[f->fit.best].c.device_bytes; /* a head takes what room there is, and needs less */
    bool tight = (double)least > 0.95 * (double)room, plain = f->fit.best == 0;
    Forecast fore = plan_forecast(c, s, m, t->seconds);
    Str flags = {0};
    if (!plain) technique_layout_flags(&flags, s);
    const char *verdict = tight ? "tight" : plain ? "fits" : "fits with";
    str_addf(text, "%-11s %10s  %9s  %s\n", verdict, units_bytes(t->device_bytes).s,
             units_count((int64_t)(fore.tokens_per_s + 0.5)).s, plain ? "as asked" : str_text(&flags));
    json_object_update_new(row, json_pack("{s:s, s:I, s:I, s:f, s:f, s:s}", "verdict", verdict, "device_bytes",
                                          (json_int_t)t->device_bytes, "host_bytes", (json_int_t)t->host_bytes,
                                          "tokens_per_s", fore.tokens_per_s, "ceiling_share", fore.ceiling_share,
                                          "flags", str_text(&flags)));
    str_free(&flags);
}

void plan_add_cards(Str *text, json_t *root, const PlanCase *c) {
    int n = card_count();
    Machine *m = MEM_NEW(Machine, n);
    for (int i = 0; i < n; i++) m[i] = card_machine_as(card_at(i), &c->base.machine);
    SearchMemo memo = {.machine = m, .n_machines = n};
    Search *f = MEM_NEW(Search, 1);
    WayOut *way = MEM_NEW(WayOut, WAYS_OUT);
    int n_ways = -1; /* looked for when the first card needs one */
    json_t *list = json_array();
    str_addf(
        text,
        "\nthe cards: an empty one of each kind; tight: less than 5 %% to spare\n%s\n  %-14s %10s  %-11s %10s  %9s\n",
        card_footing, "", "memory", "verdict", "takes", "tokens/s");
    for (int i = 0; i < n; i++) {
        JobSpec s = c->asked;
        int64_t room = m[i].free_bytes[POOL_DEVICE] + m[i].context_bytes;
        FitLimits limits = {.device_bytes = room}; /* the memory of its host is not known */
        json_t *row = json_pack("{s:s, s:I}", "name", card_at(i)->name, "room_bytes", (json_int_t)room);
        str_addf(text, "  %-14s %10s  ", card_at(i)->name, units_bytes(room).s);
        bool fits = job_search_memo(f, &s, &memo, i, &c->base.host, c->free, limits);
        if (!fits && n_ways < 0) n_ways = find_ways_out(way, c, &m[i]);
        if (fits)
            add_yes(text, row, c, &m[i], f, &s, room);
        else
            add_no(text, row, way, n_ways, room);
        json_array_append_new(list, row);
        search_free(f);
    }
    json_object_set_new(root, "cards", list);
    search_memo_free(&memo);
    mem_free(way);
    mem_free(f);
    mem_free(m);
}
