/* test_scan.c - the row scanner against the JSON library: whatever it accepts, the library accepts with the same value
 * and the same length; what is usual it accepts; and broken bytes, cut texts and random edits change nothing
 * of that. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset_int.h"
#include "tests/test.h"

#define TEXT(s) {s, sizeof s - 1}
typedef struct Piece {
    const char *text;
    int64_t bytes;
} Piece;

static const Piece usual[] = {
    TEXT("{}"),
    TEXT(" { \"text\" : \"a b\" } "),
    TEXT("{\"text\":\"\",\"a\":[],\"b\":{},\"c\":[1,-2,0,-0,123456789012345678],\"d\":true,\"e\":false,\"f\":null}"),
    TEXT("{\"ids\":[1, 2,\t3\r\n,4],\"labels\":[-100,-1,3,4]}"),
    TEXT("{\"t\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}"),
    TEXT("{\"t\":\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00 \\u0000 end\"}"),
    TEXT("{\"t\":\"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xef\xbf\xbf \xf4\x8f\xbf\xbf\"}"),
    TEXT("{\"messages\":[{\"role\":\"user\",\"content\":\"one\\ntwo\"},{\"role\":\"assistant\",\"content\":\"three\"}"
         "]}"),
    TEXT("{\"x\":1.5,\"y\":-2e-3,\"z\":1E+5,\"w\":0.0,\"v\":123456789012345678.25}"),
    TEXT("{\"\":1,\"\\u006b\":2,\"caf\xc3\xa9\":3}"),
    TEXT("{\"a\":\"12345678\",\"b\":\"1234567\\\"\",\"c\":\"123456789012345\\\\\"}"),
};

static const Piece odd[] = {
    TEXT(""), TEXT("{"), TEXT("{\"a\""), TEXT("{\"a\":"), TEXT("{\"a\":1"), TEXT("{\"a\":1,}"), TEXT("{,}"),
    TEXT("[1]"), TEXT("{\"a\":01}"), TEXT("{\"a\":-}"), TEXT("{\"a\":1.}"), TEXT("{\"a\":.5}"), TEXT("{\"a\":1e}"),
    TEXT("{\"a\":+1}"), TEXT("{\"a\":1-2}"), TEXT("{\"a\":9223372036854775807}"), TEXT("{\"a\":9223372036854775808}"),
    TEXT("{\"a\":1e999}"), TEXT("{\"a\":-9223372036854775808}"), TEXT("{\"a\":0x10}"), TEXT("{\"a\":NaN}"),
    TEXT("{\"a\":Infinity}"), TEXT("{\"a\":truex}"), TEXT("{\"a\":tru}"), TEXT("{\"a\":nulll}"),
    TEXT("{\"a\":true\"b\":1}"), TEXT("{\"a\":1 2}"), TEXT("{\"a\":1,\"a\":2}"), TEXT("{\"a\":{\"b\":1,\"b\":1}}"),
    TEXT("{\"a\\u0000b\":1}"), TEXT("{a:1}"), TEXT("{'a':1}"), TEXT("{\"a\":\"\x01\"}"), TEXT("{\"a\":\"\n\"}"),
    TEXT("{\"a\":\"\x7f\"}"), TEXT("{\"a\":\"\0\"}"), TEXT("{\"a\":\"\\x41\"}"), TEXT("{\"a\":\"\\u12\"}"),
    TEXT("{\"a\":\"\\u12g4\"}"), TEXT("{\"a\":\"\\ud83d\"}"), TEXT("{\"a\":\"\\ud83dx\"}"),
    TEXT("{\"a\":\"\\ude00\"}"), TEXT("{\"a\":\"\\ud83d\\u0041\"}"), TEXT("{\"a\":\"\\ud83d\\ud83d\"}"),
    TEXT("{\"a\":\"\x80\"}"), TEXT("{\"a\":\"\xc0\x80\"}"), TEXT("{\"a\":\"\xc1\xbf\"}"),
    TEXT("{\"a\":\"\xe0\x9f\xbf\"}"), TEXT("{\"a\":\"\xed\xa0\x80\"}"), TEXT("{\"a\":\"\xf0\x8f\xbf\xbf\"}"),
    TEXT("{\"a\":\"\xf4\x90\x80\x80\"}"), TEXT("{\"a\":\"\xf8\x88\x80\x80\x80\"}"), TEXT("{\"a\":\"\xe2\x82\"}"),
    TEXT("{\"a\":\"\xe2\x82"), TEXT("{\"a\":\"\xff\"}"), TEXT("{\"a\":1}x"), TEXT("{\"a\":1}{\"b\":2}"),
    TEXT("{\"a\":[1,]}"), TEXT("{\"a\":[}"), TEXT("{\"a\":]}"), TEXT("{\"a\" 1}"), TEXT("\xef\xbb\xbf{}"),
    TEXT("{\"a\":/**/1}"), TEXT("{\"a\":\"\\"), TEXT("{\"a\":\"\\\"}"), TEXT("{\"a\":\v1}"),
};

