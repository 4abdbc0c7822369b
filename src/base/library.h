/* library.h - a shared library that is loaded when it is first needed, so that the program starts without it.
 *
 *     const LibraryCall calls[] = {{"el_init", (void **)&l->init}, ...};
 *     void *handle = library_open(names, COUNT_OF(names), calls, COUNT_OF(calls));   // NULL: not here, or too old */
#ifndef BASE_LIBRARY_H
#define BASE_LIBRARY_H

typedef struct LibraryCall {
    const char *name;
    void **to;
} LibraryCall;

/* The first of the files that is there and has all calls: fills them and gives its handle for dlclose. */
void *library_open(const char *const *files, int n_files, const LibraryCall *calls, int n_calls);

#endif
