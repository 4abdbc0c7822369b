/* test_safetensors_hostile.c - headers made to mislead: each is refused with a reason, nothing stays open. */
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "store/safetensors.h"
#include "tests/store/store_test.h"
#include "tests/test.h"

/* length: what the first eight bytes say. */
static void put_safetensors(const char *path, uint64_t length, const char *header, int64_t data_bytes) {
    Str s = {0};
    for (int i = 0; i < 8; i++) str_add_char(&s, (char)(length >> (8 * i)));
    str_add(&s, header);
    for (int64_t i = 0; i < data_bytes; i++) str_add_char(&s, (char)i);
    put_file(path, s.data, s.len);
    str_free(&s);
}

static bool opens(const char *path, Err *e) {
    StSet s;
    int64_t open_before = count_open_files();
    bool ok = st_open(&s, path, e);
    if (ok) st_close(&s);
    EXPECT(count_open_files() == open_before);
    return ok;
}

/* header, bytes of data after it, a part of the refusal */
#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
static const struct {
    const char *header;
    int data_bytes;
    const char *why;
} hostile[] = {
    {"", 0, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"null", 0, "does not begin with '{'"},
    {"{", 0, "not valid JSON"},
    {"{} x", 0, "not valid JSON"},
    {"{}{}", 0, "not valid JSON"},
    {"{\"a\":", 0, "not valid JSON"},
    {"{'a':1}", 0, "not valid JSON"},
    {"{\"\xff\":{}}", 0, "not valid JSON"},
    {"{\"a\\u0000b\":" "{}}", 0, "not valid JSON"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("a", "F32", "[1]", "[4,8]") "}", 8, "not valid JSON"},
    {"{" T("a", "F32", "[99999999999999999999]", "[0,4]") "}", 4, "not valid JSON"},
    {"{\"a\":1}", 0, "not an object"},
    {"{\"a\":null}", 0, "not an object"},
    {"{\"a\":{}}", 0, "no dtype"},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no dtype"},
    {"{" T("a", "F31", "[1]", "[0,4]") "}", 4, "'F31' is not supported"},
    {"{" T("a", "f32", "[1]", "[0,4]") "}", 4, "'f32' is not supported"},
    {"{" T("a", "F4", "[2]", "[0,1]") "}", 1, "'F4' is not supported"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no shape"},
    {"{" T("a", "F32", "1", "[0,4]") "}", 4, "no shape"},
    {"{" T("a", "F32", "[1.0]", "[0,4]") "}", 4, "dimension 0 is not a whole number"},
    {"{" T("a", "F32", "[\"1\"]", "[0,4]") "}", 4, "dimension 0 is not a whole number"},
    {"{" T("a", "F32", "[-1]", "[0,4]") "}", 4, "dimension 0 is not a whole number"},
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "9 dimensions"},
    {"{" T("a", "F32", "[4611686018427387904,4,0]", "[0,0]") "}", 0, "too large"},
    {"{" T("a", "F64", "[2305843009213693952]", "[0,0]") "}", 0, "too large"},
    {"{" T("a", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0, "too large"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets must be two"},
    {"{" T("a", "F32", "[1]", "[0]") "}", 4, "data_offsets must be two"},
    {"{" T("a", "F32", "[1]", "[0,4,8]") "}", 8, "data_offsets must be two"},
    {"{" T("a", "F32", "[1]", "[\"0\",\"4\"]") "}", 4, "data_offsets must be two"},
    {"{" T("a", "F32", "[1]", "{\"0\":4}") "}", 4, "data_offsets must be two"},
    {"{" T("a", "F32", "[1]", "[4,0]") "}", 4, "lies at bytes 4 to 0"},
    {"{" T("a", "F32", "[1]", "[-4,0]") "}", 4, "lies at bytes -4 to 0"},
    {"{" T("a", "F32", "[1]", "[0,9223372036854775807]") "}", 4, "data area of 4"},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 4, "data area of 4"},
    {"{" T("a", "F32", "[2]", "[0,4]") "}", 4, "takes 8 bytes, its data_offsets 4"},
    {"{" T("a", "F32", "[]", "[0,8]") "}", 8, "takes 4 bytes, its data_offsets 8"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[2,6]") "}", 6, "'b' overlaps"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[0,4]") "}", 4, "overlaps"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[8,12]") "}", 12, "4 bytes before tensor 'b'"},
    {"{" T("a", "F32", "[1]", "[4,8]") "}", 8, "4 bytes before tensor 'a'"},
    {"{" T("a", "F32", "[1]", "[0,4]") "}", 5, "describes 4 bytes of data, the file has 5"},
    {"{}", 3, "describes 0 bytes of data, the file has 3"},
    {"{\"__metadata__\":3}", 0, "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"format\":1}}", 0, "__metadata__ 'format' is not text"},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "not valid JSON"},
};

