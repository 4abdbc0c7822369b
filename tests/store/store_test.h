/* store_test.h - small helpers that the tests of this folder share. */
#ifndef STORE_TEST_H
#define STORE_TEST_H

#include <stdbool.h>
#include <stdint.h>

#define FIXTURES "tests/store/fixtures/"

const char *tmp_path(const char *name);                        /* under test_tmp(); one of four rotating buffers */
void put_file(const char *path, const void *data, int64_t n);  /* plain, not atomic */
void put_text(const char *path, const char *text);
bool same_bytes(const char *a, const char *b);                 /* two files hold the same */
int64_t count_names(const char *folder);                       /* entries; 0 when there is no folder */
int64_t count_open_files(void);

/* No file may grow beyond this many bytes: stands for a full disk. 0: as before. */
void limit_files(int64_t bytes);

#endif
