/* test_engine.c - the engine's promises (E1 to E7 of gen/engine.h): requests that are refused, fail or are cancelled
 * alone, prompts read in pieces, given continuations, idling. */
#include "tests/data/tiny_data.h"
#include "tests/gen/tiny_engine.h"
#include "tests/test.h"

enum { MOST = 16 };

typedef struct Said { /* what came of a request, by its number */
    int32_t ids[TINY_CONTEXT];
    float logp[TINY_CONTEXT];
    int64_t n, text_events;
    int done, failed, last;
    GenEnd end;
    char error[300], text[400], streamed[400];
} Said;

/* The prompt of request i: 3 to 12 tokens, never token 7. */
static Request request(int32_t *prompt, int i, int64_t max_new) {
    int n = 3 + i * 5 % 10;
    for (int k = 0; k < n; k++) prompt[k] = 8 + (i * 31 + k * 17) % 80;
    return (Request){.prompt = prompt, .n_prompt = n, .max_new = max_new, .samples = 1, .want_logp = true, .number = i,
                     .key = 100 + (uint64_t)i, .sampling = {.temperature = 1, .top_p = 1, .repetition = 1}};
}

static void note_event(Said *said, const EngineEvent *ev) {
    Said *s = &said[ev->request->number];
    EXPECT(!s->last);
    s->last |= ev->last;
    if (ev->kind == EVENT_TEXT) {
        s->text_events++;
        snprintf(s->streamed + strlen(s->streamed), sizeof s->streamed - strlen(s->streamed), "%.*s",
                 (int)ev->fresh_bytes, ev->fresh);
        return;
    }
    s->n = ev->n;
    s->done += ev->kind == EVENT_DONE;
    s->failed += ev->kind == EVENT_FAILED;
    s->end = ev->end;
    if (ev->error) snprintf(s->error, sizeof s->error, "%s", ev->error);
    if (ev->text) snprintf(s->text, sizeof s->text, "%s", str_text(ev->text));
    for (int64_t i = 0; i < ev->n; i++) {
        s->ids[i] = ev->ids[i];
        if (ev->logp) s->logp[i] = ev->logp[i];
    }
}

static EngineState step(Engine *n, Said *said) {
    Err e = {0};
    EngineState state = engine_step(n, &e);
    EXPECT(state != ENGINE_BROKEN);
    for (EngineEvent ev; engine_event(n, &ev);) note_event(said, &ev);
    return state;
}

static void run(Engine *n, Said *said) {
    while (step(n, said) == ENGINE_BUSY) {}
}

static int64_t submit(Engine *n, const Request *r) {
    Err e = {0};
    int64_t ticket = -1;
    EXPECT_OK(engine_submit(n, r, &ticket, &e));
    return ticket;
}

static void submit_some(Engine *n, int from, int end, int64_t max_new) {
    int32_t prompt[TINY_CONTEXT]; /* copied: the same for all of them */
    for (int i = from; i < end; i++) {
        Request r = request(prompt, i, max_new);
        submit(n, &r);
    }
}

static bool same_answer(const Said *a, const Said *b) {
    return a->n == b->n && a->n > 0 && !memcmp(a->ids, b->ids, (size_t)a->n * 4) && a->end == b->end;
}

/* ---- E1 ---- */

TEST(a_bad_request_is_refused_alone_and_named) {
    TinyEngine t;
    static Said said[MOST], want[MOST];
    memset(said, 0, sizeof said);
    memset(want, 0, sizeof want);
    if (!tiny_engine_open(&t, (TinySpec){.poisoned = -1})) return;
    submit_some(&t.n, 0, 5, 9);
    run(&t.n, want);
    submit_some(&t.n, 0, 3, 9);
    int32_t prompt[TINY_CONTEXT + 8] = {1, 2, 3}, wrong[] = {4, TINY_TOKENS};
    const char *const empty[] = {""};
    Request good = request(prompt, 9, 5);
    Request bad[] = {good, good, good, good, good, good, good, good};
    bad[0].n_prompt = 0;
    bad[1].n_prompt = TINY_CONTEXT - 4;
    bad[2].prompt = wrong, bad[2].n_prompt = 2;
    bad[3].stops = (StopTexts){empty, 1};
    bad[4].max_new = 0;
    bad[5].sampling.temperature = NAN;
    bad[6].forced = wrong, bad[6].n_forced = 2;
    bad[7].samples = 0;
    static const char *const parts[] = {"no tokens",    "context of 64",       "id 90 at place 1",
                                        "stop string",  "cannot be asked for", "out of its range",
                                        "given answer", "cannot be asked for"};
    for (int i = 0; i < COUNT_OF(bad); i++) {
        Err e = {0};
        if (!EXPECT(!engine_submit(&t.n, &bad[i], NULL, &e) && strstr(e.text, "request 9") && strstr(e.text, parts[i])))
            test_note("    case %d: '%s'", i, e.text);
    }
    submit_some(&t.n, 3, 5, 9);
    run(&t.n, said);
    for (int i = 0; i < 5; i++) EXPECT(said[i].done == 1 && said[i].last && same_answer(&said[i], &want[i]));
    tiny_engine_close(&t);
}

