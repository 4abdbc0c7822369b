/* template.h - a chat template (the part of Jinja such templates use), compiled once, rendered per conversation.
 *
 * The environment is the one chat templates are written for: trim_blocks and lstrip_blocks on, break and continue,
 * raise_exception(message), strftime_now(format), {% generation %} blocks, tojson that leaves text readable, and
 * no way to change a list or a dictionary in place. A template is untrusted: recursion, steps, memory and output
 * are bounded, and passing a bound is an ordinary refusal.
 *
 * Left out, and refused by name: inheritance and includes, recursive for blocks, *args, varargs, str.format,
 * integers of more than 64 bits, and filters that belong to web pages. Text is never marked as safe HTML. */
#ifndef DATA_TEMPLATE_H
#define DATA_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "data/tokenizer.h"

typedef struct Template Template;

/* Copies source and name. A construct outside the supported part is named in the error with its line, as
 * "name:line: ..."; inside an {% if %} it is refused only when it is reached. Gives: template_free. */
bool template_compile(Template **t, const char *source, const char *name, Err *e);
void template_free(Template *t); /* NULL is fine */

/* Renders with the variables of `vars` (a JSON object: messages, add_generation_prompt, bos_token, eos_token,
 * tools, ...; borrows) and appends to out; out is as it was when the template refuses. Any number of threads may
 * render one template at the same time. */
bool template_render(const Template *t, Str *out, const json_t *vars, Err *e);

/* The template of a model's folder: chat_template.jinja, else chat_template in tokenizer_config.json (a string, or
 * a list of {name, template}: "default" is used). *found = false and *t = NULL when there is none. Gives:
 * template_free. */
bool template_load(Template **t, bool *found, const char *folder, Err *e);

/* The special token that ends an assistant's turn, such as <|im_end|>: a model that learns by this template says it in
 * place of the end of text, also where no configuration names it. -1: there is none. */
int32_t template_turn_end(const Template *t, const Tokenizer *k);

/* The ids of a conversation (JSON array of messages) that asks for an answer; appends to out. */
bool template_encode_chat(const Template *t, const Tokenizer *k, TokenIds *out, const json_t *messages, Err *e);

#endif