TEST(safetensors_refuses_hostile_headers_with_the_reason) {
    for (int i = 0; i < (int)(sizeof hostile / sizeof *hostile); i++) {
        Err e = {0};
        const char *path = tmp_path("hostile.safetensors");
        put_safetensors(path, strlen(hostile[i].header), hostile[i].header, hostile[i].data_bytes);
        bool refused = !opens(path, &e) && e.code == ERR_FAIL && strstr(e.text, hostile[i].why) &&
                       strstr(e.text, "hostile.safetensors");
        if (!EXPECT(refused)) test_note("    row %d: %s gave '%s'", i, hostile[i].header, e.text);
    }
}

TEST(safetensors_accepts_what_looks_odd_but_is_whole) {
    static const struct {
        const char *header;
        int data_bytes;
    } fine[] = {
        {"{}", 0},
        {"{}   \n", 0},
        {"{\"__metadata__\":null}", 0},
        {"{" T("b", "F32", "[1]", "[4,8]") "," T("a", "F32", "[1]", "[0,4]") "}", 8},
        {"{" T("a", "F32", "[0,9223372036854775807]", "[0,0]") "}", 0},
        {"{" T("z", "U8", "[0]", "[4,4]") "," T("a", "F32", "[1]", "[0,4]") "," T("y", "U8", "[0]", "[0,0]") "}",
         4},
        {"{\"__metadata__\":{}," T("", "U8", "[1,1,1,1,1,1,1,3]", "[0,3]") "}", 3},
    };
    for (int i = 0; i < (int)(sizeof fine / sizeof *fine); i++) {
        Err e = {0};
        put_safetensors(tmp_path("fine.safetensors"), strlen(fine[i].header), fine[i].header, fine[i].data_bytes);
        EXPECT_OK(opens(tmp_path("fine.safetensors"), &e));
    }
}

TEST(safetensors_refuses_impossible_header_lengths) {
    static const uint64_t lengths[] = {3, 1000, 100000000, 100000001, 1ull << 40, 1ull << 63, ~0ull};
    for (int i = 0; i < 7; i++) {
        Err e = {0};
        put_safetensors(tmp_path("length.safetensors"), lengths[i], "{}", 0);
        EXPECT(!opens(tmp_path("length.safetensors"), &e));
        EXPECT(strstr(e.text, i < 3 ? "the file has 10" : "more than the 100000000 allowed") != NULL);
    }
}

TEST(safetensors_refuses_every_truncation) {
    Err e = {0};
    Str whole = {0};
    EXPECT_OK(file_read(FIXTURES "single.safetensors", &whole, 0, &e));
    for (int64_t n = 0; n < whole.len; n++) {
        put_file(tmp_path("cut.safetensors"), whole.data, n);
        if (!EXPECT(!opens(tmp_path("cut.safetensors"), &e))) test_note("    cut at %d", (int)n);
    }
    str_free(&whole);
}

TEST(safetensors_a_file_cut_after_opening_is_refused_when_read) {
    Err e = {0};
    StSet s;
    float x;
    static const char header[] = "{" T("a", "F32", "[1]", "[0,4]") "}";
    put_safetensors(tmp_path("a.safetensors"), strlen(header), header, 4);
    EXPECT_OK(st_open(&s, tmp_path("a.safetensors"), &e));
    EXPECT(truncate(tmp_path("a.safetensors"), (off_t)(8 + strlen(header) + 3)) == 0);
    EXPECT(!st_read(&s, &s.tensor[0], &x, 0, 4, &e));
    EXPECT(strstr(e.text, "cut short") != NULL);
    st_close(&s);
}

TEST(safetensors_refuses_a_zero_byte_in_the_header) {
    Err e = {0};
    Str s = {0};
    static const char header[] = "{" T("a", "U8", "[1]", "[0,1]") "}";
    put_safetensors(tmp_path("a.safetensors"), strlen(header), header, 1);
    EXPECT_OK(file_read(tmp_path("a.safetensors"), &s, 0, &e));
    *strstr(s.data + 8, ",1]") = 0; /* "[0\01]" */
    put_file(tmp_path("a.safetensors"), s.data, s.len);
    EXPECT(!opens(tmp_path("a.safetensors"), &e));
    EXPECT(strstr(e.text, "zero byte") != NULL);
    str_free(&s);
}

