/* test_template.c - chat templates against what the reference renders (tools/make_template_fixtures.py), and what
 * is refused: with which words, at which line, and within which bounds. */
#include <stdlib.h>
#include <time.h>

#include "base/file.h"
#include "base/threads.h"
#include "data/template.h"
#include "tests/test.h"

#define FIXTURES "tests/data/templates/"

/* ---- fixtures ---- */

static uint64_t fnv1a(const Str *s) {
    uint64_t h = 0xCBF29CE484222325u;
    for (int64_t i = 0; i < s->len; i++) h = (h ^ (unsigned char)s->data[i]) * 0x100000001B3u;
    return h;
}

static bool matches(const json_t *line, bool ok, const Str *out) {
    const json_t *expected = json_object_get(line, "expected"), *hash = json_object_get(line, "fnv1a");
    if (json_is_true(json_object_get(line, "error"))) return !ok && out->len == 0;
    if (hash)
        return ok && out->len == json_integer_value(json_object_get(line, "bytes")) &&
               fnv1a(out) == strtoull(json_string_value(hash), NULL, 16);
    return ok && (size_t)out->len == json_string_length(expected) &&
           memcmp(str_text(out), json_string_value(expected), (size_t)out->len) == 0;
}

/* Renders one line with a template given by the line, by a file, or by the caller. */
static void check_line(const json_t *line, const json_t *shared, const Template *given) {
    const char *source = json_string_value(json_object_get(line, "template"));
    const char *file = json_string_value(json_object_get(line, "file"));
    const json_t *vars = json_object_get(line, "vars");
    Template *own = NULL;
    Str text = {0}, out = {0};
    Err e = {0};
    bool ok = true;
    if (file) {
        char path[300];
        snprintf(path, sizeof path, FIXTURES "%s", file);
        EXPECT_OK(file_read(path, &text, 0, &e));
        source = str_text(&text);
    }
    if (!given) ok = template_compile(&own, source, "t", &e);
    if (ok) ok = template_render(given ? given : own, &out, vars ? vars : shared, &e);
    if (!EXPECT(matches(line, ok, &out))) {
        const char *name = json_string_value(json_object_get(line, "name"));
        const char *expected = json_string_value(json_object_get(line, "expected"));
        test_note("    %s\n    gave     \"%s\"\n    expected \"%s\"", name ? name : source,
                  ok ? str_text(&out) : e.text, expected ? expected : "a refusal, or a text kept as a hash");
    }
    EXPECT(ok == (e.code == ERR_NONE));
    template_free(own);
    str_free(&text);
    str_free(&out);
}

static int check_file(const char *path, const Template *given) {
    Str text = {0};
    Err e = {0};
    int n = 0;
    json_t *shared = NULL;
    EXPECT_OK(file_read(path, &text, 0, &e));
    for (char *at = text.data, *end; at && (end = strchr(at, '\n')); at = end + 1) {
        json_t *line = json_loadb(at, (size_t)(end - at), JSON_ALLOW_NUL, NULL);
        if (!EXPECT(line != NULL)) continue;
        if (json_object_size(line) == 1)
            shared = json_incref(json_object_get(line, "vars"));
        else
            check_line(line, shared, given), n++;
        json_decref(line);
    }
    json_decref(shared);
    str_free(&text);
    return n;
}

TEST(template_small_constructs_as_the_reference) { EXPECT(check_file(FIXTURES "small.jsonl", NULL) > 500); }

TEST(template_conversations_as_the_reference) { EXPECT(check_file(FIXTURES "chat.jsonl", NULL) > 60); }

TEST(template_of_qwen25_as_the_reference) {
    const char *folder = test_assets("tokenizer-qwen2.5");
    Template *t = NULL;
    bool found = false;
    Err e = {0};
    if (!folder) return;
    EXPECT_OK(template_load(&t, &found, folder, &e));
    if (!EXPECT(found && t)) return;
    EXPECT(check_file(FIXTURES "folder.jsonl", t) == 9);
    template_free(t);
}

/* ---- helpers for single cases ---- */

/* Renders with no variables (or those of a JSON text); the result lives until the next call. */
static const char *rendered(const char *source, const char *vars_text, Err *e) {
    static Str out;
    Template *t = NULL;
    json_t *vars = vars_text ? json_loads(vars_text, 0, NULL) : json_object();
    str_free(&out);
    *e = (Err){0};
    bool ok = template_compile(&t, source, "chat", e) && template_render(t, &out, vars, e);
    template_free(t);
    json_decref(vars);
    if (!ok) str_free(&out);
    return ok ? str_text(&out) : NULL;
}

