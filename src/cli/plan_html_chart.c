/* plan_html_chart.c - memory over the step on the page: the areas by class, the arena by address, and what a
 * script needs to name the step and the tensor under the pointer.
 *
 * Drawings scale to the page, so all their words are HTML beside or above them. What is thinner than a pixel can
 * be neither seen nor pointed at: small tensors of a class that lie beside each other and live alike are one box,
 * and boxes that are still too small are left out. The areas count every byte. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "cli/plan_html.h"

enum { SCALE = 1000, BOXES = 3000, PIXELS = 2048, LIVES = 50, NEAR_BYTES = 4096, LARGEST = 25 };

typedef struct Box { /* a tensor, or neighbours */
    Tid first, last;
    int n, line, birth, death;
    int64_t offset, bytes;
    bool small;   /* may be joined with others */
    int from, to; /* when it lives, in fiftieths of the step: small ones that agree live alike */
} Box;

typedef struct Boxes {                   /* the largest first */
    Box *box;                            /* owns */
    int64_t n, left_out, left_out_bytes; /* tensors without a box, and how large they are at most */
} Boxes;

/* ---- which boxes ---- */

static int order(int64_t a, int64_t b) {
    return a < b ? -1 : a > b;
}

static int by_neighbourhood(const void *x, const void *y) {
    const Box *a = x, *b = y;
    int by[] = {order(a->small, b->small), order(a->line, b->line),     order(a->from, b->from),
                order(a->to, b->to),       order(a->offset, b->offset), order(a->birth, b->birth)};
    for (int i = 0; i < COUNT_OF(by); i++)
        if (by[i]) return by[i];
    return 0;
}

static int by_bytes(const void *x, const void *y) {
    const Box *a = x, *b = y;
    return a->bytes != b->bytes ? order(b->bytes, a->bytes) : order(a->first, b->first);
}

static bool joins(const Box *to, const Box *b) {
    return to->small && b->small && to->line == b->line && to->from == b->from && to->to == b->to &&
           b->offset >= to->offset + to->bytes && b->offset <= to->offset + to->bytes + NEAR_BYTES;
}

static int64_t join_small(Box *box, int64_t n) {
    int64_t m = 0;
    for (int64_t i = 0; i < n; i++) {
        Box *to = m ? &box[m - 1] : NULL;
        if (!to || !joins(to, &box[i])) {
            box[m++] = box[i];
            continue;
        }
        to->last = box[i].last;
        to->n++;
        to->birth = MIN2(to->birth, box[i].birth);
        to->death = MAX2(to->death, box[i].death);
        to->bytes = box[i].offset + box[i].bytes - to->offset;
    }
    return m;
}

static void choose_boxes(Boxes *boxes, const PlanPage *page) {
    const Program *p = page->program;
    Stay *stay;
    int64_t n = plan_stays(&stay, p, POOL_DEVICE), m = 0, least = page->ledger->arena_bytes[POOL_DEVICE] / PIXELS;
    Box *box = MEM_NEW(Box, MAX2(n, 1));
    for (int64_t i = 0; i < n; i++) {
        const Stay *s = &stay[i];
        const Tensor *t = prog_t(p, s->tensor);
        if (s->death < s->birth || !t->bytes) continue;
        box[m++] = (Box){.first = s->tensor, .last = s->tensor, .n = 1, .line = s->line, .birth = s->birth,
                         .death = s->death, .offset = t->offset, .bytes = t->bytes, .small = t->bytes < least,
                         .from = (int)(s->birth * (int64_t)LIVES / p->n_s),
                         .to = (int)(s->death * (int64_t)LIVES / p->n_s)};
    }
    mem_free(stay);
    qsort(box, (size_t)m, sizeof *box, by_neighbourhood);
    m = join_small(box, m);
    qsort(box, (size_t)m, sizeof *box, by_bytes);
    *boxes = (Boxes){.box = box};
    while (boxes->n < MIN2(m, BOXES) && box[boxes->n].bytes >= least) boxes->n++;
    for (int64_t i = boxes->n; i < m; i++) boxes->left_out += box[i].n;
    if (boxes->n < m) boxes->left_out_bytes = box[boxes->n].bytes;
}

