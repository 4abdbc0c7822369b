/* test_late.c - an engine that reads its tokens one step late gives the answers of one that reads them at once: slots
 * that end early, are filled again, share prompts and stop in between. */
#include "tests/gen/tiny_engine.h"
#include "tests/test.h"

#include <math.h>

enum { REQUESTS = 17, MOST = 3 * REQUESTS, LENGTH = 40 };

typedef struct Heard { /* what came back, by request and sample */
    int32_t prompt[REQUESTS][24];
    int32_t ids[MOST][LENGTH];
    float logp[MOST][LENGTH];
    int64_t n[MOST];
    GenEnd end[MOST];
    int64_t given, done;
    float temperature, repetition;
    int32_t stop_id[40];
} Heard;

static bool next(Heard *h, Request *r) {
    if (h->given == REQUESTS) return false;
    int64_t i = h->given++;
    int n = 1 + (int)(i * 7 % 23);
    for (int k = 0; k < n; k++) h->prompt[i][k] = (int32_t)((i * 31 + k * 17) % 90);
    *r = (Request){
        .prompt = h->prompt[i],
        .n_prompt = n,
        .max_new = 1 + i * 5 % 37,
        .samples = i % 4 == 2 ? 3 : 1,
        .sampling = {.temperature = h->temperature, .top_p = 0.95f, .top_k = 30, .repetition = h->repetition},
        .key = 1000 + (uint64_t)i,
        .stop_id = h->stop_id,
        .n_stop_ids = i % 3 ? 15 : 0, /* some end in the middle, on ids that come now and then */
        .want_logp = true,
        .number = i};
    return true;
}

static void take(Heard *h, const EngineEvent *a) {
    int64_t at = a->request->number * 3 + a->sample;
    EXPECT(h->n[at] == 0 && a->n > 0 && a->n <= a->request->max_new);
    h->n[at] = a->n;
    h->end[at] = a->end;
    memcpy(h->ids[at], a->ids, (size_t)a->n * 4);
    memcpy(h->logp[at], a->logp, (size_t)a->n * 4);
    h->done++;
}

static Heard run_engine(bool late, int64_t chunk, float temperature, float repetition, EngineCounts *counts) {
    Heard h = {.temperature = temperature, .repetition = repetition};
    for (int i = 0; i < 15; i++) h.stop_id[i] = i * 6;
    Err e = {0};
    TinyEngine t;
    EngineState state = ENGINE_BUSY;
    *counts = (EngineCounts){0};
    if (!tiny_engine_open(&t, (TinySpec){.chunk = chunk, .late = late, .poisoned = -1})) return h;
    while (state == ENGINE_BUSY) {
        Request r;
        while (engine_room(&t.n) > 0 && next(&h, &r)) EXPECT_OK(engine_submit(&t.n, &r, NULL, &e));
        state = engine_step(&t.n, &e);
        for (EngineEvent ev; engine_event(&t.n, &ev);) take(&h, &ev);
    }
    EXPECT(state == ENGINE_IDLE);
    *counts = t.n.counts;
    tiny_engine_close(&t);
    return h;
}

TEST(tokens_read_late_are_the_same_tokens) {
    static const float how[][2] = {{0, 1}, {0, 1.3f}, {1.1f, 1}, {0.8f, 1.2f}};
    int early = 0;
    for (int k = 0; k < COUNT_OF(how); k++) {
        EngineCounts at_once_counts, late_counts;
        int64_t chunk = k % 2 ? 32 : 16; /* the longest in two passes; or short ones packed */
        Heard at_once = run_engine(false, chunk, how[k][0], how[k][1], &at_once_counts);
        Heard late = run_engine(true, chunk, how[k][0], how[k][1], &late_counts);
        EXPECT(at_once.done == late.done && late.done > REQUESTS);
        for (int i = 0; i < MOST; i++) {
            early += at_once.n[i] > 1 && at_once.end[i] == GEN_END_ID;
            bool same = at_once.n[i] == late.n[i] && at_once.end[i] == late.end[i] &&
                        !memcmp(at_once.ids[i], late.ids[i], sizeof late.ids[i]);
            for (int64_t n = 0; n < late.n[i]; n++) /* other slots are free, so other prefixes are shared */
                same &= fabsf(at_once.logp[i][n] - late.logp[i][n]) < 1e-5f;
            if (!EXPECT(same))
                test_note("    temperature %g, penalty %g, answer %d: %lld and %lld tokens", how[k][0], how[k][1], i,
                          (long long)at_once.n[i], (long long)late.n[i]);
        }
        EXPECT(at_once_counts.new_tokens == late_counts.new_tokens && at_once_counts.plays > 0);
    }
    EXPECT(early > 8); /* otherwise nothing was shown */
}
