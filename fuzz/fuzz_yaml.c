/* fuzz_yaml.c - an options file: what is accepted is saved as YAML that reads back the same. */
#include <string.h>

#include "cli/options.h"
#include "fuzz/fuzz.h"

static bool parse(Options *o, Command c, const char *path, Err *e) {
    char file[300];
    snprintf(file, sizeof file, "%s", path);
    char *argv[] = {"--config", file};
    return options_parse(o, c, 2, argv, e);
}

FUZZ(yaml, 2 * MIB, 256) {
    Options o, again;
    Err e;
    fuzz_write("recipe.yaml", data, size);
    static const Command commands[] = {CMD_TRAIN, CMD_INIT}; /* nearly all rows of the table, and --set */
    for (int i = 0; i < COUNT_OF(commands); i++) {
        Command c = commands[i];
        Str first = {0}, second = {0};
        if (parse(&o, c, fuzz_path("recipe.yaml"), &e)) {
            options_write_yaml(&first, &o);
            bool ok = parse(&again, c, fuzz_write("again.yaml", str_text(&first), first.len), &e);
            CHECK_MSG(ok, "%s\n%s", e.text, str_text(&first));
            options_write_yaml(&second, &again);
            CHECK_MSG(!strcmp(str_text(&first), str_text(&second)), "\n%s\n%s", first.data, second.data);
            options_free(&again);
        }
        options_free(&o);
        str_free(&first);
        str_free(&second);
    }
}
