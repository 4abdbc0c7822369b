/* test_mem.c - sizes at the edges of 63 bits: what cannot be counted is -1, and stays it. */
#include "base/mem.h"

#include <limits.h>

#include "base/str.h"
#include "tests/test.h"

TEST(mem_mul_refuses_what_does_not_fit) {
    EXPECT(mem_mul(0, INT64_MAX) == 0 && mem_mul(INT64_MAX, 0) == 0);
    EXPECT(mem_mul(1, INT64_MAX) == INT64_MAX && mem_mul(INT64_MAX, 1) == INT64_MAX);
    EXPECT(mem_mul((int64_t)1 << 31, (int64_t)1 << 31) == (int64_t)1 << 62);
    EXPECT(mem_mul((int64_t)1 << 32, (int64_t)1 << 31) == -1);
    EXPECT(mem_mul((int64_t)1 << 32, (int64_t)1 << 32) == -1); /* wraps to 0 */
    EXPECT(mem_mul(3037000500, 3037000500) == -1 && mem_mul(3037000499, 3037000499) == 9223372030926249001);
    EXPECT(mem_mul(INT64_MAX, 2) == -1 && mem_mul(-1, 1) == -1 && mem_mul(-1, -1) == -1 &&
           mem_mul(INT64_MIN, -1) == -1);
    EXPECT(mem_mul(-1, 0) == -1 && mem_mul(0, -1) == -1); /* -1 goes through, even past a zero */
}

TEST(mem_add_refuses_what_does_not_fit) {
    EXPECT(mem_add(0, 0) == 0 && mem_add(INT64_MAX, 0) == INT64_MAX && mem_add(INT64_MAX - 1, 1) == INT64_MAX);
    EXPECT(mem_add(INT64_MAX, 1) == -1 && mem_add(INT64_MAX, INT64_MAX) == -1);
    EXPECT(mem_add(-1, 5) == -1 && mem_add(5, -1) == -1 && mem_add(INT64_MIN, INT64_MIN) == -1);
}

TEST(mem_round_up_refuses_what_does_not_fit) {
    EXPECT(mem_round_up(0, 256) == 0 && mem_round_up(1, 256) == 256 && mem_round_up(256, 256) == 256);
    EXPECT(mem_round_up(257, 256) == 512 && mem_round_up(7, 1) == 7 && mem_round_up(10, 3) == 12);
    EXPECT(mem_round_up(INT64_MAX, 1) == INT64_MAX && mem_round_up(INT64_MAX, 2) == -1);
    EXPECT(mem_round_up(INT64_MAX - 255, 256) == INT64_MAX - 255 && mem_round_up(INT64_MAX - 254, 256) == -1);
    EXPECT(mem_round_up(1, INT64_MAX) == INT64_MAX && mem_round_up(-1, 8) == -1);
}

TEST(a_refused_size_goes_through_a_chain) {
    int64_t rows = mem_mul((int64_t)1 << 40, (int64_t)1 << 40);
    EXPECT(mem_round_up(mem_add(mem_mul(rows, 4), 16), 64) == -1);
}

TEST(mem_grow_keeps_what_was_there_and_doubles) {
    int64_t capacity = 0;
    int32_t *list = NULL;
    for (int32_t i = 0; i < 1000; i++) {
        list = mem_grow(list, &capacity, i + 1, sizeof *list);
        list[i] = i;
    }
    int64_t sum = 0;
    for (int i = 0; i < 1000; i++) sum += list[i];
    EXPECT(sum == 499500 && capacity >= 1000 && capacity < 2048);
    mem_free(list);
}

TEST(arena_gives_aligned_zeroed_memory_of_any_size) {
    static const int64_t sizes[] = {1, 15, 16, 63, 64, 65, 4096, 256 * 1024, 256 * 1024 + 1, 0, 3};
    Arena a;
    arena_init(&a, "test");
    int64_t total = 0;
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        char *p = arena_alloc(&a, sizes[i]);
        EXPECT((uintptr_t)p % (sizes[i] >= 64 ? 64 : 16) == 0);
        for (int64_t k = 0; k < sizes[i]; k++) EXPECT(p[k] == 0);
        memset(p, 0xff, (size_t)sizes[i]);
        total += sizes[i];
    }
    EXPECT(a.used_bytes == total && ARENA_NEW(&a, int64_t, 0) != NULL);
    arena_free(&a);
}
