/* library.c - see library.h. */
#include "base/library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

static bool find_calls(void *handle, const LibraryCall *calls, int n) {
    for (int i = 0; i < n; i++)
        if (!(*calls[i].to = dlsym(handle, calls[i].name))) return false;
    return true;
}

void *library_open(const char *const *files, int n_files, const LibraryCall *calls, int n_calls) {
    for (int i = 0; i < n_files; i++) {
        void *handle = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        if (handle && find_calls(handle, calls, n_calls)) return handle;
        if (handle) dlclose(handle);
    }
    return NULL;
}
