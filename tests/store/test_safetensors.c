/* test_safetensors.c - files of the safetensors library are read value by value and written byte by byte. */
#include "base/file.h"
#include "base/half.h"
#include "base/mem.h"
#include "store/safetensors.h"
#include "tests/store/store_test.h"
#include "tests/test.h"

#define SINGLE FIXTURES "single.safetensors"

static double ramp(int64_t i) { return (double)(i - 2) / 2; }

/* Element i of a tensor of the fixtures as a number. */
static double value(StDtype dtype, const void *data, int64_t i) {
    switch (dtype) {
        case ST_F64: return ((const double *)data)[i];
        case ST_F32: return ((const float *)data)[i];
        case ST_F16: return half_from_f16(((const uint16_t *)data)[i]);
        case ST_BF16: return half_from_bf16(((const uint16_t *)data)[i]);
        case ST_I64: case ST_U64: return (double)((const int64_t *)data)[i];
        case ST_I32: case ST_U32: return ((const int32_t *)data)[i];
        case ST_I16: case ST_U16: return ((const int16_t *)data)[i];
        default: return ((const int8_t *)data)[i];
    }
}

TEST(safetensors_reads_every_dtype_of_the_library) {
    static const struct {
        const char *name;
        StDtype dtype;
    } rows[] = {{"t.f64", ST_F64}, {"t.f32", ST_F32}, {"t.f16", ST_F16}, {"t.bf16", ST_BF16}, {"t.i64", ST_I64},
                {"t.i32", ST_I32}, {"t.i16", ST_I16}, {"t.i8", ST_I8}, {"t.u8", ST_U8}, {"t.bool", ST_BOOL},
                {"t.u64", ST_U64}, {"t.u32", ST_U32}, {"t.u16", ST_U16}};
    Err e = {0};
    StSet s;
    EXPECT_OK(st_open(&s, SINGLE, &e));
    EXPECT(s.n == 18 && s.n_files == 1);
    for (int r = 0; r < (int)(sizeof rows / sizeof *rows); r++) {
        const StTensor *t = st_find(&s, rows[r].name);
        if (!EXPECT(t != NULL)) continue;
        EXPECT(t->dtype == rows[r].dtype && t->rank == 2 && t->dim[0] == 2 && t->dim[1] == 3);
        EXPECT(t->bytes == 6 * st_dtype_bytes(t->dtype) && t->bytes == st_tensor_bytes(t));
        int64_t data[6];
        EXPECT_OK(st_read(&s, t, data, 0, t->bytes, &e));
        bool whole = t->dtype > ST_BF16;
        for (int i = 0; i < 6; i++)
            EXPECT_NEAR(value(t->dtype, data, i), t->dtype == ST_BOOL ? i % 2 : whole ? i : ramp(i), 0);
    }
    st_close(&s);
}

TEST(safetensors_reads_scalars_empty_tensors_utf8_names_and_metadata) {
    Err e = {0};
    StSet s;
    EXPECT_OK(st_open(&s, SINGLE, &e));
    const StTensor *scalar = st_find(&s, "scalar"), *empty = st_find(&s, "empty"), *word = st_find(&s, "größe");
    EXPECT(scalar && scalar->rank == 0 && scalar->bytes == 4);
    EXPECT(empty && empty->rank == 2 && empty->dim[0] == 0 && empty->dim[1] == 4 && empty->bytes == 0);
    EXPECT(word && word->dim[0] == 5);
    EXPECT(st_find(&s, "t.e4m3")->dtype == ST_F8_E4M3 && st_find(&s, "t.e5m2")->dtype == ST_F8_E5M2);
    float x = 0;
    EXPECT_OK(st_read(&s, scalar, &x, 0, 4, &e));
    EXPECT_NEAR(x, -1, 0);
    EXPECT_OK(st_read(&s, empty, &x, 0, 0, &e));
    EXPECT_STR(st_meta(&s, "format"), "pt");
    EXPECT_STR(st_meta(&s, "note"), "a \"quoted\" wörd");
    EXPECT(st_meta(&s, "absent") == NULL);
    EXPECT(st_find(&s, "absent") == NULL && st_find(&s, "") == NULL && st_find(&s, "__metadata__") == NULL);
    st_close(&s);
}

