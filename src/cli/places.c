/* places.c - which options name what is written and which name what is read, and that the two are not the same. */
#include "cli/places.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

/* Commands whose --out is a file, and those that make the folder it lies in. */
enum {
    OUT_IS_FILE = ON_GENERATE | ON_REASON | ON_PROBLEMS | ON_AMR | ON_AMR_PARSE | ON_GRPO_EVAL,
    MAKES_PARENTS = ON_GENERATE | ON_REASON | ON_AMR_PARSE | ON_DOCTOR,
    SHOWS_WITHOUT_OUT = ON_GENERATE | ON_PROBLEMS | ON_AMR,
    KEEPS_INPUTS = ON_TRAIN | ON_PREPARE | ON_UNLEARN_EVAL, /* of their folder they replace only what is their own */
};

static const OptId read_by_name[] = {
    OPT_MODEL,        OPT_TOKENIZER,   OPT_ADAPTER,         OPT_DATA,      OPT_EVAL_DATA, OPT_PROMPTS,
    OPT_RUN,          OPT_FORGET,      OPT_CONFIG,          OPT_REFUSALS,  OPT_TUNED,     OPT_MACHINE,
    OPT_RETAIN_MODEL, OPT_RETAIN_LOGS, OPT_REFERENCE_MODEL, OPT_SENTENCES, OPT_CHECK_AUDIT,
};

static bool is_on(const Options *o, uint32_t commands) { return commands >> o->command & 1; }

static bool refuse_input(OptId output, const char *path, const char *input, Err *e) {
    return fail(e, ERR_USAGE, "--%s %s: would replace %s, which this command reads; choose another name",
                option_rows[output].name, path, input);
}

/* Links and spellings do not matter; a folder that is replaced must not hold an input either. */
static bool spares_inputs(const Options *o, OptId output, const char *path, Err *e) {
    for (int i = 0; i < COUNT_OF(read_by_name); i++) {
        const OptValue *v = &o->value[read_by_name[i]];
        for (int k = 0; k < MAX2(v->n, 1) && v->set; k++) {
            const char *input = v->list ? v->list[k] : v->text;
            if (file_is_within(input, path)) return refuse_input(output, path, input, e);
        }
    }
    for (int i = 0; i < o->n_positional && o->command != CMD_MONITOR; i++)
        if (file_is_within(o->positional[i], path)) return refuse_input(output, path, o->positional[i], e);
    return true;
}

static bool can_be_file(const Options *o, OptId id, const char *path, Err *e) {
    const char *name = option_rows[id].name, *slash = strrchr(path, '/');
    char folder[1000];
    if (file_is_dir(path)) return fail(e, ERR_FAIL, "--%s %s: is a folder, a file was expected", name, path);
    if (id != OPT_CSV && file_is_special(path)) { /* the rows of monitor are appended, the others take the name */
        bool shows = id == OPT_OUT && is_on(o, SHOWS_WITHOUT_OUT);
        return fail(e, ERR_FAIL, "--%s %s: is a device or a pipe, and a file would take its place; name a file%s", name,
                    path, shows ? ", or leave it out: standard output then has the lines" : "");
    }
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 0, path);
    if (!folder[0] || is_on(o, MAKES_PARENTS) || file_is_dir(folder)) return true;
    return fail(e, ERR_FAIL, "--%s %s: there is no folder %s", name, path, folder);
}

static bool check_file(const Options *o, OptId id, Err *e) {
    const char *path = opt_text(o, id);
    if (!path || !strcmp(path, "-") || !strcmp(path, "none")) return true;
    return can_be_file(o, id, path, e) && spares_inputs(o, id, path, e);
}

bool places_check(const Options *o, Err *e) {
    static const OptId files[] = {OPT_ITEMS, OPT_SVG, OPT_HTML, OPT_ATTENTION_REPORT, OPT_CSV, OPT_WRITE};
    for (int i = 0; i < COUNT_OF(files); i++)
        if (!check_file(o, files[i], e)) return false;
    const char *out = opt_text(o, OPT_OUT);
    if (!out || is_on(o, ON_PLAN)) return true; /* plan accepts what train is given, and writes none of it */
    if (is_on(o, OUT_IS_FILE)) return check_file(o, OPT_OUT, e);
    if (file_exists(out) && !file_is_dir(out))
        return fail(e, ERR_FAIL, "--out %s: is a file, a folder was expected", out);
    return is_on(o, KEEPS_INPUTS) || spares_inputs(o, OPT_OUT, out, e);
}
