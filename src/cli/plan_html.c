/* plan_html.c - the page of a plan: verdict and what to change, the figures, then picture, ledger and tables in
 * reading order. */
#include "cli/plan_html.h"

#include <string.h>

#include "base/units.h"

static double number(const json_t *from, const char *key) {
    return json_number_value(json_object_get(from, key));
}

/* ---- what is seen first ---- */

static void add_verdict(Str *out, const PlanPage *page) {
    int64_t need = page->process_bytes, room = page->room_bytes;
    bool fits = need <= room && !page->refusal;
    const json_t *changes = json_object_get(page->plan, "changes");
    double share = room > 0 ? (double)need / (double)room : 1;
    str_addf(out, "<section class=\"card\" id=\"verdict\"><p class=\"verdict\"><span class=\"tag %s\">%s</span> ",
             fits ? "yes" : "no", fits ? "fits" : "does not fit");
    str_addf(out, "%s of %s (%s), %s %s</p>\n", units_bytes(need).s, units_bytes(room).s, page->room,
             units_bytes(need <= room ? room - need : need - room).s, need <= room ? "to spare" : "missing");
    str_addf(out, "<div class=\"meter\"><i%s style=\"width:%.1f%%\"></i></div>\n", fits ? "" : " class=\"over\"",
             100 * MIN2(share, 1));
    str_addf(out, "<p class=\"s\">%s bytes planned, %s may be taken: %.1f %%.</p>\n", units_count(need).s,
             units_count(room).s, 100 * share);
    if (page->refusal) {
        Str first = {0};
        str_add_bytes(&first, page->refusal, (int64_t)strcspn(page->refusal, "\n")); /* then come the changes */
        html_text(out, "p", str_text(&first));
        str_free(&first);
    }
    if (json_array_size(changes)) {
        str_addf(out, "<details%s><summary>%s</summary>\n", fits ? "" : " open",
                 fits ? "Single changes that would make it smaller" : "The cheapest changes, as flags to add");
        page_changes(out, changes);
        str_add(out, "</details>\n");
    }
    page_end_section(out);
}

static void add_facts(Str *out, const PlanPage *page) {
    const char *label;
    json_t *text;
    str_add(out, "<dl>");
    json_object_foreach(page->facts, label, text) {
        html_fact(out, label, json_string_value(text));
    }
    str_add(out, "<dt>the plan as flags</dt><dd>");
    html_flags(out, str_text(&page->flags));
    str_add(out, "</dd></dl>\n");
}

static void add_tile(Str *out, const char *figure, const char *what) {
    str_add(out, "<div>");
    html_text(out, "b", figure);
    html_text(out, "span", what);
    str_add(out, "</div>");
}

static void add_rate(Str *out, const json_t *predicted, const char *key, const char *what) {
    if (json_object_get(predicted, key))
        add_tile(out, units_count((int64_t)(number(predicted, key) + 0.5)).s, what);
}

static void add_memory_tile(Str *out, const PlanPage *page, Pool pool, const char *what) {
    int64_t bytes = pool == POOL_DEVICE ? page->process_bytes : ledger_process_bytes(page->ledger, pool);
    if (bytes) add_tile(out, units_bytes(bytes).s, what);
}

static void add_tiles(Str *out, const PlanPage *page) {
    const json_t *predicted = json_object_get(page->plan, "predicted");
    bool one_memory = page->machine->kind == MACHINE_CPU;
    str_add(out, "<div class=\"tiles\">");
    add_memory_tile(out, page, POOL_DEVICE, one_memory ? "the whole process" : "on the device");
    if (!one_memory) add_memory_tile(out, page, POOL_PINNED, "pinned memory of the host");
    if (!one_memory) add_memory_tile(out, page, POOL_HOST, "ordinary memory of the host");
    add_memory_tile(out, page, POOL_DISK, "on disk");
    add_rate(out, predicted, "tokens_per_s", "tokens/s predicted");
    add_rate(out, predicted, "prefill_tokens_per_s", "prompt tokens/s predicted");
    add_rate(out, predicted, "decode_tokens_per_s", "answer tokens/s predicted");
    if (json_object_get(predicted, "update_seconds"))
        add_tile(out, units_seconds(number(predicted, "update_seconds")).s, "an update");
    if (number(predicted, "job_seconds") > 0)
        add_tile(out, units_seconds(number(predicted, "job_seconds")).s, "the whole job");
    else if (json_object_get(predicted, "seconds_per_million_tokens"))
        add_tile(out, units_seconds(number(predicted, "seconds_per_million_tokens")).s, "a million tokens");
    str_add(out, "</div>\n");
}

/* ---- the command ---- */

static void add_quoted(Str *out, const char *word) {
    if (*word &&
        word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=.,:/+@%")] == 0) {
        str_add(out, word);
        return;
    }
    str_add_char(out, '\'');
    for (; *word; word++) {
        if (*word == '\'')
            str_add(out, "'\\''");
        else
            str_add_char(out, *word);
    }
    str_add_char(out, '\'');
}

static void add_option(Str *out, const Options *o, OptId id) {
    const OptRow *row = &option_rows[id];
    const char *text = opt_text(o, id), *const *list = &text;
    int n = row->one_each ? opt_list(o, id, &list) : 1;
    for (int i = 0; i < n; i++) {
        str_addf(out, " --%s", row->name);
        if (row->type == OPT_FLAG && opt_flag(o, id)) continue;
        str_add_char(out, '=');
        add_quoted(out, list[i]);
    }
}

/* What would say the same again, wherever the values came from; without what was asked of this one call. */
static void add_command(Str *out, const Options *o) {
    static const OptId left_out[] = {OPT_CONFIG, OPT_SET, OPT_HTML, OPT_SVG, OPT_JSON, OPT_LISTING, OPT_EXPLAIN};
    str_add(out, "snug plan");
    for (int id = 0; id < OPT_COUNT; id++) {
        bool shown = opt_given(o, (OptId)id) && opt_text(o, (OptId)id);
        for (int i = 0; i < COUNT_OF(left_out); i++) shown &= id != (int)left_out[i];
        if (shown) add_option(out, o, (OptId)id);
    }
}

static void add_json(Str *out, const PlanPage *page) {
    Str command = {0};
    char *dump = json_dumps(page->plan, JSON_COMPACT | JSON_REAL_PRECISION(9));
    add_command(&command, page->options);
    page_begin_section(out, "json", "The same as JSON", NULL);
    str_add(out,
            "<p>The plan stands in this page as JSON (<code>#plan</code>); on the command line it is "
            "<button class=\"push\" id=\"save\" hidden>save plan.json</button></p>\n<p>");
    str_add(&command, " --json");
    html_flags(out, str_text(&command));
    str_add(out, "</p>\n");
    page_end_section(out);
    html_json(out, "plan", dump);
    mem_free(dump);
    str_free(&command);
}

/* ---- all of it ---- */

void plan_html(Str *out, const PlanPage *page) {
    Str title = {0}, style = {0};
    str_addf(&title, "snug plan: %s", page->model);
    str_add(&style, plan_html_style);
    picture_style(&style);
    html_begin(out, str_text(&title), str_text(&style));
    html_text(out, "h1", page->model);
    html_text(out, "p", str_text(&page->job));
    add_verdict(out, page);
    add_tiles(out, page);
    add_facts(out, page);
    page_chart(out, page);
    page_ledger(out, page);
    page_savings(out, page);
    page_other_tables(out, page->plan);
    page_chart_tables(out, page);
    add_json(out, page);
    str_add(out, plan_html_script);
    html_end(out);
    str_free(&title);
    str_free(&style);
}