TEST(safetensors_survives_random_damage) { /* whatever opens must be consistent and readable to the end */
    Err e = {0};
    Str whole = {0};
    EXPECT_OK(file_read(FIXTURES "single.safetensors", &whole, 0, &e));
    char *copy = mem_alloc(whole.len), *data = mem_alloc(whole.len);
    int opened = 0;
    for (int round = 0; round < 3000; round++) {
        uint64_t key = rng_fold(20260101, (uint64_t)round);
        memcpy(copy, whole.data, (size_t)whole.len);
        int64_t header_end = whole.len - 308, n_damage = 1 + rng_u32(key, 0) % 3;
        for (int64_t k = 0; k < n_damage; k++) {
            static const char bytes[] = "0123456789[]{},:\"-.eFU8\\ \n\xff";
            int64_t at = rng_u32(key, 10 + 2 * (uint64_t)k) % (uint64_t)header_end;
            copy[at] = bytes[rng_u32(key, 11 + 2 * (uint64_t)k) % (sizeof bytes - 1)];
        }
        put_file(tmp_path("damaged.safetensors"), copy, whole.len);
        StSet s;
        if (!st_open(&s, tmp_path("damaged.safetensors"), &e)) continue;
        opened++;
        for (int64_t i = 0; i < s.n; i++) {
            EXPECT(s.tensor[i].bytes <= whole.len);
            EXPECT_OK(st_read(&s, &s.tensor[i], data, 0, s.tensor[i].bytes, &e));
        }
        st_close(&s);
    }
    EXPECT(opened > 0 && opened < 3000); /* damage to a name or to the padding does no harm */
    mem_free(copy);
    mem_free(data);
    str_free(&whole);
}

/* A folder with the three shards of the fixture and this index. */
static const char *sharded_with(const char *index) {
    static char folder[512];
    Err e = {0};
    snprintf(folder, sizeof folder, "%s/model", test_tmp());
    bool fresh = !file_exists(folder);
    EXPECT_OK(file_make_dirs(folder, &e));
    for (int i = 1; i <= 3 && fresh; i++) {
        char from[256], to[600];
        snprintf(from, sizeof from, FIXTURES "sharded/model-%05d-of-00003.safetensors", i);
        snprintf(to, sizeof to, "%s/%d.safetensors", folder, i);
        EXPECT_OK(file_copy(from, to, &e));
    }
    put_text(tmp_path("model/model.safetensors.index.json"), index);
    return folder;
}

#define MAP(last) "{\"weight_map\":{\"layer.0\":\"1.safetensors\",\"layer.2\":\"2.safetensors\"," last "}}"

TEST(safetensors_refuses_hostile_indexes) {
    static const struct {
        const char *index, *why;
    } rows[] = {
        {"", "not valid JSON"},
        {"[]", "a JSON object was expected"},
        {"{}", "no weight_map"},
        {"{\"weight_map\":[]}", "no weight_map"},
        {"{\"weight_map\":{}}", "names no tensors"},
        {MAP("\"layer.4\":\"4.safetensors\""), "4.safetensors: cannot open"},
        {MAP("\"layer.9\":\"3.safetensors\""), "'layer.9' is not in 3.safetensors"},
        {MAP("\"layer.4\":\"2.safetensors\""), "'layer.4' is not in 2.safetensors"},
        {MAP("\"layer.1\":\"3.safetensors\""), "'layer.1' should be in 3.safetensors but is in 1.safetensors"},
        {MAP("\"layer.4\":\"../model/3.safetensors\""), "a file of the same folder"},
        {MAP("\"layer.4\":\"..\""), "a file of the same folder"},
        {MAP("\"layer.4\":\"/etc/passwd\""), "a file of the same folder"},
        {MAP("\"layer.4\":\"\""), "a file of the same folder"},
        {MAP("\"layer.4\":3"), "a file of the same folder"},
        {MAP("\"layer.4\":\".\""), "is a folder"},
        {MAP("\"layer.4\":\"model.safetensors.index.json\""), "header would take"},
        {MAP("\"layer.0\":\"3.safetensors\""), "not valid JSON"},
    };
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        Err e = {0};
        bool refused = !opens(sharded_with(rows[i].index), &e) && strstr(e.text, rows[i].why);
        if (!EXPECT(refused)) test_note("    row %d gave '%s'", i, e.text);
    }
    Err e = {0};
    EXPECT_OK(opens(sharded_with(MAP("\"layer.4\":\"3.safetensors\"")), &e));
}

TEST(safetensors_refuses_a_missing_or_cut_shard_and_a_tensor_in_two) {
    Err e = {0};
    const char *folder = sharded_with(MAP("\"layer.4\":\"3.safetensors\""));
    EXPECT(unlink(tmp_path("model/3.safetensors")) == 0);
    EXPECT(!opens(folder, &e));
    EXPECT(strstr(e.text, "3.safetensors") && strstr(e.text, "index.json"));
    EXPECT_OK(file_copy(tmp_path("model/2.safetensors"), tmp_path("model/3.safetensors"), &e));
    EXPECT(!opens(folder, &e));
    EXPECT(strstr(e.text, "'layer.2' is in both") != NULL);
    EXPECT(truncate(tmp_path("model/3.safetensors"), 100) == 0);
    EXPECT(!opens(folder, &e));
    EXPECT(strstr(e.text, "3.safetensors") != NULL);
}

TEST(safetensors_refuses_folders_without_weights_and_missing_files) {
    Err e = {0};
    EXPECT(!opens(test_tmp(), &e));
    EXPECT(strstr(e.text, "has no model.safetensors") != NULL);
    EXPECT(!opens(tmp_path("nothing"), &e));
    EXPECT(strstr(e.text, "nothing: cannot open") != NULL);
}
