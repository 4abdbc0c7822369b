/* choose.c - the names of a table in a message. */
#include "base/choose.h"

#include "base/str.h"

bool choose_name(int *which, const char *word, const char *const *names, int n, const char *what, Err *e) {
    for (*which = 0; *which < n; ++*which)
        if (str_same_word(word, names[*which])) return true;
    const char *nearest = str_nearest(word, names, n);
    Str all = {0};
    for (int i = 0; i < n; i++) str_addf(&all, "%s%s", i ? ", " : "", names[i]);
    if (nearest)
        fail(e, ERR_USAGE, "no %s is called '%s'. Did you mean %s?", what, word, nearest);
    else
        fail(e, ERR_USAGE, "no %s is called '%s'. There are: %s", what, word, str_text(&all));
    str_free(&all);
    return false;
}