TEST(safetensors_reads_any_byte_range_and_refuses_beyond) {
    Err e = {0};
    StSet s;
    EXPECT_OK(st_open(&s, SINGLE, &e));
    const StTensor *t = st_find(&s, "t.f32");
    float x[2] = {0};
    EXPECT_OK(st_read(&s, t, x, 12, 8, &e));
    EXPECT_NEAR(x[0], ramp(3), 0);
    EXPECT_NEAR(x[1], ramp(4), 0);
    EXPECT_OK(st_read(&s, t, x, 24, 0, &e));
    EXPECT(!st_read(&s, t, x, 20, 8, &e));
    EXPECT(!st_read(&s, t, x, -4, 4, &e));
    EXPECT(!st_read(&s, t, x, 0, -1, &e));
    EXPECT(!st_read(&s, t, x, 25, 0, &e));
    EXPECT(!st_read(&s, t, x, INT64_MAX, INT64_MAX, &e));
    EXPECT(strstr(e.text, "t.f32") != NULL);
    st_close(&s);
}

/* Writes everything of s to path in s's own order, in blocks that do not care for tensor borders. */
static bool rewrite(const StSet *s, const char *path, int64_t block, Err *e) {
    const char *pairs[9] = {0};
    for (int i = 0; i < s->n_meta && i < 4; i++) {
        pairs[2 * i] = s->meta[i].key;
        pairs[2 * i + 1] = s->meta[i].value;
    }
    char *all = mem_alloc(s->total_bytes);
    int64_t at = 0;
    bool ok = true;
    for (int64_t i = 0; ok && i < s->n; at += s->tensor[i++].bytes)
        ok = st_read(s, &s->tensor[i], all + at, 0, s->tensor[i].bytes, e);
    StWriter *w = NULL;
    ok = ok && st_write_begin(&w, path, s->tensor, s->n, pairs, e);
    for (int64_t i = 0; ok && i < at; i += block) ok = st_write_data(w, all + i, MIN2(block, at - i), e);
    if (ok) ok = st_write_end(w, e);
    else st_write_abort(w);
    mem_free(all);
    return ok;
}

TEST(safetensors_writes_the_librarys_files_byte_by_byte) {
    static const char *const files[] = {SINGLE, FIXTURES "adapter/adapter_model.safetensors",
                                        FIXTURES "sharded/model-00002-of-00003.safetensors"};
    for (int i = 0; i < 3; i++)
        for (int64_t block = 1; block <= 1000; block = block * 10 - (block == 1 ? 3 : 0)) {
            Err e = {0};
            StSet s;
            EXPECT_OK(st_open(&s, files[i], &e));
            EXPECT_OK(rewrite(&s, tmp_path("again.safetensors"), block, &e));
            EXPECT(same_bytes(files[i], tmp_path("again.safetensors")));
            st_close(&s);
        }
}

TEST(safetensors_reads_a_sharded_folder) {
    Err e = {0};
    StSet s;
    EXPECT_OK(st_open(&s, FIXTURES "sharded", &e));
    EXPECT(s.n == 5 && s.n_files == 3 && s.total_bytes == 5 * 48);
    for (int k = 0; k < 5; k++) {
        char name[32];
        float x[12];
        snprintf(name, sizeof name, "layer.%d", k);
        const StTensor *t = st_find(&s, name);
        if (!EXPECT(t && t->file == k / 2)) continue;
        EXPECT_OK(st_read(&s, t, x, 0, 48, &e));
        for (int i = 0; i < 12; i++) EXPECT_NEAR(x[i], ramp(i) + k, 0);
    }
    st_close(&s);
    EXPECT_OK(st_open(&s, FIXTURES "sharded/model.safetensors.index.json", &e));
    EXPECT(s.n == 5);
    st_close(&s);
}

static bool write_shards(const char *folder, int64_t limit, Err *e) {
    StSet s;
    StWriter *w = NULL;
    float all[60];
    if (!st_open(&s, FIXTURES "sharded", e)) return false;
    for (int64_t i = 0; i < s.n; i++)
        if (!st_read(&s, &s.tensor[i], all + 12 * i, 0, 48, e)) return false;
    bool ok = st_write_folder_begin(&w, folder, s.tensor, s.n, limit, NULL, e) &&
              st_write_data(w, all, 100, e) && st_write_data(w, (char *)all + 100, 140, e) && st_write_end(w, e);
    st_close(&s);
    return ok;
}

TEST(safetensors_writes_shards_as_the_hub_library_does) {
    Err e = {0};
    static const char *const names[] = {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                        "model-00003-of-00003.safetensors"};
    EXPECT_OK(write_shards(test_tmp(), 100, &e));
    for (int i = 0; i < 3; i++) {
        char theirs[256];
        snprintf(theirs, sizeof theirs, FIXTURES "sharded/%s", names[i]);
        EXPECT(same_bytes(theirs, tmp_path(names[i])));
    }
    Str ours = {0}, theirs = {0};
    EXPECT_OK(file_read(tmp_path("model.safetensors.index.json"), &ours, 0, &e));
    EXPECT_OK(file_read(FIXTURES "sharded/model.safetensors.index.json", &theirs, 0, &e));
    str_add_char(&theirs, '\n');
    EXPECT_STR(str_text(&ours), str_text(&theirs));
    str_free(&ours);
    str_free(&theirs);
    EXPECT(count_names(test_tmp()) == 4);
}

