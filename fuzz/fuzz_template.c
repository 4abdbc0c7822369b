/* fuzz_template.c - a chat template, compiled and rendered for a fixed conversation. A template is a program: what it
 * may take is not a multiple of its size but the bounds of template_int.h (256 MB of values, 128 MB of text), lowered
 * where many templates are tried. */
#include <string.h>

#include "base/mem.h"
#include "data/template.h"
#include "fuzz/fuzz.h"

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be <brief>.\"},"
    " {\"role\": \"user\", \"content\": \"  Gr\\u00fc\\u00dfe \\ud83d\\ude00\\n\"},"
    " {\"role\": \"assistant\", \"content\": \"Hi\", \"tool_calls\": [{\"function\": {\"name\": \"f\","
    " \"arguments\": {\"x\": 1.5, \"y\": [true, null, -7]}}}]},"
    " {\"role\": \"user\", \"content\": \"\"}],"
    " \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"tools\": null, \"n\": 3}";

#ifdef FUZZING
enum { CONSTANT_BYTES = 6 << 20 };
#else
enum { CONSTANT_BYTES = 700 << 20 };
#endif

FUZZ(template, CONSTANT_BYTES, 1024) {
    static json_t *vars;
    if (!vars) vars = json_loads(conversation, 0, NULL);
    CHECK(vars);
    char *source = mem_alloc(size + 1);
    if (size) memcpy(source, data, (size_t)size);
    Template *t = NULL;
    Str out = {0};
    Err e;
    if (template_compile(&t, source, "chat", &e)) {
        str_add(&out, "before");
        if (!template_render(t, &out, vars, &e)) CHECK(!strcmp(out.data, "before"));
    }
    CHECK(t || e.text[0]);
    template_free(t);
    str_free(&out);
    mem_free(source);
}
