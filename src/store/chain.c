/* chain.c - what the digest of a line is computed from. */
#include "store/chain.h"

#include <string.h>

static const char key[] = ",\"chain\":\"";

static void digest(char link[SHA256_HEX], const Chain *before, const char *text, int64_t bytes) {
    Sha256 s;
    sha256_begin(&s);
    sha256_add(&s, before->link, (int64_t)strlen(before->link));
    sha256_add(&s, text, bytes);
    sha256_end_hex(&s, link);
}

void chain_close(Chain *c, Str *line, int64_t from) {
    char link[SHA256_HEX];
    digest(link, c, line->data + from, line->len - from);
    memcpy(c->link, link, sizeof link);
    str_add(line, key);
    str_add(line, link);
    str_add(line, "\"}\n");
}

bool chain_check(Chain *c, const char *line, int64_t bytes, Err *e) {
    int64_t tail = (int64_t)(sizeof key - 1) + 2 * SHA256_BYTES + 2, text = bytes - tail;
    char link[SHA256_HEX];
    if (text <= 0 || memcmp(line + text, key, sizeof key - 1) || memcmp(line + bytes - 2, "\"}", 2))
        return fail(e, ERR_FAIL, "has no hash chain at its end: it is no line of this log, or was changed");
    digest(link, c, line, text);
    if (memcmp(link, line + text + (int64_t)sizeof key - 1, 2 * SHA256_BYTES))
        return fail(
            e, ERR_FAIL,
            "does not follow from the lines before it (hash chain): one of them was changed, taken out or moved");
    memcpy(c->link, link, sizeof link);
    return true;
}
