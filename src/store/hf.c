/* hf.c - the layout of Hugging Face model folders and of their cache on disk. */
#include "store/hf.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"

enum { PATH_BYTES = 2048, REVISION_BYTES = 200 };

static const char *const side_files[] = {
    "tokenizer.json",     "tokenizer_config.json",  "special_tokens_map.json", "vocab.json",
    "merges.txt",         "added_tokens.json",      "tokenizer.model",         "chat_template.jinja",
    "chat_template.json", "generation_config.json",
};

static bool name_is_plain(const char *s, size_t n) { /* letters, digits, '-', '_' and single dots inside */
    if (n == 0 || s[0] == '.' || s[0] == '-') return false;
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i])) return false;
        if (s[i] == '.' && i + 1 < n && s[i + 1] == '.') return false;
    }
    return true;
}

/* "owner/name" or "name" as its folder in the cache: models--owner--name. */
static bool cache_name(char *out, size_t size, const char *model) {
    const char *slash = strchr(model, '/');
    size_t owner = slash ? (size_t)(slash - model) : 0;
    const char *name = slash ? slash + 1 : model;
    if (slash && !name_is_plain(model, owner)) return false;
    if (!name_is_plain(name, strlen(name))) return false;
    int n = slash ? snprintf(out, size, "models--%.*s--%s", (int)owner, model, name)
                  : snprintf(out, size, "models--%s", name);
    return n < (int)size;
}

/* The revision that refs/main names. */
static bool read_revision(char *out, size_t size, const char *entry, Err *e) {
    char path[PATH_BYTES + 16];
    Str text = {0};
    snprintf(path, sizeof path, "%s/refs/main", entry);
    bool ok = file_read(path, &text, REVISION_BYTES, e);
    if (ok) {
        while (text.len && isspace((unsigned char)text.data[text.len - 1])) text.data[--text.len] = 0;
        if (!name_is_plain(str_text(&text), (size_t)text.len) || text.len >= (int64_t)size)
            ok = fail(e, ERR_FAIL, "%s: does not hold a revision", path);
        else memcpy(out, text.data, (size_t)text.len + 1);
    } else {
        fail_within(e, "the cached model has no main revision; name the snapshot's folder instead");
    }
    str_free(&text);
    return ok;
}

/* A folder that is no model's, but one of a run or of an adapter: people name it after training. */
static bool refuse_folder(const char *folder, Err *e) {
    char path[PATH_BYTES + 256];
    snprintf(path, sizeof path, "%s/model/config.json", folder);
    if (file_exists(path))
        return fail(e, ERR_FAIL, "%s: has no config.json; it is the folder of a run, whose result is %s/model", folder,
                    folder);
    static const char *const places[] = {"", "/adapter"};
    for (int i = 0; i < COUNT_OF(places); i++) {
        snprintf(path, sizeof path, "%s%s/adapter_config.json", folder, places[i]);
        if (file_exists(path))
            return fail(e, ERR_FAIL, "%s: has no config.json; it holds an adapter: give --adapter %s%s, and --model "
                        "with the model that it was trained on", folder, folder, places[i]);
    }
    return fail(e, ERR_FAIL, "%s: has no config.json. Is it a model's folder, and was the download complete?", folder);
}

static bool use_folder(char *out_path, size_t size, const char *folder, Err *e) {
    char config[PATH_BYTES + 256];
    snprintf(config, sizeof config, "%s/config.json", folder);
    if (!file_exists(config)) return refuse_folder(folder, e);
    if (snprintf(out_path, size, "%s", folder) >= (int)size)
        return fail(e, ERR_FAIL, "%s: the path is too long", folder);
    return true;
}

bool hf_resolve(char *out_path, size_t size, bool *found, const char *model, const char *cache, Err *e) {
    char name[512], entry[PATH_BYTES], revision[REVISION_BYTES + 1], snapshot[PATH_BYTES + 220];
    *found = false;
    if (file_is_dir(model)) return *found = use_folder(out_path, size, model, e);
    if (!cache || !cache_name(name, sizeof name, model)) return true;
    if (snprintf(entry, sizeof entry, "%s/%s", cache, name) >= (int)sizeof entry)
        return fail(e, ERR_FAIL, "%s: the cache's path is too long", entry);
    if (!file_is_dir(entry)) return true;
    if (!read_revision(revision, sizeof revision, entry, e)) return false;
    snprintf(snapshot, sizeof snapshot, "%s/snapshots/%s", entry, revision);
    return *found = use_folder(out_path, size, snapshot, e);
}

int64_t hf_side_bytes(const char *from_folder, int *files) {
    char path[PATH_BYTES];
    int64_t sum = 0, bytes;
    for (int i = 0; i < COUNT_OF(side_files); i++) {
        snprintf(path, sizeof path, "%s/%s", from_folder, side_files[i]);
        if (!file_size(path, &bytes, NULL)) continue;
        sum += bytes;
        ++*files;
    }
    return sum;
}

bool hf_copy_side_files(const char *from_folder, const char *to_folder, Err *e) {
    char from[PATH_BYTES], to[PATH_BYTES];
    for (int i = 0; i < COUNT_OF(side_files); i++) {
        if (snprintf(from, sizeof from, "%s/%s", from_folder, side_files[i]) >= (int)sizeof from ||
            snprintf(to, sizeof to, "%s/%s", to_folder, side_files[i]) >= (int)sizeof to)
            return fail(e, ERR_FAIL, "%s: the path is too long", from_folder);
        if (file_exists(from) && !file_copy(from, to, e)) return false;
    }
    return true;
}
