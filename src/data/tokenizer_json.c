/* tokenizer_json.c - reads tokenizer.json in two parts: its two long lists straight from the text, the rest as a
 * tree.
 *
 * Vocabulary and merges are nearly all of the file. As a tree they would be some 300,000 objects, several times
 * the size of the file, to be thrown away at once; read directly they cost one pass. The tree is made of the same
 * text with the two lists emptied, so everything outside them is checked by the JSON library. */
#include "data/tokenizer_int.h"

#include <string.h>

/* ---- the tree ---- */

const char *tok_json_type(const json_t *component) {
    const char *type = json_string_value(json_object_get(component, "type"));
    return type ? type : "?";
}

bool tok_json_text(const json_t *o, const char *key, const char **text, Err *e) {
    *text = json_string_value(json_object_get(o, key));
    return *text || fail(e, ERR_FAIL, "\"%s\" is missing or not a string", key);
}

bool tok_json_bool(const json_t *o, const char *key, bool otherwise, bool *value, Err *e) {
    const json_t *j = json_object_get(o, key);
    *value = j && !json_is_null(j) ? json_is_true(j) : otherwise;
    return !j || json_is_null(j) || json_is_boolean(j) ||
           fail(e, ERR_FAIL, "\"%s\" is neither true nor false", key);
}

bool tok_json_count(const json_t *o, const char *key, int64_t *value, Err *e) {
    const json_t *j = json_object_get(o, key);
    *value = json_integer_value(j);
    return (json_is_integer(j) && *value >= 0) || fail(e, ERR_FAIL, "\"%s\" is missing or not a count", key);
}

/* ---- a list, read from the text ---- */

static void skip_space(TokList *l) {
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\n' || *l->at == '\r' || *l->at == '\t')) l->at++;
}

/* Steps over white space and then c; false when something else is there, which is not stepped over. */
static bool take(TokList *l, char c) {
    skip_space(l);
    if (l->at >= l->end || *l->at != c) return false;
    l->at++;
    return true;
}

static bool take_hex4(TokList *l, int32_t *value) {
    *value = 0;
    for (int i = 0; i < 4; i++, l->at++) {
        char c = l->at < l->end ? *l->at : 0;
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c - 'A' + 10;
        if (digit < 0 || digit > 15 || (digit < 10 && !(c >= '0' && c <= '9'))) return false;
        *value = *value << 4 | digit;
    }
    return true;
}

/* What follows a backslash. */
static bool take_escape(TokList *l, Str *out) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char c = l->at < l->end ? *l->at++ : 0;
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) return str_add_char(out, meant[letter - letters]), true;
    int32_t point, low;
    if (c != 'u' || !take_hex4(l, &point) || point == 0) return false;
    if (point >= 0xd800 && point < 0xdc00) { /* the first half of a pair */
        if (l->end - l->at < 6 || l->at[0] != '\\' || l->at[1] != 'u') return false;
        l->at += 2;
        if (!take_hex4(l, &low) || low < 0xdc00 || low > 0xdfff) return false;
        point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    } else if (point >= 0xdc00 && point < 0xe000) {
        return false;
    }
    char bytes[4];
    str_add_bytes(out, bytes, tok_utf8_encode(point, bytes));
    return true;
}

bool tok_list_string(TokList *l, Str *out) {
    if (!take(l, '"')) return false;
    while (l->at < l->end) {
        const char *from = l->at;
        while (l->at < l->end && *l->at != '"' && *l->at != '\\' && (unsigned char)*l->at >= 0x20) l->at++;
        str_add_bytes(out, from, l->at - from);
        if (l->at == l->end || (unsigned char)*l->at < 0x20) return false;
        if (*l->at++ == '"') return true;
        if (!take_escape(l, out)) return false;
    }
    return false;
}

bool tok_list_integer(TokList *l, int64_t *value) {
    skip_space(l);
    const char *from = l->at;
    for (*value = 0; l->at < l->end && *l->at >= '0' && *l->at <= '9' && l->at - from < 18; l->at++)
        *value = *value * 10 + (*l->at - '0');
    return l->at > from && (*from != '0' || l->at - from == 1);
}

