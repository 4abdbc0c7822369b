/* text_stream.c - which bytes of a streamed answer are final. */
#include "gen/text_stream.h"

#include <string.h>

void text_stream_clear(TextStream *s) {
    str_clear(&s->text);
    s->from = s->read = s->streamed = 0;
}

void text_stream_free(TextStream *s) {
    str_free(&s->text);
    str_free(&s->before);
    str_free(&s->now);
}

static bool ends_in_half_a_character(const Str *s) { /* decoding writes U+FFFD for it */
    return s->len >= 3 && !memcmp(s->data + s->len - 3, "\xef\xbf\xbd", 3);
}

static bool find_stop(TextStream *s, StopTexts stops, int64_t old) {
    int64_t at = -1;
    for (int i = 0; i < stops.n; i++) {
        int64_t from = MAX2(0, old - (int64_t)strlen(stops.text[i]) + 1);
        const char *hit =
            memmem(str_text(&s->text) + from, (size_t)(s->text.len - from), stops.text[i], strlen(stops.text[i]));
        if (hit && (at < 0 || hit - s->text.data < at)) at = hit - s->text.data;
    }
    if (at < 0) return false;
    s->text.len = at;
    s->text.data[at] = 0;
    return true;
}

bool text_stream_add(TextStream *s, bool *stopped, const Tokenizer *t, const int32_t *ids, int64_t n, StopTexts stops,
                     bool last, Err *e) {
    *stopped = false;
    str_clear(&s->before);
    str_clear(&s->now);
    if (n == s->read) return true;
    if (!tokenizer_decode(t, &s->before, ids + s->from, s->read - s->from, true, e) ||
        !tokenizer_decode(t, &s->now, ids + s->from, n - s->from, true, e))
        return false;
    if (ends_in_half_a_character(&s->now) && !last) return true;
    int64_t old = s->text.len;
    if (s->now.len > s->before.len) str_add_bytes(&s->text, s->now.data + s->before.len, s->now.len - s->before.len);
    s->from = s->read;
    s->read = n;
    *stopped = find_stop(s, stops, old);
    return true;
}

const char *text_stream_take(TextStream *s, int64_t *bytes, StopTexts stops, bool last) {
    int64_t held = 0;
    for (int i = 0; i < stops.n && !last; i++)
        for (int64_t k = MIN2((int64_t)strlen(stops.text[i]) - 1, s->text.len - s->streamed); k > held; k--)
            if (!memcmp(s->text.data + s->text.len - k, stops.text[i], (size_t)k)) held = k;
    const char *at = str_text(&s->text) + s->streamed;
    *bytes = s->text.len - held - s->streamed;
    s->streamed += *bytes;
    return at;
}
