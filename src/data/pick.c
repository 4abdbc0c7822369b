/* pick.c - counting, shuffling and reading a file of rows again. */
#include "data/pick.h"

#include "base/mem.h"
#include "base/rng.h"
#include "data/rows.h"

bool pick_count(const char *path, int64_t *rows, Err *e) {
    RowReader r;
    json_t *row;
    bool ok;
    *rows = 0;
    if (!dataset_reader_open(&r, path, e)) return false;
    while ((ok = dataset_reader_next(&r, &row, e)) && row) {
        ++*rows;
        json_decref(row);
    }
    dataset_reader_close(&r);
    return ok;
}

int64_t *pick_places(int64_t rows, int64_t start, int64_t count, bool shuffle, uint64_t seed) {
    int64_t *order = MEM_NEW(int64_t, rows + 1), *place = MEM_NEW(int64_t, rows + 1);
    for (int64_t i = 0; i < rows; i++) {
        order[i] = i;
        place[i] = -1;
    }
    if (shuffle) rng_permute(seed, order, rows);
    for (int64_t i = 0; i < count; i++) place[order[start + i]] = i;
    mem_free(order);
    return place;
}

bool pick_rows(const char *path, const int64_t *place, int64_t rows, PickFn *fn, void *user, Err *e) {
    RowReader r;
    json_t *row;
    int64_t i = 0;
    bool ok = true;
    if (!dataset_reader_open(&r, path, e)) return false;
    while (ok && (ok = dataset_reader_next(&r, &row, e)) && row) {
        if (i == rows)
            ok = fail(e, ERR_FAIL, "%s: grew while it was read", path);
        else if (!fn(user, row, place[i++], e))
            ok = fail_within(e, "%s:%lld", path, (long long)r.row_line);
        json_decref(row);
    }
    dataset_reader_close(&r);
    return ok && (i == rows || fail(e, ERR_FAIL, "%s: shrank while it was read", path));
}