static void expect_refusal(const char *source, const char *said) {
    Err e;
    EXPECT(rendered(source, NULL, &e) == NULL);
    EXPECT(e.code == ERR_FAIL);
    if (!EXPECT(strstr(e.text, said) != NULL))
        test_note("    \"%.60s\" said \"%s\", not \"%s\"", source, e.text, said);
}

/* ---- what ends a turn ---- */

TEST(the_token_that_ends_a_turn_is_found_in_the_template) {
    static const struct {
        const char *tokenizer, *source, *piece; /* NULL: none */
    } cases[] = {
        {"tok_smollm2",
         "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
         "<|im_end|>"},
        {"tok_llama3", "{% for m in messages %}{{ m.role }}: {{ m.content | trim }} <|eot_id|>{% endfor %}",
         "<|eot_id|>"},
        {"tok_llama3", "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}", NULL}, /* no eos is known */
        {"tok_llama3", "<|begin_of_text|>{% for m in messages %}# {{ m.role }}\n{{ m.content }}\n{% endfor %}", NULL},
        {"tok_llama3", "{{ raise_exception('no') }}", NULL},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        char path[200];
        Tokenizer *k = NULL;
        Template *t = NULL;
        Err e;
        snprintf(path, sizeof path, "tests/data/%s", cases[i].tokenizer);
        EXPECT_OK(tokenizer_open(&k, path, &e));
        EXPECT_OK(template_compile(&t, cases[i].source, "chat", &e));
        int32_t want = cases[i].piece ? tokenizer_id(k, cases[i].piece) : -1;
        EXPECT(template_turn_end(t, k) == want);
        template_free(t);
        tokenizer_close(k);
    }
}

/* ---- what is said ---- */

TEST(template_refusals_name_line_and_construct) {
    expect_refusal("a\nb\n{% include 'x' %}", "chat:3: the tag 'include'");
    expect_refusal("\n\n{{ 1 | wordwrap }}", "chat:3: the filter 'wordwrap'");
    expect_refusal("{{ 1\n is wobbly }}", "chat:2: the test 'wobbly'");
    expect_refusal("{% if true %}\n{{ 1 | wordwrap }}{% endif %}", "chat:2: the filter 'wordwrap'");
    expect_refusal("\n{% for x in [1] recursive %}{% endfor %}", "chat:2: recursive");
    expect_refusal("{{ f(*x) }}", "chat:1: '*'");
    expect_refusal("{% macro f() %}{{ varargs }}{% endmacro %}", "'varargs'");
    expect_refusal("{{ 'a'.zfill(3) }}", "the method 'zfill' of a str");
    expect_refusal("{% set x = [] %}\n{{ x.append(1) }}", "chat:2: 'append' is not allowed");
    expect_refusal("{{ ''.__class__.x }}", "'__class__' is not allowed");
    expect_refusal("\n{{ messages[0].role }}", "chat:2: 'messages' is undefined");
    expect_refusal("{{ {'a': 1}.b.c }}", "'b' is not an attribute or item of this dict");
    expect_refusal("{% if a %}\n{% for x in y %}\n", "'endfor' is missing");
    expect_refusal("{% foo %}", "unknown tag 'foo'");
    expect_refusal("{% if a %}{% endfor %}", "unknown tag 'endfor'; 'elif' is expected");
    expect_refusal("ab\n{{ 'a\n }}", "chat:2: a string is not closed");
    expect_refusal("{{ '\\N{BULLET}' }}", "\\N{...}");
    expect_refusal("{{ 9223372036854775808 }}", "64 bits");
    expect_refusal("{{ 9223372036854775807 + 1 }}", "64 bits");
    expect_refusal("{{ '\xff' }}", "UTF-8");
}

TEST(template_raise_exception_carries_its_message) {
    Err e;
    EXPECT(!rendered("{{ 'x' }}\n{{ raise_exception('roles must ' ~ what) }}", "{\"what\": \"alternate\"}", &e));
    EXPECT_STR(e.text, "chat:2: roles must alternate");
}

