/* test_disk.c - an address of the disk pool is the right byte of the right file, across the borders of what is
 * linked. */
#include "backend/disk.h"
#include "base/file.h"
#include "base/mem.h"
#include "tests/test.h"

enum { BYTES = 1 << 20, LINKS = 3 };

static char byte_at(int64_t i) {
    return (char)(i * 2654435761u >> 13);
}

TEST(the_disk_pool_reads_what_was_written_and_what_is_linked) {
    static const struct {
        int64_t at, bytes, file_at;
    } link[LINKS] = {{300000, 5000, 1000}, {4096, 8192, 0}, {12288, 100, 777}}; /* the last two touch */
    Disk d;
    Err e = {0};
    char *model = mem_alloc(20000), *wanted = mem_alloc(BYTES), *got = mem_alloc(BYTES);
    for (int64_t i = 0; i < 20000; i++) model[i] = (char)(byte_at(i) ^ 85);
    for (int64_t i = 0; i < BYTES; i++) wanted[i] = byte_at(i);
    EXPECT_OK(file_write_all(test_path("model"), model, 20000, &e));
    EXPECT_OK(disk_open(&d, test_path("folder"), BYTES, &e));
    EXPECT(disk_holds(&d, d.base) && disk_holds(&d, d.base + BYTES - 1) && !disk_holds(&d, d.base + BYTES));
    for (int k = 0; k < LINKS; k++) {
        EXPECT_OK(disk_link(&d, d.base + link[k].at, test_path("model"), link[k].file_at, link[k].bytes, &e));
        memcpy(wanted + link[k].at, model + link[k].file_at, (size_t)link[k].bytes);
    }
    int64_t own = 0, linked = 5000 + 8192 + 100;
    EXPECT_OK(disk_settle(&d, &own, &e));
    EXPECT(own == BYTES - linked && d.n_files == 1);
    EXPECT_OK(disk_write(&d, d.base, wanted, 4096, &e));
    EXPECT_OK(disk_write(&d, d.base + 12388, wanted + 12388, 300000 - 12388, &e));
    EXPECT_OK(disk_write(&d, d.base + 305000, wanted + 305000, BYTES - 305000, &e));
    EXPECT_OK(disk_read(&d, got, d.base, BYTES, &e)); /* over all borders */
    EXPECT(!memcmp(got, wanted, BYTES));
    for (int64_t i = 0; i < 2000; i++) { /* small reads around the borders */
        int64_t at = link[i % LINKS].at + (i % 7 < 3 ? 0 : link[i % LINKS].bytes) - i % 50, n = 1 + i % 90;
        EXPECT_OK(disk_read(&d, got, d.base + at, n, &e));
        EXPECT(!memcmp(got, wanted + at, (size_t)n));
    }
    EXPECT(!file_exists(test_path("folder"))); /* nothing has a name, not even a folder that was not there */
    disk_close(&d);
    mem_free(model), mem_free(wanted), mem_free(got);
}

TEST(a_linked_file_that_ends_too_early_is_named) {
    Disk d;
    Err e = {0};
    char got[200];
    EXPECT_OK(file_write_all(test_path("model"), got, 100, &e));
    EXPECT(!disk_open(&d, NULL, BYTES, &e) && strstr(e.text, "--offload-dir"));
    e = (Err){0};
    EXPECT_OK(disk_open(&d, test_path("folder"), BYTES, &e));
    EXPECT_OK(disk_link(&d, d.base, test_path("model"), 0, 200, &e));
    EXPECT(!disk_read(&d, got, d.base, 200, &e) && strstr(e.text, "/model: ends at byte 100"));
    disk_close(&d);
}