/* ---- drawings ---- */

static void begin_svg(Str *out, double width, const char *label) {
    str_addf(out, "<svg viewBox=\"0 0 %g %d\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%s\">\n",
             width, SCALE, label);
}

static void add_y_axis(Str *out, double top) {
    double unit, grid = picture_grid(top, &unit);
    str_add(out, "<div class=\"y\">");
    for (int i = 0; i * grid * unit <= top; i++)
        str_addf(out, "<span style=\"bottom:%.2f%%\">%g %s</span>", 100 * i * grid * unit / top, i * grid,
                 unit > 1e9 ? "GiB" : "MiB");
    str_add(out, "</div>");
}

static void add_grid(Str *out, double top, double width) {
    double unit, grid = picture_grid(top, &unit);
    str_add(out, "<path class=\"grid\" d=\"");
    for (int i = 0; i * grid * unit <= top; i++)
        str_addf(out, "M0 %.1fH%g", SCALE * (1 - i * grid * unit / top), width);
    str_add(out, "\"/>\n");
}

static void add_band_names(Str *out, const Picture *p) {
    for (int k = -1; k < p->t.n_lines; k++) {
        BandLabel label;
        if (picture_label(p, k, &label))
            str_addf(out, "<span class=\"band\" style=\"left:%.1f%%;bottom:%.1f%%\">%s</span>",
                     100 * label.step / p->t.n_steps, 100 * label.bytes / p->top, picture_line_name(p, k));
    }
}

static void add_stack(Str *out, const Picture *p) {
    add_y_axis(out, p->top);
    str_add(out, "<div class=\"field\" id=\"stack\">");
    begin_svg(out, SCALE, "bytes alive at every step, stacked by class");
    add_grid(out, p->top, SCALE);
    str_add(out, "<g id=\"areas\">\n");
    picture_areas(out, p);
    str_add(out, "</g></svg>");
    add_band_names(out, p);
    if (p->budget)
        str_addf(out, "<div class=\"budget\" style=\"bottom:%.2f%%\"><span>%s, %s</span></div>",
                 100 * (double)p->budget / p->top, units_bytes(p->budget).s, p->page->room);
    str_addf(out, "<i class=\"peak\" id=\"peak\" style=\"left:%.2f%%;bottom:%.2f%%\"></i></div>\n",
             100 * (p->t.peak_step + 0.5) / MAX2(p->t.n_steps, 1),
             100 * (double)(p->beside + p->t.peak_bytes) / p->top);
}

/* Steps to the right, addresses upwards. Every other layer is a little lighter, so that neighbours can be told
 * apart. */
static void add_map(Str *out, const PlanPage *page, const Boxes *boxes) {
    double arena = (double)MAX2(page->ledger->arena_bytes[POOL_DEVICE], 1),
           steps = (double)MAX2(page->program->n_s, 1);
    add_y_axis(out, arena);
    str_add(out, "<div class=\"field\" id=\"map\">");
    begin_svg(out, steps, "the arena: which tensor holds which bytes, and when");
    for (int64_t i = 0; i < boxes->n; i++) {
        const Box *b = &boxes->box[i];
        int layer = prog_t(page->program, b->first)->layer;
        str_addf(out, "<rect class=\"c%d%s\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\"/>\n",
                 picture_colour(plan_line_name(b->line)), b->n == 1 && layer >= 0 && layer % 2 ? " o" : "",
                 b->birth, SCALE * (1 - (double)(b->offset + b->bytes) / arena), b->death - b->birth + 1,
                 SCALE * (double)b->bytes / arena);
    }
    str_add(out, "</svg></div>\n");
}