/* Both read the same bytes; gives whether the scanner accepted. The copy has no byte to spare, for the sanitizers. */
static bool agrees(const char *text, int64_t bytes, bool *accepted) {
    char *copy = memcpy(mem_alloc(bytes), text, (size_t)bytes);
    Str scratch = {0};
    json_error_t at;
    int64_t used = 0;
    json_t *have = dataset_scan_object(&scratch, copy, bytes, &used);
    json_t *want =
        json_loadb(copy, (size_t)bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, &at);
    bool ok = !have || (want && json_equal(have, want) && used == at.position);
    if (ok && have) { /* and in the same order of fields */
        char *a = json_dumps(have, JSON_COMPACT), *b = json_dumps(want, JSON_COMPACT);
        ok = !strcmp(a, b);
        mem_free(a);
        mem_free(b);
    }
    *accepted = have != NULL;
    json_decref(have);
    json_decref(want);
    str_free(&scratch);
    mem_free(copy);
    return ok;
}

/* The same for a row whose fields lie in its text: accepted only as a whole, with the library's values. */
static bool row_agrees(const char *text, int64_t bytes) {
    char *copy = memcpy(mem_alloc(bytes + 1), text, (size_t)bytes);
    Row *row = MEM_NEW(Row, 1);
    json_t *want = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL),
           *have = json_object();
    bool took = row_scan(row, copy, bytes), ok = !took || json_is_object(want);
    if (!took) ok = !memcmp(copy, text, (size_t)bytes); /* not changed */
    for (int i = 0; took && i < row->n; i++) {
        RowField *f = &row->field[i];
        int64_t n, at = 0, number;
        ok &= (row_get(row, f->name) != NULL) == (f->type != JSON_NULL) || strlen(f->name) != (size_t)f->name_bytes;
        if (f->type == JSON_STRING) row_text(f, &n);
        json_t *v = row_value(f);
        for (size_t k = 0; f->type == JSON_ARRAY && k < json_array_size(v); k++) {
            const json_t *j = json_array_get(v, k);
            bool small = json_is_integer(j) && llabs(json_integer_value(j)) < 1000000000000000000; /* no id is longer */
            ok &= row_next_integer(f, &at, &number) ? small && number == json_integer_value(j) : !small;
            if (!small) break;
        }
        json_object_set_new_nocheck(have, f->name, v);
    }
    ok = ok && (!took || json_equal(have, want));
    row_free(row);
    mem_free(row);
    mem_free(copy);
    json_decref(have);
    json_decref(want);
    return ok;
}

static void expect_agreement(const char *text, int64_t bytes) {
    bool accepted;
    if (!EXPECT(agrees(text, bytes, &accepted) && row_agrees(text, bytes))) test_note("    %.*s", (int)bytes, text);
}

TEST(the_scanner_takes_usual_rows) {
    for (int i = 0; i < COUNT_OF(usual); i++) {
        bool accepted;
        EXPECT(agrees(usual[i].text, usual[i].bytes, &accepted) && row_agrees(usual[i].text, usual[i].bytes));
        if (!EXPECT(accepted)) test_note("    %s", usual[i].text);
    }
}

TEST(the_scanner_takes_nothing_the_library_refuses) {
    for (int i = 0; i < COUNT_OF(odd); i++) expect_agreement(odd[i].text, odd[i].bytes);
    for (int i = 0; i < COUNT_OF(usual); i++)
        for (int64_t cut = 0; cut < usual[i].bytes; cut++) expect_agreement(usual[i].text, cut);
    char deep[3000];
    for (int depth = 1; depth < 1400; depth = depth * 3 / 2 + 1) {
        int n = snprintf(deep, sizeof deep, "{\"a\":");
        memset(deep + n, '[', (size_t)depth);
        memset(deep + n + depth, ']', (size_t)depth);
        deep[n + 2 * depth] = '}';
        expect_agreement(deep, n + 2 * depth + 1);
    }
}

TEST(the_scanner_agrees_on_edited_rows) {
    static const char likely[] = "\"\\{}[],:0123456789-.eEu \n\x80\xc3\xed\xf4tfn";
    int64_t n = test_number("programs", test_brief() ? 20000 : 200000), accepted = 0;
    uint64_t key = rng_fold(51, (uint64_t)test_number("seed", 1));
    for (int64_t i = 0; i < n; i++) {
        char row[256];
        const Piece *from = &usual[rng_u32(key, (uint64_t)i) % COUNT_OF(usual)];
        int64_t bytes = from->bytes;
        uint64_t draw = rng_fold(key, (uint64_t)i), edits = 1 + draw % 3;
        memcpy(row, from->text, (size_t)bytes);
        for (uint64_t k = 0; k < edits && bytes > 1; k++) {
            uint64_t d = rng_fold(draw, k);
            int64_t at = (int64_t)(d % (uint64_t)bytes);
            char c = d >> 40 & 1 ? (char)(d >> 32) : likely[(d >> 32) % (sizeof likely - 1)];
            if (d >> 60 < 3) memmove(row + at, row + at + 1, (size_t)(--bytes - at));       /* taken out */
            else if (d >> 60 < 6) memmove(row + at + 1, row + at, (size_t)(bytes++ - at)), row[at] = c; /* put in */
            else row[at] = c;
        }
        bool took;
        if (!EXPECT(agrees(row, bytes, &took) && row_agrees(row, bytes))) test_note("    %.*s", (int)bytes, row);
        accepted += took;
    }
    EXPECT(accepted > n / 20 && accepted < n); /* or the edits say little */
    test_note("    %lld edited rows, %lld still rows", (long long)n, (long long)accepted);
}