TEST(template_render_leaves_out_alone_on_refusal) {
    Template *t = NULL;
    Str out = {0};
    Err e = {0};
    json_t *vars = json_object(), *list = json_array();
    str_add(&out, "before");
    EXPECT_OK(template_compile(&t, "abc{{ 1 / n }}", NULL, &e));
    EXPECT(!template_render(t, &out, vars, &e));
    EXPECT_STR(str_text(&out), "before");
    EXPECT(strstr(e.text, "chat template:1:") != NULL);
    json_object_set_new(vars, "n", json_integer(2));
    EXPECT(template_render(t, &out, vars, NULL));
    EXPECT_STR(str_text(&out), "beforeabc0.5");
    EXPECT(!template_render(t, &out, list, &e));
    json_decref(vars);
    json_decref(list);
    template_free(t);
    str_free(&out);
}

TEST(template_strftime_now_is_the_local_time) {
    Err e;
    char before[64], after[64];
    time_t now = time(NULL);
    struct tm local;
    strftime(before, sizeof before, "%d %b %Y, %A %j", localtime_r(&now, &local));
    const char *got = rendered("{{ strftime_now('%d %b %Y, %A %j') }}", NULL, &e);
    now = time(NULL);
    strftime(after, sizeof after, "%d %b %Y, %A %j", localtime_r(&now, &local));
    EXPECT(got && (!strcmp(got, before) || !strcmp(got, after)));
}

TEST(template_text_may_hold_a_zero) {
    Template *t = NULL;
    Str out = {0};
    Err e = {0};
    json_t *vars = json_loads("{\"s\": \"a\\u0000b\"}", JSON_ALLOW_NUL, NULL);
    EXPECT_OK(template_compile(&t, "{{ s }}{{ s|length }}{{ s|tojson }}{{ [s] }}", "t", &e));
    EXPECT_OK(template_render(t, &out, vars, &e));
    EXPECT(out.len == 24 && !memcmp(out.data, "a\0b3\"a\\u0000b\"['a\\x00b']", 24));
    json_decref(vars);
    template_free(t);
    str_free(&out);
}

/* ---- bounds ---- */

static char *repeated(const char *before, const char *what, int times, const char *after) {
    Str s = {0};
    str_add(&s, before);
    for (int i = 0; i < times; i++) str_add(&s, what);
    str_add(&s, after);
    return s.data;
}

static void expect_refusal_of(char *source, const char *said) {
    expect_refusal(source, said);
    Str owner = {.data = source};
    str_free(&owner);
}

TEST(template_source_nested_too_deeply_is_refused) {
    expect_refusal_of(repeated("{{ ", "(", 50000, ""), "nested too deeply");
    expect_refusal_of(repeated("{{ ", "not ", 50000, "1 }}"), "nested too deeply");
    expect_refusal_of(repeated("{{ ", "-", 50000, "1 }}"), "nested too deeply");
    expect_refusal_of(repeated("", "{% if 1 %}", 50000, ""), "nested too deeply");
    expect_refusal_of(repeated("{{ 1", " if 0 else 1", 50000, " }}"), "nested too deeply");
    expect_refusal_of(repeated("{{ 1", " + 1", 50000, " }}"), "deep");
    expect_refusal_of(repeated("{{ x", "|upper", 50000, " }}"), "deep");
}

