/* plan_html_ledger.c - the ledger as tables with bars: every class of every pool, its bytes, its share, its number
 * formats. */
#include <string.h>

#include "base/units.h"
#include "cli/plan_html.h"

/* Bytes of each class by number format, as they stand at a pool's peak: what the ledger counts. Scratch has no
 * format: what a step writes there is its own affair. */
enum { FMT_RAW = FMT_COUNT, FORMATS };
typedef struct Formats {
    struct {
        const char *line; /* NULL: not used */
        int64_t bytes[FORMATS];
    } of[32];
    int n;
} Formats;

static void count_formats(Formats *f, const PlanPage *page, Pool pool) {
    Timeline t;
    Stay *stay;
    *f = (Formats){.n = 0};
    plan_timeline(&t, page->program, page->machine, pool);
    int64_t n = plan_stays(&stay, page->program, pool);
    for (int64_t i = 0; i < n; i++) {
        if (stay[i].birth > t.peak_step || stay[i].death < t.peak_step) continue;
        const Tensor *x = prog_t(page->program, stay[i].tensor);
        CHECK(stay[i].line < COUNT_OF(f->of));
        f->of[stay[i].line].line = plan_line_name(stay[i].line);
        f->of[stay[i].line].bytes[x->role == ROLE_SCRATCH ? FMT_RAW : (int)x->format] += x->bytes;
        f->n = MAX2(f->n, stay[i].line + 1);
    }
    mem_free(stay);
    plan_timeline_free(&t);
}

static void add_format(Str *out, const char *name, int64_t bytes, int64_t sum) {
    str_add(out, name);
    if (bytes * 1000 < sum)
        str_add(out, "&nbsp;&lt;&nbsp;0.1&nbsp;%");
    else if (bytes < sum)
        str_addf(out, "&nbsp;%.1f&nbsp;%%", 100.0 * (double)bytes / (double)sum);
}

/* "bf16", or "bf16 99.8 %, fp32 0.2 %": the largest share first. */
static void add_formats(Str *out, const Formats *f, const char *line) {
    int at = 0;
    int64_t bytes[FORMATS], sum = 0;
    while (at < f->n && (!f->of[at].line || strcmp(f->of[at].line, line))) at++;
    if (at == f->n) return;
    for (int k = 0; k < FORMATS; k++) sum += bytes[k] = f->of[at].bytes[k];
    for (int shown = 0;; shown++) {
        int most = 0;
        for (int k = 1; k < FORMATS; k++)
            if (bytes[k] > bytes[most]) most = k;
        if (!bytes[most]) return;
        if (shown) str_add(out, ", ");
        add_format(out, most == FMT_RAW ? "raw bytes" : format_name((Format)most), bytes[most], sum);
        bytes[most] = 0;
    }
}

static void add_bytes(Str *out, int64_t bytes, int64_t whole) {
    str_addf(out, "</th><td class=\"r\">%s</td><td class=\"r\">%s</td><td class=\"r\">", units_count(bytes).s,
             units_bytes(bytes).s);
    html_bar(out, (double)bytes / (double)whole, "all");
    str_addf(out, " <span>%.1f %%</span></td><td>", 100.0 * (double)bytes / (double)whole);
}

static void add_row(Str *out, const LedgerLine *l, const Formats *f, int64_t whole) {
    bool drawn = l->in_arena && l->pool == POOL_DEVICE;
    str_addf(out, "<tr><th scope=\"row\">");
    if (l->pool == POOL_DEVICE)
        str_addf(out, "<i class=\"key c%d\"></i>", picture_colour(drawn ? l->name : "beside"));
    str_add(out, l->name);
    add_bytes(out, l->planned_bytes, whole);
    if (l->in_arena) add_formats(out, f, l->name);
    str_addf(out, "</td><td class=\"s\">%s</td></tr>\n",
             l->in_arena ? picture_meaning(l->name)
             : l->note   ? l->note
                         : "");
}

static void add_rows(Str *out, const PlanPage *page, Pool pool, bool in_arena, const Formats *f, int64_t whole) {
    for (int i = 0; i < page->ledger->n; i++) {
        const LedgerLine *l = &page->ledger->line[i];
        if (l->pool == pool && l->in_arena == in_arena && l->planned_bytes) add_row(out, l, f, whole);
    }
}

static void add_sum(Str *out, const char *name, int64_t bytes, int64_t whole) {
    str_addf(out, "<tr class=\"sum\"><th scope=\"row\">%s", name);
    add_bytes(out, bytes, whole);
    str_add(out, "</td><td></td></tr>\n");
}

static void begin_table(Str *out, const char *title) {
    str_addf(out,
             "<div class=\"wide\"><table class=\"ledger\"><caption>%s</caption><thead><tr><th "
             "scope=\"col\">class</th><th scope=\"col\" "
             "class=\"r\">planned bytes</th><th scope=\"col\"></th><th scope=\"col\" class=\"r\">share</th>"
             "<th scope=\"col\">number format</th><th scope=\"col\"></th></tr></thead><tbody>\n",
             title);
}

static void end_table(Str *out) {
    str_add(out, "</tbody></table></div>\n");
}

static void add_pool(Str *out, const PlanPage *page, Pool pool, int64_t whole) {
    Formats f;
    count_formats(&f, page, pool);
    add_rows(out, page, pool, true, &f, whole);
    add_rows(out, page, pool, false, &f, whole);
}

/* The same order as the terminal's: the arena, what stands beside it, and on the CPU, where there is one memory,
 * the host's part of the process. */
static void add_device(Str *out, const PlanPage *page, bool one_memory) {
    Formats f;
    int64_t process = page->process_bytes;
    count_formats(&f, page, POOL_DEVICE);
    begin_table(out, one_memory ? "The process" : "The device");
    add_rows(out, page, POOL_DEVICE, true, &f, process);
    add_sum(out, "= arena", page->ledger->arena_bytes[POOL_DEVICE], process);
    add_rows(out, page, POOL_DEVICE, false, &f, process);
    if (one_memory) {
        add_pool(out, page, POOL_PINNED, process);
        add_pool(out, page, POOL_HOST, process);
    }
    add_sum(out, "= process", process, process);
    end_table(out);
}

static void add_other(Str *out, const PlanPage *page, Pool pool, const char *title, const char *sum) {
    int64_t bytes = ledger_process_bytes(page->ledger, pool);
    if (!bytes) return;
    begin_table(out, title);
    add_pool(out, page, pool, bytes);
    add_sum(out, sum, bytes, bytes);
    end_table(out);
}

void page_ledger(Str *out, const PlanPage *page) {
    bool one_memory = page->machine->kind == MACHINE_CPU;
    page_begin_section(
        out, "ledger", "The ledger",
        "Every planned byte has a name. What lives always counts whole, what comes and goes as it stands "
        "at the peak; the lines of the arena sum to it exactly.");
    add_device(out, page, one_memory);
    if (!one_memory) {
        add_other(out, page, POOL_PINNED, "Pinned memory of the host", "= pinned");
        add_other(out, page, POOL_HOST, "Ordinary memory of the host", "= host");
    }
    add_other(out, page, POOL_DISK, "On disk", "= disk");
    int64_t own = json_integer_value(json_object_get(page->plan, "offload_dir_bytes"));
    int64_t disk = ledger_process_bytes(page->ledger, POOL_DISK);
    if (disk)
        str_addf(out, "<p class=\"s\">On disk: %s in --offload-dir, %s in the model's own files.</p>\n",
                 units_bytes(own).s, units_bytes(disk - own).s);
    page_end_section(out);
}
