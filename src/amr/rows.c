/* rows.c - how a piece of a corpus becomes rows, and what is said of the blocks that become none. */
#include "amr/rows.h"

#include <string.h>

#include "base/mem.h"

static void forget_file(AmrRowsFile *f) {
    for (int i = 0; i < f->n_faults; i++) mem_free(f->fault[i].why);
    mem_free(f->path);
    *f = (AmrRowsFile){0};
}

/* A file may be looked at before it is read: then its counts begin anew. */
static bool begin_file(void *self, const char *path, Err *e) {
    AmrRows *r = self;
    for (r->at = 0; r->at < r->n_files && strcmp(r->file[r->at].path, path); r->at++) continue;
    if (r->at == r->n_files) {
        r->file = mem_grow(r->file, &r->room, r->n_files + 1, sizeof *r->file);
        r->file[r->n_files++] = (AmrRowsFile){0};
    }
    forget_file(&r->file[r->at]);
    r->file[r->at].path = mem_strdup(path);
    return true;
}

static void leave_out(AmrRowsFile *f, const AmrBlock *b) {
    f->silent += !b->sentence;
    f->invalid += b->sentence != NULL;
    if (f->n_faults == AMR_FAULTS_NAMED) return;
    f->fault[f->n_faults++] =
        (AmrFault){.block = f->blocks,
                   .line = b->sentence ? b->fault_line : b->line,
                   .why = mem_strdup(b->sentence ? b->fault : "there is no sentence (# ::snt ...)")};
}

static bool make_rows(void *self, json_t *rows, const char *text, int64_t bytes, int64_t line, Err *e) {
    AmrRows *r = self;
    AmrRowsFile *f = &r->file[r->at];
    AmrCorpus c;
    Str piece = {0};
    str_add_bytes(&piece, text, bytes);
    bool any = amr_corpus_parse(&c, &piece, f->path, line, NULL); /* a piece of comments alone has no block */
    for (int64_t i = 0; any && i < c.n; i++) {
        const AmrBlock *b = &c.block[i];
        f->blocks++;
        if (b->fault || !b->sentence)
            leave_out(f, b);
        else
            json_array_append_new(rows, amr_row(&r->prompt, b, f->blocks - 1, r->style));
    }
    amr_corpus_free(&c);
    return true;
}

bool amr_rows_open(AmrRows *r, const char *wording, AmrRowStyle style, Err *e) {
    *r = (AmrRows){.style = style};
    if (!amr_prompt_choose(&r->prompt, &r->style, wording, e)) return false;
    str_addf(&r->text, "AMR corpus, sentence to graph (--amr-prompt %s)", wording);
    r->blocks = (RowBlocks){.self = r, .text = str_text(&r->text), .begin = begin_file, .rows = make_rows};
    return true;
}

void amr_rows_close(AmrRows *r) {
    amr_prompt_free(&r->prompt);
    for (int64_t i = 0; i < r->n_files; i++) forget_file(&r->file[i]);
    mem_free(r->file);
    str_free(&r->text);
    *r = (AmrRows){0};
}

static void report_file(Str *out, const AmrRowsFile *f) {
    int64_t left_out = f->invalid + f->silent;
    str_addf(out, "%s%s: %lld of %lld blocks are left out (%lld without a valid graph, %lld without a sentence):",
             out->len ? "\n" : "", f->path, (long long)left_out, (long long)f->blocks, (long long)f->invalid,
             (long long)f->silent);
    for (int i = 0; i < f->n_faults; i++)
        str_addf(out, "\n  block %lld, line %lld: %s", (long long)f->fault[i].block, (long long)f->fault[i].line,
                 f->fault[i].why);
    if (left_out > f->n_faults)
        str_addf(out, "\n  ... and %lld more (`snug amr check` lists them)", (long long)(left_out - f->n_faults));
}

void amr_rows_report(Str *out, const AmrRows *r) {
    for (int64_t i = 0; i < r->n_files; i++)
        if (r->file[i].invalid + r->file[i].silent) report_file(out, &r->file[i]);
}
