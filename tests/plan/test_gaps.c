/* test_gaps.c - the tree of gaps against a plain list of what was taken. */
#include "base/rng.h"
#include "plan/gaps.h"
#include "tests/test.h"

enum { STEPS = 45, SLOTS = 60, DRAWS = 300 };

typedef struct Slot {
    int birth, death;
    int64_t begin, bytes;
} Slot;

static bool is_free(const Slot *slot, int n, const Slot *want, int64_t at) {
    for (int i = 0; i < n; i++)
        if (slot[i].bytes && slot[i].birth <= want->death && want->birth <= slot[i].death &&
            slot[i].begin < at + want->bytes && at < slot[i].begin + slot[i].bytes)
            return false;
    return true;
}

static Slot draw_slot(uint64_t key, int i) {
    int birth = (int)(rng_u32(key, 4 * (uint64_t)i) % STEPS);
    int most = rng_u32(key, 4 * (uint64_t)i + 1) % 3 ? 4 : STEPS; /* most lives are short */
    int death = birth + (int)(rng_u32(key, 4 * (uint64_t)i + 2) % (uint32_t)most);
    return (Slot){birth, MIN2(death, STEPS - 1), 0, 1 + rng_u32(key, 4 * (uint64_t)i + 3) % 9};
}

TEST(the_lowest_gap_is_found) {
    Gaps g;
    gaps_open(&g, STEPS);
    for (uint64_t seed = 1; seed <= DRAWS; seed++) {
        Slot slot[SLOTS];
        int64_t bottom = seed % 5;
        gaps_clear(&g);
        for (int i = 0; i < SLOTS; i++) {
            slot[i] = draw_slot(rng_fold(31, seed), i);
            int64_t at = bottom;
            while (!is_free(slot, i, &slot[i], at)) at++;
            slot[i].begin = gaps_find(&g, slot[i].birth, slot[i].death, bottom, slot[i].bytes);
            if (!EXPECT(slot[i].begin == at))
                test_note("    seed %d, slot %d: %d, not %d", (int)seed, i, (int)slot[i].begin, (int)at);
            if (i % 4 == 3) slot[i].begin = at += 5; /* holes, too */
            if (i % 4 == 3 && !is_free(slot, i, &slot[i], at)) slot[i].bytes = 0;
            if (slot[i].bytes) gaps_take(&g, slot[i].birth, slot[i].death, at, slot[i].bytes);
        }
    }
    gaps_close(&g);
}