static void add_phases(Str *out, const Program *p) {
    str_add(out, "<div></div><div class=\"phases\" id=\"phases\">");
    for (int i = 0; i < p->n_phases; i++) {
        const Phase *ph = &p->phase[i];
        if (ph->end <= ph->begin) continue;
        str_addf(out, "<span style=\"left:%.3f%%;width:%.3f%%\" title=\"", 100.0 * ph->begin / (double)p->n_s,
                 100.0 * (ph->end - ph->begin) / (double)p->n_s);
        str_add_html(out, ph->name);
        str_addf(out, ": steps %d to %d\" data-from=\"%d\" data-to=\"%d\">", ph->begin, ph->end - 1, ph->begin,
                 ph->end);
        str_add_html(out, ph->name);
        if (ph->repeat > 1) str_addf(out, " x %lld", (long long)ph->repeat);
        str_add(out, "</span>");
    }
    str_add(out, "</div>\n");
}

/* The legend is the readout too: a script fills in the bytes at the cursor. */
static void add_legend(Str *out, const Picture *p) {
    str_add(out, "<ul class=\"legend\" id=\"legend\">");
    for (int k = p->t.n_lines - 1; k >= -1; k--) {
        const char *name = picture_line_name(p, k);
        str_addf(out, "<li data-k=\"%d\"><i class=\"key c%d\"></i>%s <b>%s</b></li>", k, picture_colour(name),
                 name, units_bytes(picture_line_bytes(p, k)).s);
    }
    str_add(out, "</ul>\n");
}

/* ---- data for the script ---- */

static json_t *alive_json(const Timeline *t, int line) { /* [step, bytes, step, bytes, ...]: where it changes */
    json_t *list = json_array();
    int64_t last = 0;
    for (int i = 0; i < t->n_steps; i++) {
        int64_t bytes = t->bytes[(int64_t)line * t->n_steps + i];
        if (bytes == last) continue;
        json_array_append_new(list, json_integer(i));
        json_array_append_new(list, json_integer(bytes));
        last = bytes;
    }
    return list;
}

static json_t *class_json(const Picture *p, int line) {
    return json_pack("{s:s, s:i, s:o}", "name", p->t.name[line], "colour", picture_colour(p->t.name[line]),
                     "alive", alive_json(&p->t, line));
}

static void name_box(Str *out, const Program *p, const Box *b) {
    str_add(out, prog_t(p, b->first)->name);
    if (b->n > 1) str_addf(out, " to %s: %d small tensors", prog_t(p, b->last)->name, b->n);
}

/* Scratch has neither format nor shape: what a step writes there is its own affair. */
static const char *format_of(const Tensor *t) {
    return t->role == ROLE_SCRATCH ? "raw bytes" : format_name(t->format);
}

static void shape_of(char *shape, size_t size, const Tensor *t) {
    *shape = 0;
    for (int i = 0, used = 0; i < t->rank && t->role != ROLE_SCRATCH; i++)
        used += snprintf(shape + used, size - (size_t)used, i ? " x %lld" : "%lld", (long long)t->dim[i]);
}

/* What a script and a table say about a box. Neighbours have no shape and no layer; their format is the first
 * one's. */
static json_t *box_json(const Program *p, const Box *b) {
    const Tensor *t = prog_t(p, b->first);
    char shape[100];
    Str name = {0};
    name_box(&name, p, b);
    shape_of(shape, sizeof shape, t);
    json_t *row = json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:I}", "name", str_text(&name), "class",
                            plan_line_name(b->line), "format", format_of(t), "birth", b->birth, "death", b->death,
                            "offset", (json_int_t)b->offset, "bytes", (json_int_t)b->bytes);
    if (b->n == 1) json_object_set_new(row, "shape", json_string(shape));
    if (b->n == 1 && t->layer >= 0) json_object_set_new(row, "layer", json_integer(t->layer));
    str_free(&name);
    return row;
}

static void add_steps(json_t *root, const Program *p) {
    json_t *op = json_array(), *layer = json_array(), *region = json_array(), *ops = json_array(),
           *regions = json_array();
    for (int i = 0; i < OP_COUNT; i++) json_array_append_new(ops, json_string(op_name((OpId)i)));
    for (int i = 0; i < REGION_COUNT; i++)
        json_array_append_new(regions, json_string(prog_region_name((Region)i)));
    for (int64_t i = 0; i < p->n_s; i++) {
        json_array_append_new(op, json_integer(p->s[i].op));
        json_array_append_new(layer, json_integer(p->s[i].layer));
        json_array_append_new(region, json_integer(p->s[i].region));
    }
    json_object_update_new(root, json_pack("{s:o, s:o, s:o, s:o, s:o}", "ops", ops, "regions", regions, "op", op,
                                           "layer", layer, "region", region));
}

