/* options_yaml.c - options as a YAML file: a map of names to values, flat or in the sections of other tools, read
 * with file and line for every refusal, written so that it reads back to the same values. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <utf8proc.h>
#include <yaml.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/options_int.h"
#include "data/source.h"

enum { LARGEST_BYTES = 1 << 20 }; /* a recipe is a page; anything larger is another file by mistake */

typedef struct Reader {
    Options *o;
    const char *path;
    yaml_document_t doc;
    const char *section;       /* "training": inside this map; NULL: at the top level */
    bool nested;               /* inside a map that is a value: it holds no further one */
    int first_line[OPT_COUNT]; /* where this file set the option; 0: not yet */
} Reader;

static int line_of(const yaml_node_t *node) {
    return (int)node->start_mark.line + 1;
}

static bool refuse(const Reader *r, const yaml_node_t *at, Err *e, const char *what) {
    return fail(e, ERR_USAGE, "%s:%d: %s", r->path, line_of(at), what);
}

/* A scalar's text; NULL after a refusal. Borrows from the document. */
static const char *scalar_text(const Reader *r, const yaml_node_t *node, Err *e) {
    if (node->type == YAML_MAPPING_NODE)
        refuse(r, node, e, "a nested map: options stand at the top level, for example 'lora-rank: 16'");
    else if (node->type != YAML_SCALAR_NODE)
        refuse(r, node, e, "a list where a single value is expected");
    else if (strlen((const char *)node->data.scalar.value) != node->data.scalar.length)
        refuse(r, node, e, "a value holds a NUL character");
    else
        return (const char *)node->data.scalar.value;
    return NULL;
}

static bool is_null(const yaml_node_t *node) {
    const char *text = (const char *)node->data.scalar.value;
    if (node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    return !*text || !strcmp(text, "~") || !strcasecmp(text, "null");
}

static bool put_sequence(Reader *r, const OptHit *hit, const yaml_node_t *node, const char *origin, Err *e) {
    const OptRow *row = &option_rows[hit->id];
    if (row->type != OPT_LIST && row->type != OPT_PAIRS)
        return fail(e, ERR_USAGE, "%s: %s takes one value, not a list", origin, row->name);
    options_forget(r->o, hit->id); /* a list from a file replaces an earlier file's */
    for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
        const char *text = scalar_text(r, yaml_document_get_node(&r->doc, *i), e);
        if (!text || !options_put(r->o, hit, text, FROM_FILE, origin, e)) return false;
    }
    return true;
}

static bool take_foreign(Reader *r, const char *where, const char *name, const yaml_node_t *value,
                         const char *origin, Err *e) {
    bool plural = value->type != YAML_SCALAR_NODE && elsewhere_kind(r->o->command, name) == ELSEWHERE_VALUE;
    const char *text = is_null(value) ? NULL : plural ? "..." : scalar_text(r, value, e); /* a list or map of theirs */
    if (!text && !is_null(value)) return false;
    bool known = elsewhere_kind(r->o->command, name) != ELSEWHERE_UNKNOWN;
    return (known && !text) || elsewhere_put(r->o, where, name, text ? text : "", FROM_FILE, origin, e);
}

static bool take_map(Reader *r, const yaml_node_t *map, Err *e);

/* ---- sections: model (with gsa), training, data, logging ---- */

