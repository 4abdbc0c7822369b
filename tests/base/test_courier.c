/* test_courier.c - errands are done in order while their owner goes on, and the first failure is told to whoever
 * waits. */
#include "base/courier.h"
#include "base/mem.h"
#include "tests/test.h"

typedef struct Log {
    int64_t seen[1000], n, fails_at;
} Log;

static bool note(void *context, const Errand *errand, Err *e) {
    Log *log = context;
    if (errand->bytes == log->fails_at) return fail(e, ERR_FAIL, "errand %lld", (long long)errand->bytes);
    log->seen[log->n++] = errand->bytes;
    return true;
}

TEST(errands_are_done_in_order) {
    Courier *c;
    Err e = {0};
    Log *log = MEM_NEW(Log, 1);
    log->fails_at = -1;
    EXPECT_OK(courier_open(&c, note, log, &e));
    for (int64_t i = 0; i < 1000; i++)
        EXPECT(courier_send(c, (Errand){.bytes = i}) == i + 1); /* more than there is room for */
    EXPECT_OK(courier_await(c, 500, &e));
    EXPECT_OK(courier_await(c, 1000, &e));
    EXPECT(log->n == 1000);
    for (int64_t i = 0; i < 1000; i++) EXPECT(log->seen[i] == i);
    courier_close(c);
    mem_free(log);
}

TEST(a_failed_errand_is_told_and_the_rest_is_left) {
    Courier *c;
    Err e = {0};
    Log *log = MEM_NEW(Log, 1);
    log->fails_at = 3;
    EXPECT_OK(courier_open(&c, note, log, &e));
    for (int64_t i = 0; i < 10; i++) courier_send(c, (Errand){.bytes = i});
    EXPECT(!courier_await(c, 10, &e) && !strcmp(e.text, "errand 3") && log->n == 3);
    EXPECT(!courier_await(c, 0, NULL)); /* without waiting */
    courier_send(c, (Errand){.bytes = 77});
    courier_close(c); /* finishes what was sent */
    EXPECT(log->n == 3);
    mem_free(log);
}
