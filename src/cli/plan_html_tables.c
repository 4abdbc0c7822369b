/* plan_html_tables.c - arrays of the plan's JSON as tables that sort: which columns each has, and how a value is
 * shown. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/plan_html.h"
#include "ir/cards.h"

/* ---- a table ---- */

static const json_t *value_at(const json_t *row, const char *key) { /* NULL: absent, or null */
    const char *dot = strchr(key, '.');
    char outer[48];
    if (dot) {
        snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key);
        row = json_object_get(row, outer);
        key = dot + 1;
    }
    const json_t *v = json_object_get(row, key);
    return json_is_null(v) ? NULL : v;
}

static bool is_used(const json_t *rows, const char *key) {
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *v = value_at(json_array_get(rows, i), key);
        if (v && !(json_is_string(v) && !*json_string_value(v))) return true;
    }
    return false;
}

static double largest(const json_t *rows, const char *key) {
    double most = 0;
    for (size_t i = 0; i < json_array_size(rows); i++)
        most = fmax(most, json_number_value(value_at(json_array_get(rows, i), key)));
    return most;
}

static bool is_number(CellKind kind) {
    return kind == CELL_COUNT || kind == CELL_BYTES || kind == CELL_SECONDS || kind == CELL_SHARE ||
           kind == CELL_TIMES;
}

static void add_number(Str *out, CellKind kind, double x) {
    if (kind == CELL_BYTES)
        str_addf(out, "%s%s", x < 0 ? "-" : "", units_bytes((int64_t)fabs(x)).s);
    else if (kind == CELL_SECONDS)
        str_addf(out, "%s%s", x < 0 ? "-" : "", units_seconds(fabs(x)).s);
    else if (kind == CELL_SHARE)
        str_addf(out, "%.1f %%", 100 * x);
    else if (kind == CELL_TIMES)
        str_addf(out, "%.2fx", x);
    else
        str_add(out, units_count((int64_t)(x + 0.5)).s);
}

/* data-v: the number as --json prints it. */
static void add_number_cell(Str *out, const Column *c, const json_t *v, double most) {
    double x = json_number_value(v);
    if (json_is_integer(v))
        str_addf(out, "<td class=\"r\" data-v=\"%lld\">", (long long)json_integer_value(v));
    else
        str_addf(out, "<td class=\"r\" data-v=\"%.9g\">", x);
    if (c->bar && most > 0) html_bar(out, c->kind == CELL_SHARE ? x : x / most, "all");
    str_add(out, " <span>");
    add_number(out, c->kind, x);
    str_add(out, "</span></td>");
}

/* The colour only repeats what the word says. */
static void add_verdict(Str *out, const json_t *v) {
    const char *word = json_is_string(v) ? json_string_value(v) : json_is_true(v) ? "fits" : "no";
    const char *kind = !strcmp(word, "no") ? "no" : !strcmp(word, "fits") ? "yes" : "note";
    str_addf(out, "<td><span class=\"tag %s\">", kind);
    html_in(out, "", word, "</span></td>");
}

static const Card *smallest_card(const json_t *names) {
    const Card *smallest = NULL;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const Card *card = card_named(json_string_value(json_array_get(names, i)));
        if (card && (!smallest || card->memory_mib < smallest->memory_mib)) smallest = card;
    }
    return smallest;
}

static void add_cards_cell(Str *out, const json_t *names) {
    const Card *smallest = smallest_card(names);
    if (!smallest) {
        str_add(out, "<td data-v=\"0\">none</td>");
        return;
    }
    str_addf(out, "<td data-v=\"%d\"><details><summary>%s, %d GB; %d in all</summary>",
             (int)json_array_size(names), smallest->name, smallest->label_gb, (int)json_array_size(names));
    for (size_t i = 0; i < json_array_size(names); i++) {
        if (i) str_add(out, ", ");
        str_add_html(out, json_string_value(json_array_get(names, i)));
    }
    str_add(out, "</details></td>");
}

static void add_text_cell(Str *out, CellKind kind, const char *text) {
    str_add(out, kind == CELL_FLAGS ? "<td class=\"f\">" : "<td>");
    if (kind == CELL_FLAGS && *text)
        html_flags(out, text);
    else
        str_add_html(out, kind == CELL_FLAGS ? "as asked" : text);
    str_add(out, "</td>");
}

static void add_cell(Str *out, const Column *c, const json_t *v, double most) {
    if (!v)
        str_add(out, "<td></td>");
    else if (is_number(c->kind))
        add_number_cell(out, c, v, most);
    else if (c->kind == CELL_VERDICT)
        add_verdict(out, v);
    else if (c->kind == CELL_CARDS)
        add_cards_cell(out, v);
    else if (c->kind == CELL_MATHS)
        str_add(out, json_is_true(v) ? "<td><span class=\"tag note\">changes the mathematics</span></td>"
                                     : "<td>the same mathematics</td>");
    else
        add_text_cell(out, c->kind, json_is_string(v) ? json_string_value(v) : "");
}

