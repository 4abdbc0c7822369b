/* disk.c - maps an address of the disk pool to a byte of a file. */
#include "backend/disk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/units.h"

bool disk_open(Disk *d, const char *folder, int64_t bytes, Err *e) {
    *d = (Disk){.fd = -1};
    if (!folder || !*folder)
        return fail(e, ERR_USAGE, "what is kept on disk needs a folder: give --offload-dir DIR");
    snprintf(d->folder, sizeof d->folder, "%s", folder);
    if (!file_open_hidden(folder, &d->fd, e)) return false;
    void *base = fault_here(FAULT_MAP, "disk")
                     ? MAP_FAILED
                     : mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        const char *why = strerror(errno);
        ProcessRefusal no = process_refusal();
        fail(e, no.code, "the system refused %s of addresses for the disk pool: %s%s", units_bytes(bytes).s, why,
             no.why);
    } else {
        d->base = base;
        d->bytes = bytes;
        if (file_cut(d->fd, bytes, folder, e)) return true;
    }
    disk_close(d);
    return false;
}

void disk_close(Disk *d) {
    if (d->base) munmap(d->base, (size_t)d->bytes);
    if (d->fd >= 0 && d->folder[0]) file_close(d->fd);
    for (int64_t i = 0; i < d->n_files; i++) {
        file_close(d->file[i].fd);
        mem_free(d->file[i].path);
    }
    mem_free(d->file);
    mem_free(d->link);
    *d = (Disk){.fd = -1};
}

/* ---- links ---- */

static bool find_file(Disk *d, int *file, const char *path, Err *e) {
    for (*file = 0; *file < d->n_files; (*file)++)
        if (!strcmp(d->file[*file].path, path)) return true;
    int fd;
    if (!file_open_read(path, &fd, e)) return false;
    d->file = mem_grow(d->file, &d->cap_files, d->n_files + 1, sizeof *d->file);
    d->file[d->n_files++] = (DiskFile){mem_strdup(path), fd};
    return true;
}

/* The first link that ends behind this byte; n_links: none. */
static int64_t link_from(const Disk *d, int64_t at) {
    int64_t low = 0, high = d->n_links;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (d->link[mid].at + d->link[mid].bytes > at)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

bool disk_link(Disk *d, const void *address, const char *path, int64_t file_at, int64_t bytes, Err *e) {
    int64_t at = (const char *)address - d->base, place = link_from(d, at);
    int file;
    CHECK(disk_holds(d, address) && at + bytes <= d->bytes);
    CHECK(place == d->n_links || d->link[place].at >= at + bytes);
    if (!find_file(d, &file, path, e)) return false;
    d->link = mem_grow(d->link, &d->cap_links, d->n_links + 1, sizeof *d->link);
    memmove(d->link + place + 1, d->link + place, (size_t)(d->n_links++ - place) * sizeof *d->link);
    d->link[place] = (DiskLink){at, bytes, file_at, file};
    return true;
}

bool disk_settle(Disk *d, int64_t *own_bytes, Err *e) {
    *own_bytes = 0;
    for (int64_t at = 0, k = 0; at < d->bytes; k++) {
        int64_t end = k < d->n_links ? d->link[k].at : d->bytes;
        if (end > at) {
            if (!file_reserve(d->fd, at, end - at, d->folder, e))
                return fail_within(e, "--offload-dir: %s are to be kept on disk", units_bytes(d->bytes).s);
            *own_bytes += end - at;
        }
        at = k < d->n_links ? d->link[k].at + d->link[k].bytes : d->bytes;
    }
    return true;
}

/* ---- bytes ---- */

bool disk_read(const Disk *d, void *to, const void *from, int64_t bytes, Err *e) {
    int64_t at = (const char *)from - d->base;
    CHECK(disk_holds(d, from) && at + bytes <= d->bytes);
    for (int64_t done = 0, n; done < bytes; done += n, at += n) {
        int64_t k = link_from(d, at);
        const DiskLink *l = k < d->n_links ? &d->link[k] : NULL;
        bool linked = l && l->at <= at;
        n = MIN2(bytes - done, linked ? l->at + l->bytes - at : l ? l->at - at : bytes - done);
        bool ok = linked ? file_pread(d->file[l->file].fd, (char *)to + done, n, l->file_at + at - l->at,
                                      d->file[l->file].path, e)
                         : file_pread(d->fd, (char *)to + done, n, at, d->folder, e);
        if (!ok) return false;
    }
    return true;
}

bool disk_write(const Disk *d, const void *to, const void *from, int64_t bytes, Err *e) {
    int64_t at = (const char *)to - d->base, k = link_from(d, at);
    CHECK(disk_holds(d, to) && at + bytes <= d->bytes);
    CHECK_MSG(k == d->n_links || d->link[k].at >= at + bytes, "a file that is only read is written");
    return file_pwrite(d->fd, from, bytes, at, d->folder, e);
}
