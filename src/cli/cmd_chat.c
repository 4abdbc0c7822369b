/* cmd_chat.c - snug chat: a conversation, line by line; standard input need not be a terminal. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/gen_setup.h"

enum { CHAT_CONTEXT = 4096, CHAT_LEAST = 64 };

typedef struct Chat {
    const Options *o;
    Engine engine;
    json_t *messages;
    TokenIds ids;
    Str reply;
    int64_t turn;
    bool asked; /* the engine has had this turn's request */
} Chat;

static void forget(Chat *c) {
    json_decref(c->messages);
    c->messages = json_array();
    if (opt_given(c->o, OPT_SYSTEM))
        json_array_append_new(c->messages, json_pack("{s:s, s:s}", "role", "system", "content", opt_text(c->o, OPT_SYSTEM)));
}

static void add_message(Chat *c, const char *role, const char *text, int64_t bytes) {
    json_array_append_new(c->messages, json_pack("{s:s, s:s%}", "role", role, "content", text, (size_t)bytes));
}

static bool on_next(void *user, Request *r) {
    Chat *c = user;
    if (c->asked) return false;
    c->asked = true;
    int64_t context = c->engine.gen->spec.context;
    *r = engine_request(&c->engine, rng_fold((uint64_t)opt_int(c->o, OPT_SEED), (uint64_t)c->turn));
    r->prompt = c->ids.ids;
    r->n_prompt = c->ids.n;
    r->max_new = MIN2(r->max_new, context - c->ids.n);
    r->number = c->turn;
    return true;
}

static bool on_said(void *user, const Answer *a, const char *text, int64_t bytes) {
    fwrite(text, 1, (size_t)bytes, stdout);
    return !fflush(stdout);
}

static bool on_done(void *user, const Answer *a, Err *e) {
    Chat *c = user;
    str_clear(&c->reply);
    str_add_bytes(&c->reply, str_text(a->text), a->text->len);
    printf("\n");
    return !fflush(stdout) || fail(e, ERR_FAIL, "standard output could not be written");
}

/* The ids of the conversation; the oldest exchange is dropped until an answer has room. */
static bool encode(Chat *c, Err *e) {
    int64_t room = c->engine.gen->spec.context - MIN2(opt_int(c->o, OPT_MAX_TOKENS), c->engine.gen->spec.context / 2);
    size_t first = opt_given(c->o, OPT_SYSTEM);
    for (;;) {
        c->ids.n = 0;
        if (!engine_encode_chat(&c->engine, &c->ids, c->messages, e)) return false;
        if (c->ids.n <= room) return true;
        if (json_array_size(c->messages) <= first + 1)
            return fail(e, ERR_FAIL, "the message is %lld tokens long, there is room for %lld; give a larger --context",
                        (long long)c->ids.n, (long long)room);
        json_array_remove(c->messages, first); /* what was asked, and what was answered */
        json_array_remove(c->messages, first);
        log_line("(the oldest exchange is forgotten: the context is full)");
    }
}

static bool answer(Chat *c, const char *line, int64_t bytes, Err *e) {
    GenCalls calls = {.user = c, .next = on_next, .said = on_said, .done = on_done, .stop = &stop_signal};
    add_message(c, "user", line, bytes);
    if (!encode(c, e)) return false;
    c->asked = false;
    stop_is_polled = 1; /* an interrupt ends the answer; at the prompt it ends the conversation */
    bool ok = gen_run(c->engine.gen, c->engine.words.tokenizer, &calls, e);
    stop_is_polled = 0;
    if (!ok) return false;
    add_message(c, "assistant", str_text(&c->reply), c->reply.len);
    c->turn++;
    return true;
}

static bool talk(Chat *c, Err *e) {
    char *line = NULL;
    size_t room = 0;
    bool ok = true, terminal = isatty(STDIN_FILENO);
    if (terminal) printf("/reset forgets, /quit leaves.\n");
    while (ok) {
        if (terminal) printf("> ");
        fflush(stdout);
        ssize_t n = getline(&line, &room, stdin);
        while (n > 0 && strchr("\r\n", line[n - 1])) n--;
        if (n < 0 || (stop_signal && !n)) break;
        line[n] = 0;
        if (!strcmp(line, "/quit") || !strcmp(line, "/exit")) break;
        stop_signal = 0; /* an interrupt ended the answer before, not the conversation */
        if (!strcmp(line, "/reset")) forget(c);
        else if (n) ok = answer(c, line, n, e);
    }
    mem_free(line);
    return ok;
}

static bool finish(const Chat *c, Err *e) {
    const Gen *g = c->engine.gen;
    Peak peak = engine_peak(&c->engine);
    if (opt_flag(c->o, OPT_JSON))
        printf(
            "{\"turns\":%lld,\"planned_bytes\":%lld,\"measured_bytes\":%lld,\"process_planned_bytes\":%lld,"
            "\"process_measured_bytes\":%lld,%s}\n",
            (long long)c->turn, (long long)g->placement.arena_bytes[POOL_DEVICE],
            (long long)g->x.pool_bytes[POOL_DEVICE], (long long)gen_process_bytes(g), (long long)peak.budget_bytes,
            peak_text(&peak).s);
    return peak_settle(&peak, c->o, e);
}

bool cmd_chat(const Options *o, Err *e) {
    Chat c = {.o = o};
    bool ok = engine_begin(&c.engine, o, e);
    if (ok && !c.engine.words.chat)
        ok =
            fail(e, ERR_FAIL, "%s: has no chat template; `snug generate --prompt` continues a text", opt_text(o, OPT_MODEL));
    if (ok) {
        int64_t known = c.engine.model.config.max_positions;
        c.engine.spec.context = opt_given(o, OPT_CONTEXT) ? opt_int(o, OPT_CONTEXT)
                                : known                   ? MIN2(known, CHAT_CONTEXT)
                                                          : CHAT_CONTEXT;
        int64_t least = opt_given(o, OPT_CONTEXT) ? c.engine.spec.context : CHAT_LEAST;
        ok = engine_start(&c.engine, &(GenHost){.requests = MIB}, false, least, e);
    }
    forget(&c);
    ok = ok && talk(&c, e) && finish(&c, e);
    json_decref(c.messages);
    token_ids_free(&c.ids);
    str_free(&c.reply);
    engine_end(&c.engine);
    return ok;
}