void page_table(Str *out, const json_t *rows, const Column *column, int n) {
    str_add(out, "<div class=\"wide\"><table class=\"sort\"><thead><tr>");
    for (int k = 0; k < n; k++)
        if (is_used(rows, column[k].key))
            str_addf(out, "<th scope=\"col\"%s>%s</th>", is_number(column[k].kind) ? " class=\"r\"" : "",
                     column[k].heading);
    str_add(out, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        str_add(out, "<tr>");
        for (int k = 0; k < n; k++)
            if (is_used(rows, column[k].key))
                add_cell(out, &column[k], value_at(json_array_get(rows, i), column[k].key),
                         largest(rows, column[k].key));
        str_add(out, "</tr>\n");
    }
    str_add(out, "</tbody></table></div>\n");
}

void page_begin_section(Str *out, const char *id, const char *title, const char *about) {
    str_addf(out, "<section class=\"card\" id=\"%s\"><h2>%s</h2>\n", id, title);
    if (about) str_addf(out, "<p class=\"s\">%s</p>\n", about);
}

void page_end_section(Str *out) {
    str_add(out, "</section>\n");
}

/* ---- the tables there are ---- */

static const Column change_columns[] = {{"flags", "change", CELL_FLAGS, false},
                                        {"saves_bytes", "saves", CELL_BYTES, true},
                                        {"slowdown", "time", CELL_TIMES, false},
                                        {"changes_mathematics", "", CELL_MATHS, false}};

static const Column saving_columns[] = {{"name", "technique", CELL_TEXT, false},
                                        {"device_bytes_saved", "saves on the device", CELL_BYTES, true},
                                        {"host_bytes_taken", "takes of the host", CELL_BYTES, false},
                                        {"update_seconds_paid", "time added to an update", CELL_SECONDS, false},
                                        {"changes_mathematics", "", CELL_MATHS, false}};

static const Column phase_columns[] = {{"name", "phase", CELL_TEXT, false},
                                       {"plays", "plays", CELL_COUNT, false},
                                       {"steps", "steps", CELL_COUNT, false},
                                       {"seconds", "time", CELL_SECONDS, true},
                                       {"peak_bytes", "alive in the arena at most", CELL_BYTES, true}};

#define COLUMNS(...) (const Column[]){__VA_ARGS__}, COUNT_OF(((const Column[]){__VA_ARGS__}))

static const struct Table {
    const char *key, *title, *about;
    const Column *column;
    int n;
} tables[] = {
    {"models", "The models", NULL,
     COLUMNS({"role", "role", CELL_TEXT, false},
             {"model", "model", CELL_TEXT, false},
             {"parameters", "parameters", CELL_COUNT, false},
             {"stored", "stored as", CELL_TEXT, false},
             {"device_bytes", "on the device", CELL_BYTES, true},
             {"pinned_bytes", "pinned", CELL_BYTES, false})},
    {"slots_that_fit", "Requests at a time",
     "How many slots fit by length and by how the weights are stored, nothing in pinned memory.",
     COLUMNS({"context", "context, tokens", CELL_COUNT, false},
             {"as_on_file", "weights as on file", CELL_COUNT, true},
             {"int8", "int8", CELL_COUNT, true},
             {"nf4", "nf4", CELL_COUNT, true})},
    {"ladder", "The ladder", "The fastest plan within a share of the memory; the global batch stays.",
     COLUMNS({"name", "rung", CELL_TEXT, false},
             {"share", "of the memory", CELL_SHARE, false},
             {"budget_bytes", "may take", CELL_BYTES, false},
             {"fits", "verdict", CELL_VERDICT, false},
             {"device_bytes", "takes", CELL_BYTES, false},
             {"host_bytes", "host", CELL_BYTES, false},
             {"tokens_per_s", "tokens/s", CELL_COUNT, true},
             {"ceiling_share", "of the ceiling", CELL_SHARE, true},
             {"flags", "flags", CELL_FLAGS, false})},
    {"cards", "The cards", "An empty one of each kind. Tight: less than 5 % to spare.",
     COLUMNS({"name", "card", CELL_TEXT, false},
             {"room_bytes", "memory", CELL_BYTES, false},
             {"verdict", "verdict", CELL_VERDICT, false},
             {"device_bytes", "takes", CELL_BYTES, false},
             {"host_bytes", "host", CELL_BYTES, false},
             {"tokens_per_s", "tokens/s", CELL_COUNT, true},
             {"update_seconds", "an update", CELL_SECONDS, true},
             {"ceiling_share", "of the ceiling", CELL_SHARE, true},
             {"slots", "slots", CELL_COUNT, true},
             {"layers_sent", "layers offloaded", CELL_COUNT, false},
             {"flags", "flags", CELL_FLAGS, false},
             {"change", "it could with", CELL_FLAGS, false},
             {"streamed", "streamed", CELL_TEXT, false})},
    {"batches", "The batch table",
     "Rows at once on a GPU, and the smallest card that holds them; recomputed: every block.",
     COLUMNS({"micro_batch", "rows", CELL_COUNT, false},
             {"activation_bytes", "activations", CELL_BYTES, true},
             {"total_bytes", "total", CELL_BYTES, false},
             {"cards", "smallest card", CELL_CARDS, false},
             {"recompute_block.activation_bytes", "activations, recomputed", CELL_BYTES, true},
             {"recompute_block.total_bytes", "total, recomputed", CELL_BYTES, false},
             {"recompute_block.cards", "smallest card, recomputed", CELL_CARDS, false})},
    {"compared", "Compared", "The first row is the job as asked.",
     COLUMNS({"flags", "flags", CELL_FLAGS, false},
             {"machine", "on", CELL_TEXT, false},
             {"fits", "verdict", CELL_VERDICT, false},
             {"device_bytes", "takes", CELL_BYTES, true},
             {"host_bytes", "host", CELL_BYTES, false},
             {"tokens_per_s", "tokens/s", CELL_COUNT, true},
             {"ceiling_share", "of the ceiling", CELL_SHARE, false},
             {"update_seconds", "an update", CELL_SECONDS, false},
             {"micro_batch", "rows", CELL_COUNT, false},
             {"accum", "x", CELL_COUNT, false},
             {"seq", "length", CELL_COUNT, false},
             {"blocks_recomputed", "blocks recomputed", CELL_COUNT, false},
             {"offload", "offloaded", CELL_TEXT, false})},
};

