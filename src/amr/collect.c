/* collect.c - how a line of an answer becomes a block, and what is counted on the way. */
#include "amr/collect.h"

#include <string.h>

#include "base/mem.h"

/* From the answer's id, or from --sentences by its index; NULL: unknown. */
static const char *sentence_of(const AmrCollect *c, const json_t *row) {
    const json_t *id = json_object_get(row, "id"), *index = json_object_get(row, "index");
    const char *said = json_string_value(json_object_get(id, "sentence"));
    if (said) return said;
    int64_t i = json_is_integer(index) ? json_integer_value(index) : c->answers;
    if (!c->sentences || i < 0 || i >= c->sentences->n) return NULL;
    said = c->sentences->block[i].sentence;
    return said ? said : "";
}

static void add_repairs(Str *out, const AmrRepairs *r) {
    const struct {
        const char *name;
        int64_t n;
    } done[] = {
        {"quotes", r->quotes}, {"parentheses", r->parentheses}, {"ends", r->ends}, {"renamed", r->renamed}};
    int64_t any = 0;
    for (int i = 0; i < COUNT_OF(done); i++) {
        if (done[i].n) str_addf(out, "%s %s=%lld", any ? "" : "# ::repaired", done[i].name, (long long)done[i].n);
        any += done[i].n;
    }
    if (any) str_add_char(out, '\n');
}

static bool is_repaired(const AmrRepairs *r) {
    return r->quotes + r->parentheses + r->ends + r->renamed > 0;
}

static void add_sentence(Str *out, const char *sentence) {
    str_add(out, "#::snt ");
    for (const char *s = sentence; *s; s++) str_add_char(out, *s == '\n' || *s == '\r' ? ' ' : *s);
    str_add_char(out, '\n');
}

static void add_failure(AmrCollect *c, Str *out, const char *sentence, const char *why) {
    str_addf(out, "# ::failed %s\n", why);
    amr_print_failure(out, sentence);
    c->failed++;
}

static void count_repairs(AmrCollect *c, const AmrRepairs *done) {
    c->repaired += is_repaired(done);
    c->repairs.quotes += done->quotes;
    c->repairs.parentheses += done->parentheses;
    c->repairs.ends += done->ends;
    c->repairs.renamed += done->renamed;
}

static void add_answer(AmrCollect *c, Str *out, const char *sentence, const char *text, int64_t bytes) {
    Penman graph;
    AmrRepairs done;
    Err e = {0};
    if (amr_take(&graph, &done, text, bytes, c->how, &e)) {
        add_repairs(out, &done);
        penman_print(out, &graph, c->layout);
        c->graphs++;
        count_repairs(c, &done);
    } else {
        add_failure(c, out, sentence, e.text);
    }
    penman_free(&graph);
}

bool amr_collect_row(AmrCollect *c, Str *out, const json_t *row, Err *e) {
    const json_t *text = json_object_get(row, "text");
    const char *error = json_string_value(json_object_get(row, "error"));
    if (json_integer_value(json_object_get(row, "sample")) > 0) {
        c->other_samples++;
        return true;
    }
    const char *finish = json_string_value(json_object_get(row, "finish")), *sentence = sentence_of(c, row);
    if (!json_is_string(text) && !error)
        return fail(e, ERR_FAIL, "the row has no \"text\"; lines as `snug generate` writes them are read here");
    if (!sentence)
        return fail(
            e, ERR_FAIL,
            "the row does not say its sentence. Make the prompts with `snug amr rows --without-answers`, or name "
            "the file of the sentences: --sentences FILE");
    c->cut += finish && !strcmp(finish, "length");
    c->answers++;
    add_sentence(out, sentence);
    if (error)
        add_failure(c, out, sentence, error);
    else
        add_answer(c, out, sentence, json_string_value(text), (int64_t)json_string_length(text));
    str_add(out, "\n\n");
    return true;
}

/* ---- what came of it ---- */

json_t *amr_collect_json(const AmrCollect *c) {
    const AmrRepairs *r = &c->repairs;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:I}, s:I}", "answers", (json_int_t)c->answers,
                     "graphs", (json_int_t)c->graphs, "failed", (json_int_t)c->failed, "cut", (json_int_t)c->cut,
                     "repaired", (json_int_t)c->repaired, "repairs", "quotes", (json_int_t)r->quotes,
                     "parentheses", (json_int_t)r->parentheses, "ends", (json_int_t)r->ends, "renamed",
                     (json_int_t)r->renamed, "other_samples", (json_int_t)c->other_samples);
}

void amr_collect_report(Str *out, const AmrCollect *c) {
    const AmrRepairs *r = &c->repairs;
    str_addf(out,
             "%lld answers: %lld graphs, %lld failures (in place, as `# ::failed`); %lld answers ended at their "
             "longest",
             (long long)c->answers, (long long)c->graphs, (long long)c->failed, (long long)c->cut);
    if (c->repaired)
        str_addf(out,
                 "\n%lld graphs were repaired: %lld quotes and %lld parentheses closed, %lld ends cut off, %lld "
                 "variables "
                 "renamed",
                 (long long)c->repaired, (long long)r->quotes, (long long)r->parentheses, (long long)r->ends,
                 (long long)r->renamed);
    if (c->other_samples)
        str_addf(out, "\n%lld further samples of the same prompts were not used", (long long)c->other_samples);
}