/* ---- idling, and requests at any time ---- */

TEST(an_idle_engine_goes_on_with_the_next_request) {
    TinyEngine t;
    static Said said[MOST], want[MOST];
    memset(said, 0, sizeof said);
    memset(want, 0, sizeof want);
    for (int turn = 0; turn < 2;
         turn++) { /* alone each, with an idle engine in between; then one while others are under way */
        if (!tiny_engine_open(&t, (TinySpec){.poisoned = -1, .slots = 3, .late = turn})) return;
        Said *to = turn ? said : want;
        EXPECT(step(&t.n, to) == ENGINE_IDLE && step(&t.n, to) == ENGINE_IDLE);
        for (int i = 0; i < 8; i++) {
            submit_some(&t.n, i, i + 1, 6 + i);
            if (turn) step(&t.n, to);
            else run(&t.n, to);
            EXPECT(turn || step(&t.n, to) == ENGINE_IDLE);
        }
        run(&t.n, to);
        EXPECT(engine_room(&t.n) == 4 && t.n.n_busy == 0);
        tiny_engine_close(&t);
    }
    for (int i = 0; i < 8; i++) EXPECT(said[i].done == 1 && said[i].n == 6 + i && same_answer(&said[i], &want[i]));
}

/* ---- E2: cancelling ---- */

TEST(a_cancelled_request_ends_where_it_is_and_others_do_not_notice) {
    static Said want[MOST], said[MOST];
    TinyEngine t;
    memset(want, 0, sizeof want);
    if (!tiny_engine_open(&t, (TinySpec){.poisoned = -1})) return;
    submit_some(&t.n, 0, 8, 12);
    run(&t.n, want);
    tiny_engine_close(&t);
    for (int late = 0; late < 2; late++) {
        for (int steps = 0; steps < 7; steps++) { /* after so many steps: before its prompt is read, while it answers */
            memset(said, 0, sizeof said);
            if (!tiny_engine_open(&t, (TinySpec){.poisoned = -1, .late = late, .chunk = late ? 32 : 16})) return;
            submit_some(&t.n, 0, 8, 12); /* the tickets are 0 to 7; four have a slot at first */
            for (int i = 0; i < steps; i++) step(&t.n, said);
            engine_cancel(&t.n, 1);
            engine_cancel(&t.n, 6);
            engine_cancel(&t.n, 6);
            engine_cancel(&t.n, 77);
            for (EngineEvent ev; engine_event(&t.n, &ev);) note_event(said, &ev);
            EXPECT(said[1].last && said[6].last && said[6].n == 0);
            run(&t.n, said);
            for (int i = 0; i < 8; i++) {
                bool cancelled = i == 1 || i == 6;
                EXPECT(said[i].done == 1 && said[i].last);
                if (cancelled) EXPECT(said[i].end == GEN_END_CANCELLED && said[i].n < 12);
                if (cancelled) EXPECT(!memcmp(said[i].ids, want[i].ids, (size_t)said[i].n * 4));
                else if (!EXPECT(same_answer(&said[i], &want[i])))
                    test_note("    request %d, %d steps, late %d", i, steps, late);
            }
            tiny_engine_close(&t);
        }
    }
}

TEST(cancelling_one_of_several_samples_ends_all_that_are_left) {
    TinyEngine t;
    int32_t prompt[TINY_CONTEXT];
    if (!tiny_engine_open(&t, (TinySpec){.poisoned = -1, .slots = 2})) return;
    Request r = request(prompt, 0, 9);
    r.samples = 5;
    int64_t ticket = submit(&t.n, &r);
    Err e = {0};
    int done = 0, cancelled = 0, last = 0;
    for (EngineState state = ENGINE_BUSY; state == ENGINE_BUSY;) {
        state = engine_step(&t.n, &e);
        if (done == 2) engine_cancel(&t.n, ticket); /* two have ended, two or none are under way */
        for (EngineEvent ev; engine_event(&t.n, &ev);) {
            EXPECT(!last);
            done += ev.kind == EVENT_DONE;
            cancelled += ev.end == GEN_END_CANCELLED;
            last += ev.last;
        }
    }
    EXPECT(cancelled >= 1 && last == 1 && done < 6 && t.n.n_busy == 0 && !t.n.queue && engine_room(&t.n) == 3);
    engine_close(&t.n); /* with requests under way: nothing is lost */
    engine_open(&t.n, &t.g, NULL, (EngineOptions){0});
    submit_some(&t.n, 0, 6, 9);
    engine_step(&t.n, &e);
    for (EngineEvent ev; engine_event(&t.n, &ev);) {}
    tiny_engine_close(&t);
}