static bool is_section(const Reader *r, const char *name) {
    static const char *const names[] = {"model", "training", "data", "logging"};
    if (r->section) return !strcmp(r->section, "model") && !strcmp(name, "gsa");
    for (int i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

/* What the model's section says about training. Its file may count indexer_warmup_steps all the same. */
static bool take_model_switches(Reader *r, const yaml_node_t *map, Err *e) {
    const char *whole = "model.use-indexer-warmup";
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = yaml_document_get_node(&r->doc, p->key),
                          *value = yaml_document_get_node(&r->doc, p->value);
        const char *name = scalar_text(r, key, e);
        if (!name) return false;
        if (value->type == YAML_MAPPING_NODE && !strcmp(name, "gsa") && !take_model_switches(r, value, e)) return false;
        if (!str_same_word(name, "use-indexer-warmup") || elsewhere_kind(r->o->command, whole) == ELSEWHERE_UNKNOWN)
            continue;
        char where[300], origin[300];
        snprintf(origin, sizeof origin, "%.240s:%d", r->path, line_of(key));
        snprintf(where, sizeof where, "%.296s: ", origin);
        if (!take_foreign(r, where, whole, value, origin, e)) return false;
    }
    return true;
}

/* The model's own values make a config.json: init sets them, other commands read that of --model. */
static bool take_section(Reader *r, const char *name, const yaml_node_t *map, const char *origin, Err *e) {
    bool init = r->o->command == CMD_INIT, model = !strcmp(name, "model");
    const char *outer = r->section;
    OptHit hit;
    if (model && !init) {
        log_line(
            "%s: taken and not needed: the model is that of --model; `snug init --config %s` makes its folder",
            origin, r->path);
        return take_model_switches(r, map, e);
    }
    if (model && r->o->value[OPT_MODEL].source < FROM_FILE) {
        CHECK(options_lookup(&hit, CMD_INIT, "model"));
        if (!options_put(r->o, &hit, "gsa-512m", FROM_FILE, origin, e)) return false;
    }
    if (!outer) r->section = name;
    bool ok = take_map(r, map, e);
    r->section = outer;
    return ok;
}

/* A scalar as it stands in JSON; NULL after a refusal. Gives. */
static json_t *scalar_json(const Reader *r, yaml_node_item_t item, Err *e) {
    const yaml_node_t *node = yaml_document_get_node((yaml_document_t *)&r->doc, item);
    const char *text = scalar_text(r, node, e);
    bool plain = text && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    json_t *value = plain ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    return value || !text ? value : json_string(text);
}

static bool add_elements(json_t *list, const Reader *r, const yaml_node_t *node, Err *e) {
    for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++)
        if (json_array_append_new(list, scalar_json(r, *i, e))) return false;
    return true;
}

static bool add_members(json_t *map, const Reader *r, const yaml_node_t *node, Err *e) {
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const char *key = scalar_text(r, yaml_document_get_node((yaml_document_t *)&r->doc, p->key), e);
        if (!key || json_object_set_new(map, key, scalar_json(r, p->value, e))) return false;
    }
    return true;
}

/* What --set takes: a list or a map as config.json has it. NULL after a refusal. */
static const char *model_text(const Reader *r, const yaml_node_t *node, Err *e) {
    if (node->type == YAML_SCALAR_NODE) return scalar_text(r, node, e);
    bool list = node->type == YAML_SEQUENCE_NODE; /* sparse_layers: [0, 2]; rope_scaling: {type: ntk, factor: 2} */
    json_t *value = list ? json_array() : json_object();
    bool ok = list ? add_elements(value, r, node, e) : add_members(value, r, node, e);
    char *dumped = ok ? json_dumps(value, JSON_COMPACT) : NULL;
    const char *text = dumped ? arena_strdup(&r->o->arena, dumped) : NULL;
    mem_free(dumped);
    json_decref(value);
    return text;
}

static bool take_model_value(Reader *r, const char *name, const yaml_node_t *value, const char *origin, Err *e) {
    const char *text = is_null(value) ? NULL : model_text(r, value, e);
    OptHit hit;
    if (!text) return is_null(value);
    CHECK(options_lookup(&hit, CMD_INIT, "set"));
    return options_put(r->o, &hit, arena_printf(&r->o->arena, "%s=%s", name, text), FROM_FILE, origin, e);
}

