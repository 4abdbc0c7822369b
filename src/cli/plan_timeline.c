/* plan_timeline.c - how the picture of a plan is written down as numbers. */
#include "cli/plan_timeline.h"

#include "cli/plan_picture.h"

static json_t *line_json(const Picture *p, int line) {
    Str bytes = {0};
    for (int c = 0; c < p->columns; c++)
        str_addf(&bytes, "%s%lld", c ? " " : "", (long long)p->t.bytes[(int64_t)line * p->t.n_steps + p->step[c]]);
    const char *name = picture_line_name(p, line);
    json_t *o = json_pack("{s:s, s:s, s:s}", "name", name, "colour", picture_hex(name), "bytes", str_text(&bytes));
    str_free(&bytes);
    return o;
}

static json_t *phase_json(const Picture *p, const Phase *phase) {
    double scale = (double)p->columns / (double)MAX2(p->t.n_steps, 1);
    return json_pack("{s:s, s:f, s:f, s:I}", "name", phase->name, "begin", scale * phase->begin, "end",
                     scale * phase->end, "repeat", (json_int_t)phase->repeat);
}

json_t *plan_timeline_json(const Ring *r) {
    PlanPage page = {
        .program = &r->p, .machine = &r->machine, .ledger = &r->ledger, .process_bytes = ring_process_bytes(r)};
    json_t *o = json_object(), *lines = json_array(), *phases = json_array();
    Picture p;
    picture_open(&p, &page, (Frame){0});
    json_object_set_new(o, "columns", json_integer(p.columns));
    json_object_set_new(o, "beside_bytes", json_integer(p.beside));
    for (int k = 0; k < p.t.n_lines; k++) json_array_append_new(lines, line_json(&p, k));
    json_object_set_new(o, "lines", lines);
    for (int i = 0; i < r->p.n_phases; i++) json_array_append_new(phases, phase_json(&p, &r->p.phase[i]));
    json_object_set_new(o, "phases", phases);
    picture_close(&p);
    return o;
}