/* ---- E4: numbers that are not finite ---- */

TEST(logits_that_are_not_finite_fail_their_request_alone) {
    static Said want[MOST], said[MOST];
    for (int late = 0; late < 2; late++) {
        for (int turn = 0; turn < 2; turn++) {
            TinyEngine t;
            Said *to = turn ? said : want;
            memset(to, 0, sizeof want);
            if (!tiny_engine_open(&t, (TinySpec){.poisoned = 7, .late = late})) return;
            submit_some(&t.n, 0, 3, 8);
            if (turn) { /* one in the middle, and one whose samples fail */
                int32_t prompt[TINY_CONTEXT];
                Request r = request(prompt, 10, 8);
                prompt[1] = 7;
                submit(&t.n, &r);
                r.samples = 3;
                r.number = 11;
                submit(&t.n, &r);
            }
            submit_some(&t.n, 3, 9, 8);
            run(&t.n, to);
            tiny_engine_close(&t);
        }
        for (int i = 0; i < 9; i++) /* the slots of the bad ones have served others since */
            if (!EXPECT(said[i].done == 1 && same_answer(&said[i], &want[i])))
                test_note("    request %d, late %d", i, late);
        EXPECT(said[10].failed == 1 && said[10].last && said[10].done == 0 && said[10].n == 0);
        EXPECT(strstr(said[10].error, "request 10") && strstr(said[10].error, "not finite"));
        EXPECT(said[11].failed == 3 && said[11].last);
    }
}

/* ---- E5: pieces ---- */

/* Tokens that request 0 gets between the submission of a long prompt and its first token. */
static int64_t tokens_meanwhile(int64_t piece, bool late, Said *said) {
    TinyEngine t;
    int32_t prompt[TINY_CONTEXT];
    int64_t before = -1, during = -1;
    memset(said, 0, MOST * sizeof *said);
    if (!tiny_engine_open(&t, (TinySpec){.poisoned = -1, .late = late, .options = {.piece = piece}})) return -1;
    submit_some(&t.n, 0, 1, 40);
    for (int i = 0; i < 4; i++) step(&t.n, said);
    Request r = request(prompt, 1, 6);
    for (int k = 0; k < 55; k++) prompt[k] = 8 + k * 7 % 80;
    r.n_prompt = 55; /* four passes */
    submit(&t.n, &r);
    before = t.n.counts.new_tokens;
    for (EngineState state = ENGINE_BUSY; state == ENGINE_BUSY;) {
        if (during < 0 && t.n.prompt_ticket == 1) during = t.n.counts.new_tokens - before;
        state = step(&t.n, said);
    }
    tiny_engine_close(&t);
    return during;
}

TEST(others_get_tokens_while_a_long_prompt_is_read_in_pieces) {
    static Said whole[MOST], pieces[MOST];
    for (int late = 0; late < 2; late++) {
        int64_t at_once = tokens_meanwhile(0, late, whole), by_pieces = tokens_meanwhile(16, late, pieces);
        if (!EXPECT(at_once <= 1 && by_pieces >= 3))
            test_note("    %lld and %lld tokens", (long long)at_once, (long long)by_pieces);
        for (int i = 0; i < 2; i++) EXPECT(same_answer(&whole[i], &pieces[i]));
        EXPECT(whole[0].n == 40 && whole[1].n == 6);
    }
    EXPECT(tokens_meanwhile(40, false, pieces) < tokens_meanwhile(16, false, whole)); /* larger pieces, fewer tokens */
}

/* ---- given continuations ---- */