/* betas: [0.9, 0.95] */
static bool take_betas(Reader *r, const yaml_node_t *list, const char *origin, Err *e) {
    static const char *const names[] = {"beta1", "beta2"};
    if (list->data.sequence.items.top - list->data.sequence.items.start != COUNT_OF(names))
        return refuse(r, list, e, "betas: two numbers are expected, for example [0.9, 0.95]");
    for (int i = 0; i < COUNT_OF(names); i++) {
        const char *text = scalar_text(r, yaml_document_get_node(&r->doc, list->data.sequence.items.start[i]), e);
        OptHit hit;
        CHECK(options_lookup(&hit, CMD_TRAIN, names[i]));
        if (!text || (options_belongs(&option_rows[hit.id], r->o->command) &&
                      !options_put(r->o, &hit, text, FROM_FILE, origin, e)))
            return false;
    }
    return true;
}

/* axolotl's adapter: qlora says what adapters are made, not where one lies. */
static bool is_adapter_kind(const yaml_node_t *value) {
    const char *text = value->type == YAML_SCALAR_NODE ? (const char *)value->data.scalar.value : "";
    return (!strcmp(text, "lora") || !strcmp(text, "qlora")) && !file_exists(text);
}

/* axolotl's datasets and test_datasets: lists of maps. */
static bool is_data_list(const Reader *r, const char *name, const yaml_node_t *value, OptId *to) {
    bool tests = str_same_word(name, "test-datasets");
    *to = tests ? OPT_EVAL_DATA : OPT_DATA;
    return !r->section && !r->nested && value->type == YAML_SEQUENCE_NODE &&
           (tests || str_same_word(name, "datasets"));
}

static bool take_data_list(Reader *r, const char *name, OptId to, const yaml_node_t *key, const yaml_node_t *list,
                           Err *e) {
    if (r->first_line[to])
        return fail(e, ERR_USAGE, "%s:%d: %s: %s is already set in line %d", r->path, line_of(key), name,
                    option_rows[to].name, r->first_line[to]);
    r->first_line[to] = line_of(key);
    return !options_belongs(&option_rows[to], r->o->command) || other_data_take(r->o, &r->doc, list, r->path, to, e);
}

/* A key that belongs to another command is passed over, so that one recipe serves train, plan and eval. */
static bool take_entry(Reader *r, const yaml_node_t *key, const yaml_node_t *value, Err *e) {
    const char *name = scalar_text(r, key, e);
    char where[300], origin[300];
    OptHit hit;
    OptId to;
    if (!name) return false;
    if (is_data_list(r, name, value, &to)) return take_data_list(r, name, to, key, value, e);
    snprintf(origin, sizeof origin, "%.240s:%d", r->path, line_of(key));
    snprintf(where, sizeof where, "%.296s: ", origin);
    if (value->type == YAML_MAPPING_NODE && is_section(r, name)) return take_section(r, name, value, origin, e);
    if (r->section) {
        const char *whole = arena_printf(&r->o->arena, "%s.%s", r->section, name);
        if (elsewhere_kind(r->o->command, whole) != ELSEWHERE_UNKNOWN)
            return take_foreign(r, where, whole, value, origin, e);
        if (!strcmp(r->section, "model")) return take_model_value(r, name, value, origin, e);
        if (!strcmp(name, "betas") && value->type == YAML_SEQUENCE_NODE) return take_betas(r, value, origin, e);
    }
    if (value->type == YAML_MAPPING_NODE && !r->nested && elsewhere_is_object(r->o->command, name)) {
        r->nested = true;
        bool ok = take_map(r, value, e);
        r->nested = false;
        return ok;
    }
    bool theirs = !r->nested && elsewhere_kind(r->o->command, name) == ELSEWHERE_VALUE;
    if (value->type == YAML_MAPPING_NODE && !theirs) return scalar_text(r, value, e) != NULL;
    if (!options_lookup(&hit, r->o->command, name)) return take_foreign(r, where, name, value, origin, e);
    if (hit.id == OPT_CONFIG || hit.id == OPT_HELP ||
        (hit.id == OPT_SET && r->o->command != CMD_INIT && r->o->command != CMD_CONVERT))
        return fail(e, ERR_USAGE, "%s%s is for the command line, not for a file", where, name);
    bool is_off = hit.is_switch && value->type == YAML_SCALAR_NODE &&
                  !strcasecmp((const char *)value->data.scalar.value, "false");
    if (is_off && !hit.off[0]) return true; /* fp16: false beside bf16: true */
    if (is_off && options_off_says_nothing(r->o, &hit, "false", FROM_FILE)) return true;
    if (is_null(value)) return true;
    if (hit.id == OPT_ADAPTER && is_adapter_kind(value))
        return elsewhere_put(r->o, where, "adapter-kind", (const char *)value->data.scalar.value, FROM_FILE,
                             origin, e);
    if (r->first_line[hit.id])
        return fail(e, ERR_USAGE, "%s%s: already set in line %d%s%s", where, name, r->first_line[hit.id],
                    str_same_word(name, option_rows[hit.id].name) ? "" : "; it is another name of ",
                    str_same_word(name, option_rows[hit.id].name) ? "" : option_rows[hit.id].name);
    bool yields = is_off && option_rows[hit.id].off; /* to what says more, further on */
    if (!yields) r->first_line[hit.id] = line_of(key);
    if (!options_belongs(&option_rows[hit.id], r->o->command)) return true;
    if (value->type == YAML_SEQUENCE_NODE) return put_sequence(r, &hit, value, origin, e);
    const char *text = scalar_text(r, value, e);
    if (text && r->o->value[hit.id].source == FROM_FILE) options_forget(r->o, hit.id);
    return text && options_put(r->o, &hit, text, FROM_FILE, origin, e);
}

