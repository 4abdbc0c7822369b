/* file.h - whole reads, atomic writes, folders. Every refusal names the path and the system's reason. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

bool file_exists(const char *path);
bool file_is_dir(const char *path);
bool file_is_special(const char *path); /* a device, a pipe, a socket, or a link to one */
bool file_size(const char *path, int64_t *bytes, Err *e);
typedef struct FilePath {
    char s[1280]; /* what is longer is cut, and so no name of a file that is there */
} FilePath;
FilePath file_in(const char *folder, const char *name); /* "folder/name" */
const char *file_last_name(const char *path); /* the last part of a path; one that ends in '/': all of it; borrows */
bool file_is_within(const char *path,
                    const char *folder);           /* it is that folder or lies in it, whatever their spellings */
bool file_same_disk(const char *a, const char *b); /* of the nearest folders there are */
int64_t file_tree_bytes(const char *path);         /* that its files take on disk; absent: 0 */
bool file_of_program(char *path, size_t size); /* the running binary; false: the system does not tell */
/* of the disk that holds it, or will: the nearest folder there is; -1: unknown */
int64_t file_free_bytes(const char *path);

/* Appends the whole file to out; refuses files over limit_bytes (0: no limit). Refused: nothing was added. */
bool file_read(const char *path, Str *out, int64_t limit_bytes, Err *e);

bool file_open_read(const char *path, int *fd, Err *e);                          /* gives fd: file_close */
typedef struct FileFacts { /* of an open file: another size or time later means that it was changed */
    int64_t bytes, changed_ns;
    int64_t at;   /* where it is read next; -1: a pipe or a device, which cannot be read at any place */
} FileFacts;
FileFacts file_facts(int fd);
bool file_seek(int fd, int64_t at, const char *path, Err *e); /* read on from there */
bool file_pread(int fd, void *to, int64_t bytes, int64_t offset, const char *path, Err *e); /* all or a refusal */
bool file_read_some(int fd, void *to, int64_t *got, int64_t room, const char *path, Err *e); /* 0: the end */
bool file_write(int fd, const void *from, int64_t bytes, const char *path, Err *e);
void file_close(int fd);

/* A file that grows: made when absent, read from its start, written at its end. */
bool file_open_append(const char *path, int *fd, Err *e);              /* gives fd: file_close */
bool file_cut(int fd, int64_t bytes, const char *path, Err *e);        /* makes it this long */
/* A file without a name on the disk of that folder, to read and write: it is gone when it is closed, however the
 * process ends. A folder that is not there is not made: the nearest one above it serves. */
bool file_open_hidden(const char *folder, int *fd, Err *e);             /* gives fd: file_close */
bool file_pwrite(int fd, const void *from, int64_t bytes, int64_t offset, const char *path, Err *e);
bool file_reserve(int fd, int64_t at, int64_t bytes, const char *path, Err *e); /* takes the room on disk now */
bool file_flush(int fd, const char *path, Err *e);                     /* to disk */

/* An atomic file: written as "<path>.tmp-<pid>", flushed to disk, then renamed. Aborted: nothing remains. */
typedef struct FileOut {
    int fd;
    char path[1024], temporary[1060];
} FileOut;
bool file_begin(FileOut *f, const char *path, Err *e);
bool file_commit(FileOut *f, Err *e); /* on failure the temporary is removed */
void file_abort(FileOut *f);
bool file_end(FileOut *f, bool ok, Err *e); /* commit, or where it is not ok abort: gives whether all is there */
bool file_write_all(const char *path, const void *data, int64_t bytes, Err *e); /* begin + write + commit */
bool file_write_str(const char *path, Str *text, Err *e);                       /* the same, and frees it */

/* The same without flushing: for what need not outlive the machine. Allocates nothing. */
bool file_replace(const char *path, const void *data, int64_t bytes, Err *e);

/* A folder that only this user can enter, in a place where everybody may make one; one that is another user's, or a
 * link, is refused. */
bool file_make_private(const char *path, Err *e);
bool file_make_dirs(const char *path, Err *e);               /* like mkdir -p */
bool file_make_parents(const char *path, Err *e);            /* of a file: the folder it lies in */
bool file_remove_tree(const char *path, Err *e);             /* absent is fine */
bool file_clear(const char *folder, bool (*goes)(const char *name), Err *e); /* removes what has such a name in it */
bool file_rename(const char *from, const char *to, Err *e);  /* and flushes the parent folder */
bool file_exchange(const char *a, const char *b, bool *possible, Err *e); /* two names at once, flushed as above; not
                                                       possible here: e is left alone */
bool file_sync_dir(const char *path, Err *e);
bool file_copy(const char *from, const char *to, Err *e);    /* atomic at the destination */

/* Names in a folder, sorted, without "." and ".."; gives names: file_list_free, or mem_free each, then the array. */
bool file_list(const char *path, char ***names, int64_t *n, Err *e);
void file_list_free(char **names, int64_t n);

#endif
