/* clean.c - repair and truncation of texts. */
#include "grpo/clean.h"

#include <string.h>

#include "reason/journal.h"

json_t *clean_json(const char *text) {
    Str clean = {0};
    json_t *v = json_string(text);
    if (v) return v;
    journal_clean(&clean, text, (int64_t)strlen(text));
    v = json_string(str_text(&clean));
    str_free(&clean);
    return v;
}

void clean_excerpt(Str *out, const char *text, int64_t bytes, int characters) {
    Str clean = {0};
    journal_clean(&clean, text, MIN2(bytes, 4 * (int64_t)characters));
    const char *at = str_text(&clean);
    int n = 0;
    for (; *at; at++) {
        if (((unsigned char)*at & 0xc0) != 0x80 && n++ == characters) break;
        bool control = (unsigned char)*at < ' ' || *at == 127;
        str_add_char(out, control ? ' ' : *at);
    }
    if (*at || bytes > 4 * (int64_t)characters) str_add(out, "...");
    str_free(&clean);
}