static bool take_map(Reader *r, const yaml_node_t *map, Err *e) {
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        yaml_node_t *key = yaml_document_get_node(&r->doc, p->key);
        if (!take_entry(r, key, yaml_document_get_node(&r->doc, p->value), e)) return false;
    }
    return true;
}

static bool take_document(Reader *r, Err *e) {
    yaml_node_t *root = yaml_document_get_root_node(&r->doc);
    if (!root || is_null(root)) return true; /* an empty file sets nothing */
    if (root->type != YAML_MAPPING_NODE) return refuse(r, root, e, "'name: value' lines are expected");
    return other_config_check(&r->doc, root, r->path, e) && take_map(r, root, e);
}

static bool refuse_syntax(const Reader *r, const yaml_parser_t *parser, Err *e) {
    int line = (int)(parser->problem_mark.line ? parser->problem_mark.line : parser->context_mark.line) + 1;
    if (parser->error == YAML_READER_ERROR)
        return fail(e, ERR_FAIL, "%s: byte %lld: %s", r->path, (long long)parser->problem_offset,
                    parser->problem ? parser->problem : "unreadable");
    return fail(e, ERR_FAIL, "%s:%d: not valid YAML: %s%s%s", r->path, line,
                parser->problem ? parser->problem : "unreadable", parser->context ? ", " : "",
                parser->context ? parser->context : "");
}

static bool read_documents(Reader *r, yaml_parser_t *parser, Err *e) {
    for (int n = 0;; n++) {
        if (!yaml_parser_load(parser, &r->doc)) return refuse_syntax(r, parser, e);
        const yaml_node_t *root = yaml_document_get_root_node(&r->doc);
        bool last = !root, ok = true;
        if (root && n) ok = refuse(r, root, e, "a second document; one file holds one configuration");
        if (root && !n) ok = take_document(r, e);
        yaml_document_delete(&r->doc);
        if (!ok || last) return ok;
    }
}

