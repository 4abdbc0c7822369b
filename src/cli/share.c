/* share.c - where snug's own recipes and models are, seen from its binary: share/snug beside bin/ when it is installed,
 * the source tree when it is run from there. */
#include "cli/share.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"

static bool is_there(char path[SHARE_PATH], const char *root, const char *folder, const char *name) {
    int n = snprintf(path, SHARE_PATH, "%s/%s%s%s", root, folder, *folder ? "/" : "", name);
    return n < SHARE_PATH && file_exists(path);
}

/* Takes that many names off the end of a path. */
static void go_up(char *path, int names) {
    for (char *slash; names-- && (slash = strrchr(path, '/'));) *slash = 0;
}

const char *share_find(char path[SHARE_PATH], const char *folder, const char *name) {
    static const struct {
        int up; /* from the binary */
        const char *down;
    } places[] = {{2, "/share/snug"}, {1, ""}, {3, ""}}; /* installed; ./snug; build/FLAVOUR/snug */
    char root[SHARE_PATH / 2], recipes[SHARE_PATH];
    if (!*name || *name == '/' || file_exists(name)) return name;
    bool full = str_starts(name, "recipes/") || str_starts(name, "models/");
    for (int i = 0; i < COUNT_OF(places) && file_of_program(root, sizeof root - 16); i++) {
        go_up(root, places[i].up);
        size_t used = strlen(root);
        snprintf(root + used, sizeof root - used, "%s", places[i].down);
        bool ours = is_there(recipes, root, "", "recipes");
        if (ours && is_there(path, root, full ? "" : folder, name)) return path;
    }
    return name;
}