TEST(template_that_does_not_end_is_refused) {
    expect_refusal("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                   "chat:1: the template");
    expect_refusal("{% macro f(x) %}{% if x %}{{ f(x-1) }}{{ f(x-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
                   "steps");
    expect_refusal("{% set x = 'a' * 9999999 %}{% for i in range(99999) %}{{ x|length }}{% endfor %}", "steps");
    expect_refusal("{{ ('a' * 999999).rfind('a' * 99999 ~ 'b' ~ 'a' * 99999) }}", "steps");
    expect_refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested more than");
}

TEST(template_that_takes_too_much_memory_is_refused) {
    expect_refusal("{{ 'x' * 99999999999 }}", "the template");
    expect_refusal("{{ [1] * 99999999999 }}", "MiB");
    expect_refusal("{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
                   "MiB");
    expect_refusal("{{ ('a' * 999999).replace('', 'b' * 999999) }}", "MiB");
    expect_refusal("{{ 'a\nb'|indent(9223372036854775807) }}", "the template");
    expect_refusal("{{ '%99999d' % 1 }}", "asks too much");
}

TEST(template_values_nested_too_deeply_are_refused) {
    static const char *const uses[] = {"ns.x", "ns.x|tojson", "ns.x == ns.y", "ns.x < ns.y", "{(ns.z): 1}"};
    for (int i = 0; i < 5; i++) {
        char source[400];
        snprintf(
            source, sizeof source,
            "{%% set ns = namespace(x=[], y=[], z=()) %%}{%% for i in range(5000) %%}{%% set ns.x, ns.y, ns.z = "
            "[ns.x], [ns.y], (ns.z,) %%}{%% endfor %%}{{ %s }}",
            uses[i]);
        expect_refusal(source, "nested more than");
    }
    expect_refusal("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "nested more than");
}

/* ---- threads ---- */

typedef struct Shared {
    const Template *t;
    const json_t *vars;
    bool same[64];
} Shared;

static void render_one(void *context, int64_t tile, int worker) {
    Shared *s = context;
    Str out = {0};
    s->same[tile] = template_render(s->t, &out, s->vars, NULL) && !strcmp(str_text(&out), "[1, 2]ab0:A 1:B 4");
    str_free(&out);
}

TEST(template_renders_in_many_threads) {
    Template *t = NULL;
    Threads *team = NULL;
    Err e = {0};
    json_t *vars = json_loads("{\"l\": [1, 2], \"w\": [\"a\", \"b\"]}", 0, NULL);
    EXPECT_OK(template_compile(
        &t,
        "{% macro f(x) %}{{ x|upper }}{% endmacro %}{% set n = namespace(c=1) %}{{ l }}{{ w|join }}"
        "{% for x in w %}{{ loop.index0 }}:{{ f(x) }} {% set n.c = n.c * 2 %}{% endfor %}{{ n.c }}",
        "t", &e));
    EXPECT_OK(threads_open(&team, 4, &e));
    Shared s = {.t = t, .vars = vars};
    threads_for(team, 64, render_one, &s);
    for (int i = 0; i < 64; i++) EXPECT(s.same[i]);
    threads_close(team);
    json_decref(vars);
    template_free(t);
}

/* ---- folders ---- */

static void put_file(const char *name, const char *text) {
    char path[300];
    Err e = {0};
    snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
    EXPECT_OK(file_write_all(path, text, (int64_t)strlen(text), &e));
}

/* What the folder's template renders, NULL when there is none or it is refused. */
static const char *loaded(bool *found, Err *e) {
    static Str out;
    Template *t = NULL;
    json_t *vars = json_object();
    str_free(&out);
    *e = (Err){0};
    bool ok = template_load(&t, found, test_tmp(), e) && t && template_render(t, &out, vars, e);
    template_free(t);
    json_decref(vars);
    if (!ok) str_free(&out);
    return ok ? str_text(&out) : NULL;
}

TEST(template_load_finds_the_template_of_a_folder) {
    bool found = true;
    Err e;
    EXPECT(!loaded(&found, &e) && !found && e.code == ERR_NONE);
    put_file("tokenizer_config.json", "{\"model_max_length\": 5}");
    EXPECT(!loaded(&found, &e) && !found && e.code == ERR_NONE);
    put_file("tokenizer_config.json", "{\"chat_template\": null}");
    EXPECT(!loaded(&found, &e) && !found && e.code == ERR_NONE);
    put_file("tokenizer_config.json", "{\"chat_template\": \"one {{ 1 }}\"}");
    EXPECT_STR(loaded(&found, &e), "one 1");
    put_file("tokenizer_config.json",
             "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"}, {\"name\": \"default\", "
             "\"template\": \"two\"}]}");
    EXPECT_STR(loaded(&found, &e), "two");
    put_file("chat_template.jinja", "{# beside #}three\n");
    EXPECT_STR(loaded(&found, &e), "three");
    EXPECT(found);
}

TEST(template_load_refuses_what_is_broken) {
    bool found;
    Err e;
    put_file("tokenizer_config.json", "{\"chat_template\": ");
    EXPECT(!loaded(&found, &e) && strstr(e.text, "tokenizer_config.json:1:"));
    put_file("tokenizer_config.json", "{\"chat_template\": 5}");
    EXPECT(!loaded(&found, &e) && strstr(e.text, "neither a string nor a list"));
    put_file("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"t\"}]}");
    EXPECT(!loaded(&found, &e) && strstr(e.text, "'default'"));
    put_file("tokenizer_config.json", "{\"chat_template\": \"a\\n{% if %}\"}");
    EXPECT(!loaded(&found, &e) && strstr(e.text, "tokenizer_config.json:2:"));
}
