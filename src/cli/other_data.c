/* other_data.c - axolotl's lists of data sets (`datasets:`, `test_datasets:`) as files of ours: what an entry may say
 * of a file whose rows are told by their fields, and what is refused because it would mean other rows. */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "cli/options_int.h"

#define BY_FIELDS "rows are told by their fields (docs/data.md)"
#define RENAME "rename the field in the rows first (jq)"

/* Keys of an entry beside path and data_files. Every scalar of the value must be one of these words. */
static const struct {
    const char *key, *values; /* NULL: any */
    const char *why;          /* of another value */
} keys[] = {
    {"type", "alpaca|alpaca:chat|chat_template|sharegpt|sharegpt:chat|completion|chatml|json|text",
     BY_FIELDS ": alpaca, chat_template, sharegpt and completion are. Prompts of another layout are made with "
               "--prompt-template and --answer-template"},
    {"ds_type", "json|jsonl|csv|text", "files are JSON lines, .csv, .tsv or .txt; convert it to JSON lines first"},
    {"split|train_on_split", "train",
     "a file has no splits; give the file of that split as path, and one to evaluate on under test_datasets"},
    {"field_messages", "messages|conversations|conversation", RENAME},
    {"message_field_role|message_property_role", "role|from", RENAME},
    {"message_field_content|message_property_content", "content|value", RENAME},
    {"message_property_mappings", "role|from|content|value", RENAME},
    {"roles", "system|user|human|assistant|gpt|chatgpt|bot|model|tool|observation",
     "roles are those of chat templates and of ShareGPT; rename them in the rows first (jq)"},
    {"roles_to_train", "assistant|gpt", "answers are trained on; --score last trains on the last one alone"},
    {"train_on_eos", "turn", "the mark behind each answer that is trained on is learned, and no other"},
    {"shards", "1", "a share of the rows is taken by --max-samples N"},
    {"drop_system_message", "false", "take the system messages out of the rows first (jq)"},
    {"conversation|chat_template|chat_template_jinja", NULL, NULL}, /* the model's own */
    {"name|revision|trust_remote_code|preprocess_shards|shards_idx", NULL, NULL},
};

typedef struct DataList {
    Options *o;
    yaml_document_t *doc;
    const char *path; /* of the YAML file */
    OptId to;
    const char *field; /* of `completion`: the column of text; NULL: not said yet */
} DataList;

static const char *text_of(const yaml_node_t *node) {
    return node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "";
}

static bool refuse(const DataList *l, const yaml_node_t *at, Err *e, const char *key, const char *why) {
    const char *value = text_of(at);
    return fail(e, ERR_USAGE, "%s:%d: %s%s%s: %s", l->path, (int)at->start_mark.line + 1, key, *value ? " " : "", value,
                why);
}

static bool is_one_of(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *at = words; *at; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == n && !strncmp(at, word, n)) return true;
    return false;
}

static bool is_unset(const yaml_node_t *node) {
    return node->type == YAML_SCALAR_NODE && (!*text_of(node) || is_one_of("null|~", text_of(node)));
}

/* The first scalar of a value, a list or a map of lists that is not among the words; NULL: all are. */
static const yaml_node_t *stranger(yaml_document_t *doc, const yaml_node_t *node, const char *words, int depth) {
    const yaml_node_t *found = NULL;
    if (node->type == YAML_SCALAR_NODE) return is_unset(node) || is_one_of(words, text_of(node)) ? NULL : node;
    if (depth > 1) return node;
    if (node->type == YAML_SEQUENCE_NODE)
        for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top && !found; i++)
            found = stranger(doc, yaml_document_get_node(doc, *i), words, depth + 1);
    if (node->type == YAML_MAPPING_NODE)
        for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top && !found; p++)
            found = stranger(doc, yaml_document_get_node(doc, p->value), words, depth + 1);
    return found;
}

