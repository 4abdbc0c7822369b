/* disk.h - disk offload: a memory pool backed by files. It has addresses like any other pool, but is read and written
 * by calls.
 *
 * The addresses are reserved and stand for bytes of a file; nothing can touch them. Parts may be linked to files that
 * are there already (a model's own weights), which are only read; the rest lies in one file without a name in a
 * folder, so that nothing of it remains, however the process ends. */
#ifndef BACKEND_DISK_H
#define BACKEND_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct DiskLink { /* bytes of the pool that are a part of another file */
    int64_t at, bytes, file_at;
    int file;             /* of Disk.file */
} DiskLink;

typedef struct DiskFile {
    char *path; /* owns */
    int fd;
} DiskFile;

typedef struct Disk {
    char *base;    /* of the addresses; NULL: not open */
    int64_t bytes;
    int fd;        /* the file without a name */
    char folder[1024];
    DiskFile *file; /* owns */
    int64_t n_files, cap_files;
    DiskLink *link; /* owns: by `at` */
    int64_t n_links, cap_links;
} Disk;

bool disk_open(Disk *d, const char *folder, int64_t bytes, Err *e); /* folder NULL: refused */
void disk_close(Disk *d);

static inline bool disk_holds(const Disk *d, const void *p) {
    return d->base && (const char *)p >= d->base && (const char *)p < d->base + d->bytes;
}

/* Those bytes are a part of that file from here on; it stays open. */
bool disk_link(Disk *d, const void *at, const char *path, int64_t file_at, int64_t bytes, Err *e);
/* Takes the room on disk of everything that is not linked, now: a full disk is refused here. Gives how many bytes. */
bool disk_settle(Disk *d, int64_t *own_bytes, Err *e);

/* From several threads at once, as long as the ranges do not meet. */
bool disk_read(const Disk *d, void *to, const void *from, int64_t bytes, Err *e);
bool disk_write(const Disk *d, const void *to, const void *from, int64_t bytes, Err *e); /* not where it is linked */

#endif