static void add_data(Str *out, const Picture *p, const Boxes *boxes) {
    const PlanPage *page = p->page;
    json_t *classes = json_array(), *tensors = json_array();
    for (int k = 0; k < p->t.n_lines; k++) json_array_append_new(classes, class_json(p, k));
    for (int64_t i = 0; i < boxes->n; i++) json_array_append_new(tensors, box_json(page->program, &boxes->box[i]));
    json_t *root = json_pack("{s:I, s:I, s:I, s:I, s:i, s:f, s:o, s:o}", "steps", (json_int_t)page->program->n_s,
                             "beside", (json_int_t)p->beside, "arena",
                             (json_int_t)page->ledger->arena_bytes[POOL_DEVICE], "budget", (json_int_t)p->budget,
                             "peak", p->t.peak_step, "top", p->top, "classes", classes, "tensors", tensors);
    add_steps(root, page->program);
    char *dump = json_dumps(root, JSON_COMPACT);
    html_json(out, "picture-data", dump);
    mem_free(dump);
    json_decref(root);
}

/* ---- tensors and phases as tables ---- */

typedef struct Kind { /* tensors that differ in their layer alone */
    char name[96];
    Tid first;
    int n, line;
    int64_t each, bytes; /* together */
} Kind;

static void name_kind(char *name, size_t size, const Tensor *t) { /* "layers.*.qkv_w" */
    char number[24];
    snprintf(number, sizeof number, ".%d.", t->layer);
    const char *at = t->layer >= 0 ? strstr(t->name, number) : NULL;
    if (at)
        snprintf(name, size, "%.*s.*.%s", (int)(at - t->name), t->name, at + strlen(number));
    else
        snprintf(name, size, "%s", t->name);
}

static int by_kind(const void *x, const void *y) {
    const Kind *a = x, *b = y;
    if (a->line != b->line) return order(a->line, b->line);
    return a->each != b->each ? order(a->each, b->each) : strcmp(a->name, b->name);
}

static int by_kind_bytes(const void *x, const void *y) {
    const Kind *a = x, *b = y;
    return a->bytes != b->bytes ? order(b->bytes, a->bytes) : by_kind(x, y);
}

static int64_t kinds_at_peak(Kind **out, const Picture *p) {
    const Program *prog = p->page->program;
    Stay *stay;
    int64_t all = plan_stays(&stay, prog, POOL_DEVICE), n = 0, m = 0;
    Kind *kind = *out = MEM_NEW(Kind, MAX2(all, 1));
    for (int64_t i = 0; i < all; i++) {
        const Tensor *t = prog_t(prog, stay[i].tensor);
        if (stay[i].birth > p->t.peak_step || stay[i].death < p->t.peak_step) continue;
        kind[n] =
            (Kind){.first = stay[i].tensor, .n = 1, .line = stay[i].line, .each = t->bytes, .bytes = t->bytes};
        name_kind(kind[n].name, sizeof kind[n].name, t);
        n++;
    }
    mem_free(stay);
    qsort(kind, (size_t)n, sizeof *kind, by_kind);
    for (int64_t i = 0; i < n; i++) {
        if (m && !by_kind(&kind[m - 1], &kind[i]))
            kind[m - 1].n++, kind[m - 1].bytes += kind[i].bytes;
        else
            kind[m++] = kind[i];
    }
    qsort(kind, (size_t)m, sizeof *kind, by_kind_bytes);
    return m;
}

static const Column kind_columns[] = {
    {"name", "tensor", CELL_TEXT, false},   {"class", "class", CELL_TEXT, false},
    {"format", "format", CELL_TEXT, false}, {"shape", "shape", CELL_TEXT, false},
    {"n", "how many", CELL_COUNT, false},   {"bytes", "together", CELL_BYTES, true}};