static bool put_file(DataList *l, const yaml_node_t *at, const char *file, Err *e) {
    char origin[300];
    snprintf(origin, sizeof origin, "%.240s:%d", l->path, (int)at->start_mark.line + 1);
    return options_put(l->o, &(OptHit){.id = l->to}, file, FROM_FILE, origin, e);
}

/* A file of data_files: as it stands, or in the folder of path, as the datasets library has it. */
static bool put_data_file(DataList *l, const yaml_node_t *file, const char *path, Err *e) {
    const char *name = text_of(file);
    if (!*name) return refuse(l, file, e, "data_files", "the name of a file, or a list of names, is expected");
    const char *inside = arena_printf(&l->o->arena, "%s/%s", path, name);
    return put_file(l, file, !file_exists(name) && file_exists(inside) ? inside : name, e);
}

static bool take_key(DataList *l, const char *key, const yaml_node_t *value, Err *e) {
    if (!strcmp(key, "field")) {
        if (is_unset(value)) return true;
        if (l->field && strcmp(l->field, text_of(value)))
            return refuse(l, value, e, key, "another entry names another column, and --text-field is one");
        l->field = text_of(value);
        if (!options_belongs(&option_rows[OPT_TEXT_FIELD], l->o->command) || !strcmp(l->field, "text")) return true;
        char origin[300];
        snprintf(origin, sizeof origin, "%.240s:%d", l->path, (int)value->start_mark.line + 1);
        return options_put(l->o, &(OptHit){.id = OPT_TEXT_FIELD}, l->field, FROM_FILE, origin, e);
    }
    for (int i = 0; i < COUNT_OF(keys); i++) {
        if (!is_one_of(keys[i].key, key)) continue;
        const yaml_node_t *other = keys[i].values ? stranger(l->doc, value, keys[i].values, 0) : NULL;
        return !other || refuse(l, other, e, key, keys[i].why);
    }
    return refuse(l, value, e, key, "no such key is known of an entry of datasets; " BY_FIELDS ", so leave it out");
}

static bool take_entry(DataList *l, const yaml_node_t *entry, Err *e) {
    const yaml_node_t *path = NULL, *files = NULL;
    if (entry->type == YAML_SCALAR_NODE && *text_of(entry)) return put_file(l, entry, text_of(entry), e);
    if (entry->type != YAML_MAPPING_NODE)
        return refuse(l, entry, e, "datasets", "an entry such as '- path: train.jsonl' is expected");
    for (yaml_node_pair_t *p = entry->data.mapping.pairs.start; p < entry->data.mapping.pairs.top; p++) {
        const char *key = text_of(yaml_document_get_node(l->doc, p->key));
        const yaml_node_t *value = yaml_document_get_node(l->doc, p->value);
        if (!strcmp(key, "path")) path = value;
        else if (!strcmp(key, "data_files") && !is_unset(value)) files = value;
        else if (strcmp(key, "data_files") && !take_key(l, key, value, e)) return false;
    }
    if (!path || !*text_of(path))
        return refuse(l, entry, e, "datasets", "an entry has no path: the name of a file or of a folder");
    if (!files) return put_file(l, path, text_of(path), e);
    if (files->type != YAML_SEQUENCE_NODE) return put_data_file(l, files, text_of(path), e);
    for (yaml_node_item_t *i = files->data.sequence.items.start; i < files->data.sequence.items.top; i++)
        if (!put_data_file(l, yaml_document_get_node(l->doc, *i), text_of(path), e)) return false;
    return true;
}

bool other_data_take(Options *o, void *document, const void *sequence, const char *path, OptId to, Err *e) {
    DataList l = {.o = o, .doc = document, .path = path, .to = to};
    const yaml_node_t *list = sequence;
    options_forget(o, to); /* a list from a file replaces an earlier file's */
    for (yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top; i++)
        if (!take_entry(&l, yaml_document_get_node(l.doc, *i), e)) return false;
    return true;
}
