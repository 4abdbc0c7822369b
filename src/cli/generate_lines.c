/* generate_lines.c - how lines get from the order they come in to the order of the prompts, and outlive the process. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/generate.h"
#include "cli/lines.h"

static void log_path(char to[1100], const char *out) { snprintf(to, 1100, "%.1000s.progress", out); }

bool lines_check(const Options *o, bool *whole, Err *e) {
    const char *out = opt_text(o, OPT_OUT);
    bool resume = opt_given(o, OPT_RESUME), anew = opt_flag(o, OPT_OVERWRITE);
    char log[1100];
    *whole = false;
    if (resume && !opt_is(o, OPT_RESUME, "newest"))
        return fail(e, ERR_USAGE, "--resume %s: here it stands alone and goes on with the answers of --out",
                    opt_text(o, OPT_RESUME));
    if (resume && anew)
        return fail(e, ERR_USAGE, "--resume goes on with what --overwrite throws away; give one of them");
    if (!out || !strcmp(out, "-"))
        return !resume ||
               fail(e, ERR_USAGE, "--resume: what goes to standard output is not kept; it goes with --out FILE");
    if (strlen(out) > 1000) return fail(e, ERR_USAGE, "--out: the path is too long");
    log_path(log, out);
    if (anew) return true;
    if (file_exists(log) && !resume)
        return fail(e, ERR_FAIL, "%s: holds answers of an interrupted run; --resume goes on, --overwrite begins anew",
                    log);
    *whole = resume && file_exists(out) && !file_exists(log);
    return *whole || file_exists(log) || lines_may_write(out, false, e);
}

void lines_init(AnswerLines *l, const char *out, int64_t n, const GenerateHooks *hooks) {
    *l = (AnswerLines){.out = out && strcmp(out, "-") ? out : NULL, .n = n, .hooks = hooks};
    l->log = (JobLog){.fd = -1, .lock = {.fd = -1}};
    if (l->out) l->place = MEM_NEW(LinePlace, n);
    else l->held = MEM_NEW(char *, n);
}

bool lines_open(AnswerLines *l, const json_t *job, bool anew, JobLogTake *take, void *user, Err *e) {
    char path[1100];
    log_path(path, l->out);
    return joblog_open(&l->log, path, "generate", job, anew, take, user, e);
}

bool lines_has(const AnswerLines *l, int64_t i) {
    return l->out ? l->place[i].bytes != 0 : i < l->written || l->held[i];
}

void lines_found(AnswerLines *l, int64_t i, int64_t at, int64_t bytes) {
    if (!l->place[i].bytes) l->n_done++;
    l->place[i] = (LinePlace){at, bytes};
}

/* ---- standard output ---- */

/* What is written of a line: itself, or what the hook makes of it. */
static bool turn(const AnswerLines *l, Str *line, Err *e) {
    return !l->hooks->turn || l->hooks->turn(l->hooks->self, line, e);
}

static bool print_line(const AnswerLines *l, char *line, Err *e) { /* frees it */
    Str text = {0};
    bool passed_over = !line[0];
    if (!passed_over) str_addf(&text, "%s\n", line);
    mem_free(line);
    bool ok = passed_over || turn(l, &text, e);
    if (ok && fputs(str_text(&text), stdout) < 0) ok = fail(e, ERR_FAIL, "standard output could not be written");
    str_free(&text);
    return ok;
}

static bool print_ready(AnswerLines *l, Err *e) { /* lines whose turn has come */
    bool ok = true;
    for (; ok && l->written < l->n && l->held[l->written]; l->written++) {
        ok = print_line(l, l->held[l->written], e);
        l->held[l->written] = NULL;
    }
    return !fflush(stdout) ? ok : fail(e, ERR_FAIL, "standard output could not be written");
}

/* ---- lines ---- */

void lines_skip(AnswerLines *l, int64_t i) {
    if (lines_has(l, i)) return;
    l->n_done++;
    if (l->out) l->place[i].bytes = -1;
    else l->held[i] = mem_strdup("");
}

bool lines_add(AnswerLines *l, int64_t i, const json_t *line, Err *e) {
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (!text) return fail(e, ERR_FAIL, "an answer could not be written as JSON");
    if (!l->out) {
        l->held[i] = text;
        l->n_done++;
        return print_ready(l, e);
    }
    int64_t at = l->log.bytes;
    bool ok = joblog_add(&l->log, text, e);
    mem_free(text);
    if (ok) lines_found(l, i, at, l->log.bytes - at);
    return ok;
}

/* ---- the end ---- */

static bool write_in_order(AnswerLines *l, Err *e) {
    FileOut f;
    Str line = {0};
    if (!file_begin(&f, l->out, e)) return false;
    bool ok = true;
    for (int64_t i = 0; ok && i < l->n; i++) {
        if (l->place[i].bytes <= 0) continue;
        str_clear(&line);
        ok = joblog_read(&l->log, &line, l->place[i].at, l->place[i].bytes, e) && turn(l, &line, e) &&
             file_write(f.fd, line.data, line.len, f.temporary, e);
    }
    str_free(&line);
    return file_end(&f, ok, e);
}

bool lines_finish(AnswerLines *l, Err *e) {
    if (!l->out) return print_ready(l, e);
    return write_in_order(l, e) && joblog_remove(&l->log, e);
}

bool lines_interrupt(AnswerLines *l, Err *e) {
    if (l->out) return joblog_flush(&l->log, e);
    for (int64_t i = l->written; i < l->n; i++) { /* out of order rather than lost: each names its prompt */
        if (!l->held[i]) continue;
        char *line = l->held[i];
        l->held[i] = NULL;
        if (!print_line(l, line, e)) return false;
    }
    return !fflush(stdout) || fail(e, ERR_FAIL, "standard output could not be written");
}

void lines_free(AnswerLines *l) {
    if (!l->held && !l->place) return;
    for (int64_t i = 0; l->held && i < l->n; i++) mem_free(l->held[i]);
    mem_free(l->held);
    mem_free(l->place);
    joblog_close(&l->log);
}
