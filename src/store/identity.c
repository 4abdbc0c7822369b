/* identity.c - which bytes of a model's files are looked at. */
#include "store/identity.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"

enum { SAMPLES = 16, SAMPLE_BYTES = 4096, WHOLE_BYTES = SAMPLES * SAMPLE_BYTES };

static uint64_t fold_bytes(uint64_t key, const char *bytes, int64_t n) {
    key = rng_fold(key, (uint64_t)n);
    for (int64_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, (size_t)MIN2(8, n - i));
        key = rng_fold(key, word);
    }
    return key;
}

static bool fold_weights(uint64_t *key, const char *path, Err *e) {
    int fd;
    int64_t bytes;
    char block[SAMPLE_BYTES];
    if (!file_size(path, &bytes, e) || !file_open_read(path, &fd, e)) return false;
    bool ok = true;
    *key = rng_fold(*key, (uint64_t)bytes);
    int64_t n = bytes <= WHOLE_BYTES ? (bytes + SAMPLE_BYTES - 1) / SAMPLE_BYTES : SAMPLES;
    for (int64_t i = 0; ok && i < n; i++) {
        int64_t from = bytes <= WHOLE_BYTES ? i * SAMPLE_BYTES : (bytes - SAMPLE_BYTES) / (SAMPLES - 1) * i;
        if (bytes > WHOLE_BYTES && i == SAMPLES - 1) from = bytes - SAMPLE_BYTES;
        int64_t part = MIN2(SAMPLE_BYTES, bytes - from);
        ok = file_pread(fd, block, part, from, path, e);
        if (ok) *key = fold_bytes(*key, block, part);
    }
    file_close(fd);
    return ok;
}

static bool fold_file(uint64_t *key, const char *path, Err *e) {
    Str text = {0};
    if (!file_read(path, &text, 0, e)) return false;
    *key = fold_bytes(*key, str_text(&text), text.len);
    str_free(&text);
    return true;
}

static bool fold_named(uint64_t *key, const char *folder, const char *name, Err *e) {
    static const char *const whole[] = {"config.json", "adapter_config.json", "tokenizer.json",
                                        "tokenizer_config.json", "chat_template.jinja"};
    char path[1400];
    bool text = false, weights = str_ends(name, ".safetensors");
    for (int i = 0; i < COUNT_OF(whole); i++) text |= !strcmp(name, whole[i]);
    if (!text && !weights) return true;
    *key = fold_bytes(*key, name, (int64_t)strlen(name));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return weights ? fold_weights(key, path, e) : fold_file(key, path, e);
}

bool identity_of(uint64_t *out, const char *folder, Err *e) {
    char **names;
    int64_t n;
    if (!file_list(folder, &names, &n, e)) return false;
    bool ok = true;
    *out = 0;
    for (int64_t i = 0; i < n; i++) {
        ok = ok && fold_named(out, folder, names[i], e);
        mem_free(names[i]);
    }
    mem_free(names);
    return ok;
}