void page_other_tables(Str *out, const json_t *plan) {
    for (int i = 0; i < COUNT_OF(tables); i++) {
        const struct Table *t = &tables[i];
        const json_t *rows = json_object_get(plan, t->key);
        if (!json_array_size(rows)) continue;
        page_begin_section(out, t->key, t->title, t->about);
        page_table(out, rows, t->column, t->n);
        page_end_section(out);
    }
}

void page_changes(Str *out, const json_t *changes) {
    page_table(out, changes, change_columns, COUNT_OF(change_columns));
}

void page_phases(Str *out, const json_t *phases) {
    page_table(out, phases, phase_columns, COUNT_OF(phase_columns));
}

/* ---- before and after ---- */

static void add_compared_bar(Str *out, const char *name, double bytes, double seconds, double most) {
    str_addf(out, "<tr><th scope=\"row\">%s</th><td class=\"grow\">", name);
    html_bar(out, bytes / most, "all");
    str_addf(out, "</td><td class=\"r\">%s</td><td class=\"r\">%s</td><td class=\"r\">%s an update</td></tr>\n",
             units_count((int64_t)bytes).s, units_bytes((int64_t)bytes).s, units_seconds(seconds).s);
}

void page_savings(Str *out, const PlanPage *page) {
    const json_t *on = json_object_get(page->plan, "switched_on"), *same = json_object_get(on, "unchanged");
    if (!on) return;
    double before = json_number_value(json_object_get(on, "before_bytes")),
           after = json_number_value(json_object_get(on, "after_bytes"));
    page_begin_section(
        out, "switched_on", "Before and after",
        "Each technique is the same plan without that one alone; what they save overlaps, so the lines "
        "do not add up to the whole.");
    if (before > 0) {
        str_add(out, "<table class=\"pair\">");
        add_compared_bar(out, "before", before, json_number_value(json_object_get(on, "before_update_seconds")),
                         fmax(before, after));
        add_compared_bar(out, "after", after, json_number_value(json_object_get(on, "after_update_seconds")),
                         fmax(before, after));
        str_add(out, "</table>\n");
    }
    page_table(out, json_object_get(on, "savings"), saving_columns, COUNT_OF(saving_columns));
    str_addf(out, "<p class=\"s\">Unchanged: %s parameters, %s trained, global batch %s, length %s.</p>\n",
             units_count(json_integer_value(json_object_get(same, "parameters"))).s,
             units_count(json_integer_value(json_object_get(same, "trainable_parameters"))).s,
             units_count(json_integer_value(json_object_get(same, "global_batch"))).s,
             units_count(json_integer_value(json_object_get(same, "seq"))).s);
    page_end_section(out);
}