TEST(safetensors_one_shard_is_a_plain_file) {
    Err e = {0};
    EXPECT_OK(write_shards(test_tmp(), 240, &e));
    EXPECT(count_names(test_tmp()) == 1 && file_exists(tmp_path("model.safetensors")));
    StSet s;
    EXPECT_OK(st_open(&s, test_tmp(), &e));
    EXPECT(s.n == 5);
    st_close(&s);
}

TEST(safetensors_sizes_are_known_before_a_file_is_begun) {
    static const int64_t limits[] = {0, 50, 100, 240};
    Err e = {0};
    StSet s;
    EXPECT_OK(st_open(&s, FIXTURES "sharded", &e));
    for (int i = 0; i < 4; i++) {
        char folder[300];
        char **names;
        int64_t n, sum = 0, largest = 0, bytes;
        snprintf(folder, sizeof folder, "%s/%d", test_tmp(), i);
        EXPECT_OK(file_make_dirs(folder, &e));
        EXPECT_OK(write_shards(folder, limits[i], &e));
        EXPECT_OK(file_list(folder, &names, &n, &e));
        for (int64_t k = 0; k < n; k++) {
            char path[600];
            snprintf(path, sizeof path, "%s/%s", folder, names[k]);
            EXPECT_OK(file_size(path, &bytes, &e));
            sum += bytes;
            largest = bytes > largest ? bytes : largest;
            mem_free(names[k]);
        }
        mem_free(names);
        StSizes z;
        EXPECT_OK(st_write_sizes(&z, s.tensor, s.n, true, limits[i], &e));
        EXPECT(z.bytes == sum && z.files == n && z.largest == largest);
    }
    st_close(&s);
}

TEST(safetensors_shard_plan_never_splits_and_keeps_the_order) {
    Err e = {0};
    StTensor t[4] = {{.name = "a", .dtype = ST_U8, .rank = 1, .dim = {60}},
                     {.name = "b", .dtype = ST_U8, .rank = 1, .dim = {300}},
                     {.name = "c", .dtype = ST_U8, .rank = 1, .dim = {0}},
                     {.name = "d", .dtype = ST_BF16, .rank = 2, .dim = {5, 10}}};
    int n;
    EXPECT_OK(st_shard_plan(t, 4, 100, &n, &e));
    EXPECT(n == 3 && t[0].file == 0 && t[1].file == 1 && t[3].file == 2 && t[3].bytes == 100);
    EXPECT_OK(st_shard_plan(t + 1, 3, 100, &n, &e)); /* one that is larger than a shard comes first */
    EXPECT(n == 2 && t[1].file == 0 && t[3].file == 1);
    EXPECT_OK(st_shard_plan(t, 4, 0, &n, &e));
    EXPECT(n == 1 && t[3].file == 0);
    t[1].dim[0] = -1;
    EXPECT(!st_shard_plan(t, 4, 100, &n, &e));
}

TEST(safetensors_a_file_appears_only_when_complete) {
    Err e = {0};
    StTensor t = {.name = "a", .dtype = ST_U8, .rank = 1, .dim = {10}};
    StWriter *w;
    const char *path = tmp_path("a.safetensors");
    EXPECT_OK(st_write_begin(&w, path, &t, 1, NULL, &e));
    EXPECT_OK(st_write_data(w, "0123", 4, &e));
    EXPECT(!file_exists(path));
    st_write_abort(w);
    EXPECT(count_names(test_tmp()) == 0);
    EXPECT_OK(st_write_begin(&w, path, &t, 1, NULL, &e));
    EXPECT_OK(st_write_data(w, "0123", 4, &e));
    EXPECT(!st_write_end(w, &e));
    EXPECT(strstr(e.text, "'a' received 4 of its 10 bytes") != NULL);
    EXPECT(count_names(test_tmp()) == 0);
    EXPECT_OK(st_write_begin(&w, path, &t, 1, NULL, &e));
    EXPECT(!st_write_data(w, "0123456789x", 11, &e));
    EXPECT(strstr(e.text, "1 bytes more than declared") != NULL);
    st_write_abort(w);
    st_write_abort(NULL);
    EXPECT(count_names(test_tmp()) == 0);
}

