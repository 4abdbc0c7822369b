/* template_encode.c - a conversation as ids, the way a model is asked for an answer. */
#include "data/template.h"

bool template_encode_chat(const Template *t, const Tokenizer *k, TokenIds *out, const json_t *messages, Err *e) {
    int32_t bos = tokenizer_bos(k), eos = tokenizer_eos(k);
    json_t *vars = json_pack("{s:O, s:b}", "messages", messages, "add_generation_prompt", 1);
    if (bos >= 0) json_object_set_new(vars, "bos_token", json_string(tokenizer_piece(k, bos)));
    if (eos >= 0) json_object_set_new(vars, "eos_token", json_string(tokenizer_piece(k, eos)));
    Str text = {0};
    bool ok = template_render(t, &text, vars, e) &&
              tokenizer_encode(k, out, str_text(&text), text.len, TOKENIZE_PLAIN, e);
    str_free(&text);
    json_decref(vars);
    return ok;
}
