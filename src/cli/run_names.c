/* run_names.c - which options of a saved configuration are names, and the folder that they are relative to. */
#include "cli/run_names.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "store/checkpoint.h"

enum { NAME_BYTES = 2048 };

static bool is_same_folder(const char *a, const char *b) { return file_is_within(a, b) && file_is_within(b, a); }

/* Folders between a relative name and what it is relative to; -1: it does not lie below it. */
static int depth_of(const char *name) {
    int depth = 0;
    if (!name || name[0] == '/') return -1;
    for (const char *at = name; *at; at += *at == '/') {
        int64_t len = (int64_t)strcspn(at, "/");
        if (len == 2 && !memcmp(at, "..", 2)) return -1;
        depth += len > 0 && !(len == 1 && *at == '.');
        at += len;
    }
    return depth;
}

/* False: it is not known, or it is the current one. */
static bool find_base(Str *base, const Options *given, const char *run) {
    const char *out = opt_text(given, OPT_OUT);
    char named[NAME_BYTES];
    int depth = depth_of(out);
    if (depth < 0) return false;
    str_add(base, run);
    for (int i = 0; i < depth; i++) str_add(base, "/..");
    snprintf(named, sizeof named, "%s/%s", str_text(base), out);
    return is_same_folder(named, run) && !is_same_folder(str_text(base), ".");
}

/* "FILE" or "FILE:WEIGHT". */
static bool is_there(const char *name) {
    char file[NAME_BYTES];
    const char *colon = strrchr(name, ':');
    snprintf(file, sizeof file, "%.*s", colon ? (int)(colon - name) : (int)strlen(name), name);
    return file_exists(name) || (colon && file_exists(file));
}

static const char *followed(Arena *a, const char *base, const char *name) {
    if (name[0] == '/') return name;
    const char *from_there = arena_printf(a, "%s/%s", base, name);
    return is_there(from_there) ? from_there : name;
}

static void follow(Arena *a, OptValue *v, const char *base) {
    Str all = {0};
    if (!v->list) v->text = followed(a, base, v->text);
    for (int i = 0; v->list && i < v->n; i++) {
        v->list[i] = followed(a, base, v->list[i]);
        str_addf(&all, i ? ",%s" : "%s", v->list[i]);
    }
    if (v->list) v->text = arena_strdup(a, str_text(&all));
    str_free(&all);
}

void run_names_follow(Options *given, const char *run) {
    static const OptId names[] = {OPT_MODEL, OPT_TOKENIZER, OPT_ADAPTER, OPT_DATA, OPT_EVAL_DATA, OPT_STEP_LOG};
    Str base = {0};
    bool elsewhere = find_base(&base, given, run);
    for (int i = 0; i < COUNT_OF(names) && elsewhere; i++)
        if (given->value[names[i]].source == FROM_FILE)
            follow(&given->arena, &given->value[names[i]], str_text(&base));
    str_free(&base);
}

/* ---- a run that goes on ---- */

/* The folder of the config.yaml that says --out; false: a flag says it, or another file. */
static bool config_folder(Str *folder, const Options *o) {
    static const char name[] = "/config.yaml";
    const OptValue *out = &o->value[OPT_OUT];
    const char *line = out->source == FROM_FILE && out->origin ? strrchr(out->origin, ':') : NULL;
    if (!line) return false;
    if (!strchr(out->origin, '/')) str_add(folder, "./");
    str_add_bytes(folder, out->origin, line - out->origin);
    if (!str_ends(str_text(folder), name)) return false;
    folder->data[folder->len -= (int64_t)strlen(name)] = 0;
    return folder->len > 0;
}

/* A recipe may be named config.yaml too. */
static bool is_run(const char *folder) {
    char plan[NAME_BYTES];
    int64_t *steps, n = 0;
    snprintf(plan, sizeof plan, "%s/plan.json", folder);
    if (file_exists(plan)) return true;
    if (!checkpoint_list(folder, &steps, &n, NULL)) return false;
    mem_free(steps);
    return n > 0;
}

/* What was copied beside the run is not the log that its file names. */
static bool check_own_log(const Options *o, const char *folder, Err *e) {
    const OptValue *log = &o->value[OPT_STEP_LOG];
    return log->source != FROM_FILE || opt_is(o, OPT_STEP_LOG, "auto") ||
           fail(e, ERR_USAGE,
                "--resume: %s/config.yaml is that of a run that was copied or moved, and names a step log in %s, which "
                "may be another run's. Give --out and this run's own --step-log",
                folder, log->text);
}

bool run_names_resume(Options *o, Err *e) {
    Str folder = {0}, base = {0};
    bool ok = true, resumes = (ON_TRAIN >> o->command & 1) && opt_given(o, OPT_RESUME);
    if (resumes && config_folder(&folder, o) && is_run(folder.data) &&
        !is_same_folder(folder.data, opt_text(o, OPT_OUT))) {
        bool same_run = find_base(&base, o, folder.data);
        if (same_run) run_names_follow(o, folder.data);
        ok = same_run || check_own_log(o, folder.data, e);
        if (!same_run && ok)
            log_line("--config: lies in the folder of a run, which goes on there (%s) and not in %s", folder.data,
                     opt_text(o, OPT_OUT));
        options_settle(o, OPT_OUT, arena_strdup(&o->arena, folder.data), "--config");
    }
    str_free(&folder);
    str_free(&base);
    return ok;
}

bool run_names_check_data(const Options *given, const char *run, Err *e) {
    const char *const *list;
    int n = opt_list(given, OPT_DATA, &list);
    if (n > 1 && file_exists(opt_text(given, OPT_DATA))) return true; /* commas in the name of one file */
    for (int i = 0; i < n; i++)
        if (!is_there(list[i]))
            return fail(e, ERR_FAIL,
                        "--run %s: was trained on %s, which is not there%s. Put it back, or write where it is now into "
                        "%s/config.yaml (data)",
                        run, list[i], list[i][0] == '/' ? "" : " (seen from the current folder)", run);
    return true;
}
