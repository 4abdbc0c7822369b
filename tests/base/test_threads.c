/* test_threads.c - a team does every tile once, whoever runs it, loop after loop. */
#include "base/threads.h"

#include <time.h>

#include "base/mem.h"
#include "tests/test.h"

enum { TILES = 501 };

typedef struct Work {
    int64_t done[TILES]; /* each tile is written by whoever takes it, and by nobody else */
    int64_t by_worker[8];
} Work;

static void count_tile(void *context, int64_t tile, int worker) {
    Work *w = context;
    w->done[tile] += tile + 1;
    w->by_worker[worker]++;
}

TEST(a_team_does_every_tile_once) {
    for (int n = 1; n <= 8; n *= 2) {
        Threads *team;
        Err e;
        Work w = {{0}, {0}};
        enum { LOOPS = 200 };
        EXPECT_OK(threads_open(&team, n, &e));
        EXPECT(threads_count(team) == n);
        for (int i = 0; i < LOOPS; i++) threads_for(team, TILES - i % 3, count_tile, &w);
        int64_t tiles = 0, expected = 0;
        for (int i = 0; i < LOOPS; i++) expected += TILES - i % 3;
        for (int i = 0; i < n; i++) tiles += w.by_worker[i];
        EXPECT(tiles == expected);
        for (int64_t i = 0; i < TILES - 2; i++) EXPECT(w.done[i] == (i + 1) * LOOPS);
        threads_close(team);
    }
}

TEST(a_team_sleeps_and_wakes) {
    Threads *team;
    Err e;
    Work w = {{0}, {0}};
    EXPECT_OK(threads_open(&team, 4, &e));
    for (int i = 0; i < 5; i++) {
        struct timespec nap = {.tv_nsec = 3000000}; /* longer than the workers spin */
        nanosleep(&nap, NULL);
        threads_for(team, 8, count_tile, &w);
    }
    EXPECT(w.done[7] == 40);
    threads_for(team, 0, count_tile, &w);
    EXPECT(w.done[0] == 5);
    threads_close(team);
    EXPECT(!threads_open(&team, 0, &e) && !threads_open(&team, 100000, &e));
}