/* What a run saved (options_write_yaml) is read by the command that runs it: another would stumble over some option. */
static bool check_saved_by(const Options *o, const char *path, const char *text, Err *e) {
    char by[16];
    const char *own = command_rows[o->command].name;
    int end = 0;
    sscanf(text, "# snug %15[a-z], as resolved.%n", by, &end);
    bool both_train = end && (ON_TRAIN >> o->command & 1) && (!strcmp(by, "train") || !strcmp(by, "grpo"));
    return !both_train || !strcmp(by, own) ||
           fail(e, ERR_USAGE, "--config %s: is that of a run of `snug %s`, not of `snug %s`: snug %s --config %s", path,
                by, own, by, path);
}

bool options_read_yaml(Options *o, const char *path, Err *e) {
    Str text = {0};
    Reader r = {.o = o, .path = path};
    yaml_parser_t parser;
    if (file_is_dir(path))
        return fail(e, ERR_FAIL, "--config %s: is a folder; that of a run has a config.yaml: --config %s/config.yaml",
                    path, path);
    bool ok = source_read_text(path, &text, LARGEST_BYTES, e);
    ok = ok && check_saved_by(o, path, str_text(&text), e);
    if (ok) {
        CHECK(yaml_parser_initialize(&parser));
        yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
        int64_t mark = str_mark(str_text(&text), text.len);
        yaml_parser_set_input_string(&parser, (const unsigned char *)str_text(&text) + mark, (size_t)(text.len - mark));
        ok = read_documents(&r, &parser, e);
        yaml_parser_delete(&parser);
    }
    str_free(&text);
    return ok;
}

/* ---- writing ---- */

/* Texts that any YAML reader takes as a plain string. */
static bool is_plain(const char *text) {
    static const char *const words[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
    const char *safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    for (int i = 0; i < COUNT_OF(words); i++)
        if (!strcasecmp(text, words[i])) return false;
    bool begins_well = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/") > 0;
    return begins_well && !text[strspn(text, safe)];
}

static void add_quoted(Str *out, const char *text) {
    utf8proc_int32_t c;
    str_add_char(out, '"');
    for (utf8proc_ssize_t n; *text; text += n) {
        n = utf8proc_iterate((const utf8proc_uint8_t *)text, -1, &c);
        CHECK(n > 0); /* values are checked when they are put */
        bool breaks_lines = c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff ||
                            (c & 0xfffe) == 0xfffe;
        if (c == '"' || c == '\\')
            str_addf(out, "\\%c", (char)c);
        else if (c == '\n')
            str_add(out, "\\n");
        else if (c == '\t')
            str_add(out, "\\t");
        else if (breaks_lines)
            str_addf(out, "\\U%08X", (unsigned)c);
        else
            str_add_bytes(out, text, n);
    }
    str_add_char(out, '"');
}

static void add_text(Str *out, const char *text) {
    if (is_plain(text))
        str_add(out, text);
    else
        add_quoted(out, text);
}

static void add_value(Str *out, const OptRow *row, const OptValue *v) {
    bool number = row->type == OPT_FLAG || row->type == OPT_INT || row->type == OPT_REAL;
    if (number) {
        str_add(out, v->text);
    } else if (row->type == OPT_LIST) {
        for (int i = 0; i < v->n; i++) {
            str_add(out, i ? ", " : "[");
            add_text(out, v->list[i]);
        }
        str_add_char(out, ']');
    } else {
        add_text(out, v->text);
    }
}

void options_write_yaml(Str *out, const Options *o) {
    str_addf(out, "# snug %s, as resolved. `snug %s --config THIS_FILE` repeats it; flags override.\n",
             command_rows[o->command].name, command_rows[o->command].name);
    for (int i = 0; i < OPT_COUNT; i++) {
        const OptRow *row = &option_rows[i];
        const OptValue *v = &o->value[i];
        bool open = row->left_open && v->source == FROM_DEFAULT;
        if (!options_belongs(row, o->command) || !v->set || row->once || open) continue;
        str_addf(out, "%s: ", row->name);
        add_value(out, row, v);
        str_add_char(out, '\n');
    }
}