static void add_largest(Str *out, const Picture *p) {
    Kind *kind;
    int64_t n = kinds_at_peak(&kind, p);
    json_t *rows = json_array();
    for (int64_t i = 0; i < MIN2(n, LARGEST); i++) {
        const Tensor *t = prog_t(p->page->program, kind[i].first);
        char shape[100];
        shape_of(shape, sizeof shape, t);
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s, s:i, s:I}", "name", kind[i].name, "class",
                                              plan_line_name(kind[i].line), "format", format_of(t), "shape", shape,
                                              "n", kind[i].n, "bytes", (json_int_t)kind[i].bytes));
    }
    page_begin_section(out, "largest", "What is alive at the peak",
                       "Tensors that differ in their layer alone are one line; the largest first.");
    page_table(out, rows, kind_columns, COUNT_OF(kind_columns));
    page_end_section(out);
    json_decref(rows);
    mem_free(kind);
}

static json_t *phases_json(const Picture *p) {
    const Program *prog = p->page->program;
    json_t *list = json_array();
    for (int i = 0; i < prog->n_phases; i++) {
        const Phase *ph = &prog->phase[i];
        if (ph->end == ph->begin) continue;
        json_array_append_new(list, json_pack("{s:s, s:I, s:i, s:f, s:I}", "name", ph->name, "plays",
                                              (json_int_t)ph->repeat, "steps", ph->end - ph->begin, "seconds",
                                              (double)ph->repeat * plan_step_seconds(prog, p->page->machine, i),
                                              "peak_bytes", (json_int_t)picture_phase_peak(&p->t, ph)));
    }
    return list;
}

static void add_phase_table(Str *out, const Picture *p) {
    json_t *given = json_object_get(p->page->plan, "phases"), *own = given ? NULL : phases_json(p);
    page_begin_section(
        out, "phase_table", "The phases",
        given ? "Of an update; times count every slot at its full length." : "Played one after the other.");
    page_phases(out, given ? given : own);
    page_end_section(out);
    json_decref(own);
}

/* ---- all of it ---- */

static const char tools[] =
    "<div class=\"tools\" id=\"tools\" hidden><button class=\"push\" data-zoom=\"in\">zoom in</button>"
    "<button class=\"push\" data-zoom=\"out\">zoom out</button><button class=\"push\" data-zoom=\"all\">whole "
    "step</button>"
    "<button class=\"push\" data-zoom=\"peak\">peak</button><span class=\"s\">Point at the picture, or use the arrow "
    "keys; drag to zoom; a phase's name zooms to it.</span></div>\n";

void page_chart(Str *out, const PlanPage *page) {
    Picture p;
    Boxes boxes;
    picture_open(&p, page, (Frame){0, 0, SCALE, SCALE});
    choose_boxes(&boxes, page);
    page_begin_section(
        out, "picture", "Memory over the step",
        "Above: bytes alive at every step, by class, with what stands beside the arena below. Under it: the "
        "arena by address; a rectangle is a tensor from birth to death. Both axes of bytes begin at zero.");
    str_add(out, "<p id=\"said\" aria-live=\"polite\">");
    picture_peak_text(out, &p);
    str_add(out, "</p>\n<div class=\"plot\">");
    add_stack(out, &p);
    add_map(out, page, &boxes);
    add_phases(out, page->program);
    str_addf(out, "</div><p class=\"s\"><span id=\"range\">Steps 0 to %s of the program, phase by phase.</span>",
             units_count(page->program->n_s - 1).s);
    if (boxes.left_out)
        str_addf(out, " %s tensors of at most %s are not drawn one by one.", units_count(boxes.left_out).s,
                 units_bytes(boxes.left_out_bytes).s);
    str_add(out, "</p>\n");
    str_add(out, tools);
    add_legend(out, &p);
    page_end_section(out);
    add_data(out, &p, &boxes);
    mem_free(boxes.box);
    picture_close(&p);
}

void page_chart_tables(Str *out, const PlanPage *page) {
    Picture p;
    picture_open(&p, page, (Frame){0, 0, SCALE, SCALE});
    add_phase_table(out, &p);
    add_largest(out, &p);
    picture_close(&p);
}
