/* zlib.c - the binding to zlib: two functions that have never changed. */
#include "base/zlib.h"

#include <dlfcn.h>

#include "base/mem.h"

typedef unsigned long BoundFn(unsigned long bytes);
typedef int CompressFn(unsigned char *to, unsigned long *to_bytes, const unsigned char *from, unsigned long bytes);

static void *find(const char *name) {
    static void *library;
    if (!library) library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

int64_t zlib_bytes(const char *text, int64_t bytes) {
    BoundFn *bound = (BoundFn *)(intptr_t)find("compressBound");
    CompressFn *compress = (CompressFn *)(intptr_t)find("compress");
    if (!bound || !compress) return -1;
    unsigned long most = bound((unsigned long)bytes);
    unsigned char *to = mem_alloc((int64_t)most);
    int status = compress(to, &most, (const unsigned char *)text, (unsigned long)bytes);
    mem_free(to);
    return status ? -1 : (int64_t)most;
}
