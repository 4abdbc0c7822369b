/* template_encode.c - a conversation as ids, the way a model is asked for an answer, and what ends one. */
#include <string.h>

#include "data/template.h"

static bool render(const Template *t, const Tokenizer *k, Str *out, json_t *messages, bool asks, Err *e) {
    int32_t bos = tokenizer_bos(k), eos = tokenizer_eos(k);
    json_t *vars = json_pack("{s:O, s:b}", "messages", messages, "add_generation_prompt", asks);
    if (bos >= 0) json_object_set_new(vars, "bos_token", json_string(tokenizer_piece(k, bos)));
    if (eos >= 0) json_object_set_new(vars, "eos_token", json_string(tokenizer_piece(k, eos)));
    bool ok = template_render(t, out, vars, e);
    json_decref(vars);
    return ok;
}

bool template_encode_chat(const Template *t, const Tokenizer *k, TokenIds *out, const json_t *messages, Err *e) {
    Str text = {0};
    bool ok = render(t, k, &text, (json_t *)messages, true, e) &&
              tokenizer_encode(k, out, str_text(&text), text.len, TOKENIZE_PLAIN, e);
    str_free(&text);
    return ok;
}

int32_t template_turn_end(const Template *t, const Tokenizer *k) {
    static const char answer[] = "zqanswerqz"; /* no template says it by itself */
    json_t *messages =
        json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "a", "role", "assistant", "content", answer);
    Str text = {0};
    TokenIds ids = {0};
    int32_t end = -1;
    bool ok = render(t, k, &text, messages, false, NULL);
    const char *at = ok ? strstr(str_text(&text), answer) : NULL;
    if (at) at += strlen(answer);
    ok = at && tokenizer_encode(k, &ids, at, (int64_t)strlen(at), TOKENIZE_PLAIN, NULL);
    for (int64_t i = 0; ok && end < 0 && i < ids.n; i++)
        if (tokenizer_is_special(k, ids.ids[i])) end = ids.ids[i];
    token_ids_free(&ids);
    str_free(&text);
    json_decref(messages);
    return end;
}