TEST(given_continuations_are_scored_and_gone_on_from) {
    static Said said[MOST];
    TinyEngine t;
    int32_t prompt[TINY_CONTEXT];
    memset(said, 0, sizeof said);
    if (!tiny_engine_open(&t, (TinySpec){.poisoned = -1, .slots = 1})) return;
    Request drawn = request(prompt, 0, 8);
    submit(&t.n, &drawn);
    run(&t.n, said);
    /* its own answer, given: the same numbers, stop ids or not */
    Request given = drawn;
    given.forced = said[0].ids;
    given.n_forced = 8;
    given.number = 1;
    given.key = 4711;
    given.stop_id = said[0].ids + 3;
    given.n_stop_ids = 1;
    submit(&t.n, &given);
    run(&t.n, said);
    EXPECT(same_answer(&said[0], &said[1]) && said[1].end == GEN_END_LENGTH);
    EXPECT(!memcmp(said[0].logp, said[1].logp, 8 * sizeof(float)) && said[0].logp[2] < 0);
    /* other words: each as if it stood alone behind what comes before it */
    int32_t other[5] = {11, 60, 33, 33, 80}, longer[TINY_CONTEXT];
    given.forced = other;
    given.n_forced = given.max_new = 5;
    given.n_stop_ids = 0;
    given.number = 2;
    submit(&t.n, &given);
    run(&t.n, said);
    EXPECT(said[2].n == 5 && !memcmp(said[2].ids, other, sizeof other));
    memcpy(longer, prompt, sizeof prompt);
    memcpy(longer + drawn.n_prompt, other, sizeof other);
    for (int k = 0; k < 5; k++) {
        Request one = given;
        one.prompt = longer;
        one.n_prompt = drawn.n_prompt + k;
        one.forced = other + k;
        one.n_forced = one.max_new = 1;
        one.number = 3;
        memset(&said[3], 0, sizeof said[3]);
        submit(&t.n, &one);
        run(&t.n, said);
        EXPECT(said[3].n == 1 && said[3].ids[0] == other[k]);
        EXPECT_NEAR(said[3].logp[0], said[2].logp[k], 1e-5);
    }
    /* an answer that begins with given words goes on as one whose prompt ends with them */
    Request on = given, whole = given;
    on.n_forced = 3, on.max_new = 9, on.number = 4, on.sampling.temperature = 0;
    whole.prompt = longer, whole.n_prompt += 3, whole.n_forced = 0, whole.max_new = 6, whole.number = 5;
    whole.sampling.temperature = 0;
    submit(&t.n, &on);
    submit(&t.n, &whole);
    run(&t.n, said);
    EXPECT(said[4].n == 9 && said[5].n == 6 && !memcmp(said[4].ids + 3, said[5].ids, 6 * 4));
    tiny_engine_close(&t);
}

TEST(samples_can_be_asked_for_by_their_numbers) {
    TinyEngine t;
    int32_t prompt[TINY_CONTEXT], first[6][12], number[6] = {0};
    memset(first, 0, sizeof first);
    if (!tiny_engine_open(&t, (TinySpec){.poisoned = -1, .slots = 3})) return;
    Request r = request(prompt, 0, 12), some = r;
    Err e = {0};
    r.samples = 6;
    some.samples = 2;
    some.first_sample = 3;
    submit(&t.n, &r);
    submit(&t.n, &some);
    for (EngineState state = ENGINE_BUSY; state == ENGINE_BUSY;) {
        state = engine_step(&t.n, &e);
        for (EngineEvent ev; engine_event(&t.n, &ev);) {
            if (number[ev.sample]++ == 0) memcpy(first[ev.sample], ev.ids, sizeof first[0]);
            else EXPECT(!memcmp(first[ev.sample], ev.ids, sizeof first[0]));
        }
    }
    for (int i = 0; i < 6; i++) EXPECT(number[i] == (i == 3 || i == 4 ? 2 : 1));
    EXPECT(memcmp(first[3], first[4], sizeof first[0]) && memcmp(first[0], first[3], sizeof first[0]));
    tiny_engine_close(&t);
}

/* ---- text ---- */

TEST(streamed_text_is_all_of_the_text) {
    static Said said[MOST];
    Tokenizer *words = tiny_tokenizer(false);
    TinyEngine t;
    int32_t prompt[TINY_CONTEXT];
    memset(said, 0, sizeof said);
    if (!tiny_engine_open(&t, (TinySpec){.poisoned = -1, .tokenizer = words})) return;
    char stop[3] = "";
    for (int i = 0; i < 6; i++) {
        const char *const stops[] = {stop};
        Request r = request(prompt, i, 20);
        r.stream = i % 2 == 0;
        if (i >= 4) { /* two bytes from the middle of what request 0 said */
            r = request(prompt, 0, 20);
            memcpy(stop, said[0].text + 6, 2);
            r.number = i;
            r.stream = i == 4;
            r.stops = (StopTexts){stops, 1};
        }
        submit(&t.n, &r);
        if (i == 3) run(&t.n, said);
    }
    run(&t.n, said);
    for (int i = 0; i < 6; i++) {
        EXPECT(said[i].done == 1 && said[i].text[0]);
        if (i % 2) EXPECT(said[i].text_events == 0);
        else EXPECT_STR(said[i].streamed, said[i].text);
    }
    EXPECT(said[0].text_events > 3);
    EXPECT(said[4].end == GEN_END_TEXT && !strstr(said[4].text, stop) && !strncmp(said[4].text, said[0].text, 6));
    EXPECT_STR(said[4].text, said[5].text);
    tiny_engine_close(&t);
    tokenizer_close(words);
}