bool tok_list_open(TokList *l, char bracket) {
    return take(l, bracket);
}

/* Whether another entry follows; sets broken when there is neither an entry nor the end. */
bool tok_list_more(TokList *l, char bracket, bool first) {
    if (take(l, bracket)) return false;
    l->broken = !first && !take(l, ',');
    return !l->broken;
}

bool tok_list_colon(TokList *l) {
    return take(l, ':');
}

/* ---- finding the lists ---- */

/* Steps over one value, without looking closely: brackets and strings only. */
static void skip_value(TokList *l) {
    int64_t depth = 0;
    skip_space(l);
    while (l->at < l->end) {
        char c = *l->at;
        if (c == '"') {
            for (l->at++; l->at < l->end && *l->at != '"'; l->at++)
                if (*l->at == '\\') l->at++;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth-- == 0) return; /* the end of what the value stands in */
        } else if (depth == 0 && c == ',') {
            return;
        }
        l->at = MIN2(l->at + 1, l->end);
        if (depth == 0 && (c == '"' || c == '}' || c == ']')) return;
    }
}

/* Walks the keys of the object at l. Each value whose key is among the names is noted; with one name the walk ends
 * there, inside the object, for the value may be long. The library sees to it that no key is there twice. */
static void find_values(TokList *l, const char *const *names, TokList *values, int n) {
    if (!take(l, '{')) return;
    do {
        skip_space(l);
        const char *key = l->at;
        skip_value(l);
        int64_t key_bytes = l->at - key;
        if (!take(l, ':')) return;
        skip_space(l);
        int which = 0;
        while (which < n && !(key_bytes == (int64_t)strlen(names[which]) + 2 && str_starts(key + 1, names[which])))
            which++;
        if (which < n) values[which] = *l;
        if (which < n && n == 1) return;
        skip_value(l);
        if (which < n) values[which].end = l->at;
    } while (take(l, ','));
}

/* Copies the text, with `[]` or `{}` for each list. */
static void copy_without(Str *out, const char *text, int64_t n, const TokList *a, const TokList *b) {
    const TokList *lists[] = {a->at < b->at ? a : b, a->at < b->at ? b : a};
    const char *from = text;
    for (int i = 0; i < 2; i++) {
        if (!lists[i]->at) continue;
        str_add_bytes(out, from, lists[i]->at - from);
        str_add(out, *lists[i]->at == '{' ? "{}" : "[]");
        from = lists[i]->end;
    }
    str_add_bytes(out, from, text + n - from);
}

bool tok_json_read(json_t **root, TokList *vocab, TokList *merges, const Str *file, Err *e) {
    static const char *const model_name[] = {"model"}, *const list_names[] = {"vocab", "merges"};
    TokList all = {.at = str_text(file), .end = str_text(file) + file->len}, model = {0}, lists[2] = {{0}};
    if (!tok_utf8_valid(all.at, file->len)) return fail(e, ERR_FAIL, "not UTF-8");
    find_values(&(TokList){.at = all.at, .end = all.end}, model_name, &model, 1);
    if (model.at) find_values(&model, list_names, lists, 2);
    for (int i = 0; i < 2; i++)
        if (lists[i].at && (lists[i].at == lists[i].end || *lists[i].at != "{["[i])) lists[i] = (TokList){0};
    *vocab = lists[0];
    *merges = lists[1];
    Str rest = {0};
    json_error_t where;
    copy_without(&rest, all.at, file->len, vocab, merges);
    *root = json_loadb(str_text(&rest), (size_t)rest.len, JSON_REJECT_DUPLICATES, &where);
    str_free(&rest);
    if (!*root) return fail(e, ERR_FAIL, "line %d: %s. Was the copy cut short?", where.line, where.text);
    if (json_is_object(*root)) return true;
    json_decref(*root);
    *root = NULL;
    return fail(e, ERR_FAIL, "not a JSON object");
}