TEST(safetensors_abort_removes_shards_already_complete) {
    Err e = {0};
    StTensor t[3] = {{.name = "a", .dtype = ST_U8, .rank = 1, .dim = {8}},
                     {.name = "b", .dtype = ST_U8, .rank = 1, .dim = {8}},
                     {.name = "c", .dtype = ST_U8, .rank = 1, .dim = {8}}};
    StWriter *w;
    EXPECT_OK(st_write_folder_begin(&w, test_tmp(), t, 3, 8, NULL, &e));
    EXPECT_OK(st_write_data(w, "0123456789abcdefXY", 18, &e));
    EXPECT(count_names(test_tmp()) == 3); /* two complete, one begun */
    st_write_abort(w);
    EXPECT(count_names(test_tmp()) == 0);
    EXPECT_OK(file_make_dirs(tmp_path("model.safetensors.index.json"), &e)); /* in the way of the index */
    EXPECT_OK(st_write_folder_begin(&w, test_tmp(), t, 3, 8, NULL, &e));
    EXPECT_OK(st_write_data(w, "0123456789abcdefXYZ.....", 24, &e));
    EXPECT(!st_write_end(w, &e));
    EXPECT(count_names(test_tmp()) == 1);
}

TEST(safetensors_a_failed_write_leaves_nothing) {
    Err e = {0};
    StTensor t = {.name = "a", .dtype = ST_U8, .rank = 1, .dim = {1 << 20}};
    StWriter *w;
    char *data = mem_alloc(1 << 20);
    EXPECT_OK(st_write_begin(&w, tmp_path("a.safetensors"), &t, 1, NULL, &e));
    limit_files(4096);
    bool ok = st_write_data(w, data, 1 << 20, &e);
    limit_files(0);
    EXPECT(!ok && strstr(e.text, "cannot write") != NULL);
    st_write_abort(w);
    EXPECT(count_names(test_tmp()) == 0);
    mem_free(data);
}

TEST(safetensors_refuses_bad_declarations) {
    StTensor good = {.name = "a", .dtype = ST_F32, .rank = 1, .dim = {1}};
    StTensor bad[8][2];
    for (int i = 0; i < 8; i++) bad[i][0] = good, bad[i][1] = good, bad[i][1].name = "b";
    bad[0][1].name = "a";
    bad[1][1].name = "__metadata__";
    bad[2][1].rank = 9;
    bad[3][1].dtype = ST_DTYPE_COUNT;
    bad[4][1].dim[0] = -1;
    bad[5][1].dim[0] = INT64_MAX;
    bad[6][1].name = "\xff";
    bad[7][0].dtype = ST_U8; /* so that b would begin at byte 1 */
    for (int i = 0; i < 8; i++) {
        Err e = {0};
        StWriter *w = (StWriter *)&e;
        if (!EXPECT(!st_write_begin(&w, tmp_path("bad.safetensors"), bad[i], 2, NULL, &e)))
            test_note("    row %d", i);
        EXPECT(w == NULL && e.code == ERR_FAIL && e.text[0]);
    }
    Err e = {0};
    StWriter *w;
    EXPECT(!st_write_begin(&w, tmp_path("bad.safetensors"), &good, 1, (const char *[]){"k", "\xc0", NULL}, &e));
    EXPECT(!st_write_begin(&w, tmp_path("no/such/folder"), &good, 1, NULL, &e));
    EXPECT(count_names(test_tmp()) == 0);
}

TEST(safetensors_writes_and_reads_a_file_without_tensors) {
    Err e = {0};
    StWriter *w;
    StSet s;
    EXPECT_OK(st_write_begin(&w, tmp_path("none.safetensors"), NULL, 0, NULL, &e));
    EXPECT_OK(st_write_end(w, &e));
    EXPECT_OK(st_open(&s, tmp_path("none.safetensors"), &e));
    EXPECT(s.n == 0 && st_find(&s, "a") == NULL);
    st_close(&s);
}

TEST(safetensors_data_begins_at_a_multiple_of_eight) {
    char name[16] = "x";
    for (int i = 1; i < 10; i++) {
        Err e = {0};
        StTensor t = {.name = name, .dtype = ST_F64, .rank = 0};
        StWriter *w;
        StSet s;
        double x = 1.5, y = 0;
        EXPECT_OK(st_write_begin(&w, tmp_path("x.safetensors"), &t, 1, NULL, &e));
        EXPECT_OK(st_write_data(w, &x, 8, &e));
        EXPECT_OK(st_write_end(w, &e));
        EXPECT_OK(st_open(&s, tmp_path("x.safetensors"), &e));
        EXPECT(s.tensor[0].offset % 8 == 0);
        EXPECT_OK(st_read(&s, &s.tensor[0], &y, 0, 8, &e));
        EXPECT_NEAR(y, 1.5, 0);
        st_close(&s);
        strcat(name, "y");
    }
}
