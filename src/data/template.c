/* template.c - the template engine's entry point: a chat template from a source or a model's folder to rendered text.
 * */
#include "data/template.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/template_int.h"

bool template_compile(Template **t, const char *source, const char *name, Err *e) {
    Template *made = MEM_NEW(Template, 1);
    Tokens tokens = {0};
    arena_init(&made->arena, "template");
    made->name = arena_strdup(&made->arena, name ? name : "chat template");
    if (tpl_lex(&tokens, &made->arena, tpl_text(source), made->name, e))
        made->body = tpl_parse(&made->arena, tokens.at, made->name, e);
    mem_free(tokens.at);
    *t = made->body ? made : NULL;
    if (!made->body) template_free(made);
    return *t != NULL;
}

void template_free(Template *t) {
    if (!t) return;
    arena_free(&t->arena);
    mem_free(t);
}

bool template_render(const Template *t, Str *out, const json_t *vars, Err *e) {
    if (!json_is_object(vars)) return fail(e, ERR_FAIL, "%s: the variables are not a JSON object", t->name);
    int64_t before = out->len;
    Render r = {.t = t, .vars = vars, .out = out, .e = e, .line = 1};
    arena_init(&r.arena, "template render");
    Scope top = {.parent = &r.context};
    tpl_exec(&r, &top, t->body->list);
    arena_free(&r.arena);
    if (r.failed && out->data) {
        out->len = before;
        out->data[before] = 0;
    }
    return !r.failed;
}

/* ---- from a folder ---- */

enum { CONFIG_MOST = 64 << 20, SOURCE_MOST = 16 << 20 };

static bool read_source(Str *source, bool *found, const char *path, Err *e) {
    *found = file_exists(path);
    return !*found || file_read(path, source, SOURCE_MOST, e);
}

/* The template that `value` (the chat_template of a configuration) holds, NULL when there is none. */
static bool pick(const char **source, const json_t *value, const char *path, Err *e) {
    *source = NULL;
    if (!value || json_is_null(value)) return true;
    *source = json_string_value(value);
    if (*source) return true;
    if (!json_is_array(value)) return fail(e, ERR_FAIL, "%s: chat_template is neither a string nor a list", path);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && !strcmp(name, "default")) *source = json_string_value(json_object_get(one, "template"));
    }
    return *source || fail(e, ERR_FAIL, "%s: chat_template is a list without a template named 'default'", path);
}

static bool load_config(Template **t, bool *found, const char *path, Err *e) {
    Str text = {0};
    json_error_t problem;
    const char *source = NULL;
    *found = file_exists(path);
    if (!*found) return true;
    if (!file_read(path, &text, CONFIG_MOST, e)) return false;
    json_t *config = json_loadb(str_text(&text), (size_t)text.len, 0, &problem);
    str_free(&text);
    if (!config) return fail(e, ERR_FAIL, "%s:%d: %s", path, problem.line, problem.text);
    bool ok = pick(&source, json_object_get(config, "chat_template"), path, e);
    *found = source != NULL;
    if (ok && source) ok = template_compile(t, source, path, e);
    json_decref(config);
    return ok;
}

bool template_load(Template **t, bool *found, const char *folder, Err *e) {
    char path[1200];
    Str source = {0};
    *t = NULL;
    snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
    bool ok = read_source(&source, found, path, e);
    if (ok && *found) ok = template_compile(t, str_text(&source), path, e);
    str_free(&source);
    if (!ok || *found) return ok;
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    return load_config(t, found, path, e);
}
