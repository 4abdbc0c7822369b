/* snug.c - runs the built program for tests. */
#include "tests/snug.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/test.h"

const char *snug_device(void) {
    const char *device = getenv("SNUG_DEVICE");
    return device && *device ? device : NULL;
}

static bool goes_to_device(const char *arguments) {
    bool computes =
        !strncmp(arguments, "train ", 6) || !strncmp(arguments, "eval ", 5) || !strncmp(arguments, "generate ", 9);
    return snug_device() && computes && !strstr(arguments, "--device");
}

Ran snug_run(const char *format, ...) {
    Str command = {0};
    char arguments[8000];
    va_list ap;
    va_start(ap, format);
    vsnprintf(arguments, sizeof arguments, format, ap);
    va_end(ap);
    const char *binary = getenv("SNUG");
    char out[200], err[200];
    snprintf(out, sizeof out, "%s/ran.out", test_tmp());
    snprintf(err, sizeof err, "%s/ran.err", test_tmp());
    str_addf(&command, "%s %s", binary ? binary : "./snug", arguments);
    if (goes_to_device(arguments)) str_addf(&command, " --device %s --deterministic", snug_device());
    str_addf(&command, " >%s 2>%s", out, err);
    int status = system(str_text(&command));
    Ran r = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1};
    file_read(out, &r.out, 0, NULL);
    file_read(err, &r.err, 0, NULL);
    str_free(&command);
    return r;
}

void ran_free(Ran *r) {
    str_free(&r->out);
    str_free(&r->err);
}

json_t *ran_json(const Ran *r) {
    const char *text = str_text(&r->out), *last = text;
    for (const char *c = text; *c; c++)
        if (*c == '\n' && c[1]) last = c + 1;
    return json_loads(last, 0, NULL);
}

/* ---- pages ---- */

static bool has_no_end(const char *name, size_t n) {
    static const char *const names[] = {"meta", "input", "br", "hr", "img", "!doctype"};
    for (int i = 0; i < COUNT_OF(names); i++)
        if (strlen(names[i]) == n && !strncmp(names[i], name, n)) return true;
    return false;
}

/* From behind a tag's name to behind its '>'; NULL: the attributes are not well formed. *alone: "/>". */
static const char *skip_attributes(const char *at, bool *alone) {
    *alone = false;
    for (;;) {
        at += strspn(at, " \t\n");
        if (*at == '>') return at + 1;
        if (*at == '/' && at[1] == '>') return *alone = true, at + 2;
        size_t n = strcspn(at, " \t\n=>/\"'<");
        if (!n) return NULL;
        at += n;
        if (*at != '=') continue;
        if (at[1] != '"' || !(at = strchr(at + 2, '"'))) return NULL;
        at++;
    }
}

const char *html_fault(const char *page) {
    enum { DEEP = 64 };
    static char said[120];
    struct { const char *name; size_t n; } open[DEEP];
    int depth = 0;
    for (const char *at = strchr(page, '<'); at; at = strchr(at, '<')) {
        bool end = at[1] == '/', alone;
        const char *name = at + 1 + end;
        size_t n = strcspn(name, " \t\n/>");
        snprintf(said, sizeof said, "%.100s", at);
        if (!(at = skip_attributes(name + n, &alone))) return said;
        if (end && (!depth-- || open[depth].n != n || strncmp(open[depth].name, name, n))) return said;
        if (end || alone || has_no_end(name, n)) continue;
        if (depth == DEEP) return said;
        open[depth].name = name, open[depth++].n = n;
        bool raw = (n == 6 && !strncmp(name, "script", n)) || (n == 5 && !strncmp(name, "style", n));
        if (raw && !(at = strstr(at, n == 6 ? "</script" : "</style"))) return said;
    }
    return depth ? "tags are left open at the end" : NULL;
}

int snug_metrics(const char *folder, const char *kind, const char *key, double *values, int room) {
    char path[1200];
    Str text = {0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    int n = 0;
    if (!file_read(path, &text, 0, NULL)) return 0;
    for (char *save = NULL, *line = strtok_r(text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *j = json_loads(line, 0, NULL);
        const char *k = json_string_value(json_object_get(j, "kind"));
        if (k && !strcmp(k, kind) && n < room) values[n++] = json_number_value(json_object_get(j, key));
        json_decref(j);
    }
    str_free(&text);
    return n;
}

void snug_make_job(SnugJob job) {
    Str text = {0};
    for (int r = 0; r < 64; r++) {
        str_add(&text, "{\"ids\":[");
        for (int i = 0, n = 20 + r / 2; i < n; i++)
            str_addf(&text, i ? ",%d" : "%d", (int)(rng_fold(9, (uint64_t)(r * 100 + i % 7)) % SNUG_JOB_VOCAB));
        str_add(&text, "]}\n");
    }
    file_write_all(test_path("rows.jsonl"), text.data, text.len, NULL);
    str_free(&text);
    Ran r = snug_run(
        "init --model qwen2.5-0.5b --out %s --dtype fp32 --set num_hidden_layers=%d --set hidden_size=%d "
        "--set num_attention_heads=4 --set num_key_value_heads=2 --set intermediate_size=%d --set vocab_size=%d",
        test_path("m"), job.layers, job.hidden, job.ffn, SNUG_JOB_VOCAB);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
}
