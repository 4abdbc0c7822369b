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
    GenSetup setup;
    json_t *messages;
    TokenIds ids;
    Str reply;
    int64_t turn;
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

/* The ids of the conversation; the oldest exchange is dropped until an answer has room. */
static bool encode(Chat *c, Err *e) {
    int64_t room = c->setup.gen->spec.context - MIN2(opt_int(c->o, OPT_MAX_TOKENS), c->setup.gen->spec.context / 2);
    size_t first = opt_given(c->o, OPT_SYSTEM);
    for (;;) {
        c->ids.n = 0;
        if (!gen_setup_encode_chat(&c->setup, &c->ids, c->messages, e)) return false;
        if (c->ids.n <= room) return true;
        if (json_array_size(c->messages) <= first + 1)
            return fail(e, ERR_FAIL, "the message is %lld tokens long, there is room for %lld; give a larger --context",
                        (long long)c->ids.n, (long long)room);
        json_array_remove(c->messages, first); /* what was asked, and what was answered */
        json_array_remove(c->messages, first);
        log_line("(the oldest exchange is forgotten: the context is full)");
    }
}

static Request request_of(const Chat *c) {
    Request r = gen_setup_request(&c->setup, rng_fold((uint64_t)opt_int(c->o, OPT_SEED), (uint64_t)c->turn));
    r.prompt = c->ids.ids;
    r.n_prompt = c->ids.n;
    r.max_new = MIN2(r.max_new, c->setup.gen->spec.context - c->ids.n);
    r.number = c->turn;
    r.stream = true;
    return r;
}

static bool answer(Chat *c, const char *line, int64_t bytes, Err *e) {
    Engine *n = &c->setup.engine;
    add_message(c, "user", line, bytes);
    if (!encode(c, e)) return false;
    Request r = request_of(c);
    if (!engine_submit(n, &r, NULL, e)) return false;
    for (EngineState state = ENGINE_BUSY; state == ENGINE_BUSY;) {
        state = engine_step(n, e);
        if (state == ENGINE_BROKEN) return false;
        if (cmd_stop) engine_cancel_all(n);
        for (EngineEvent ev; engine_event(n, &ev);) {
            if (ev.kind == EVENT_FAILED) return fail(e, ERR_FAIL, "%s", ev.error);
            fwrite(ev.fresh, 1, (size_t)ev.fresh_bytes, stdout);
            if (ev.kind != EVENT_DONE) continue;
            str_clear(&c->reply);
            str_add_bytes(&c->reply, str_text(ev.text), ev.text->len);
            printf("\n");
        }
        if (fflush(stdout)) return fail(e, ERR_FAIL, "standard output could not be written");
        if (cmd_stop) break;
    }
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
        if (n < 0 || (cmd_stop && !n)) break;
        line[n] = 0;
        if (!strcmp(line, "/quit") || !strcmp(line, "/exit")) break;
        cmd_stop = 0; /* an interrupt ended the answer before, not the conversation */
        if (!strcmp(line, "/reset")) forget(c);
        else if (n) ok = answer(c, line, n, e);
    }
    mem_free(line);
    return ok;
}

bool cmd_chat(const Options *o, Err *e) {
    Chat c = {.o = o};
    bool ok = gen_setup_begin(&c.setup, o, e);
    if (ok && !c.setup.words.chat)
        ok =
            fail(e, ERR_FAIL, "%s: has no chat template; `snug generate --prompt` continues a text", opt_text(o, OPT_MODEL));
    if (ok) {
        int64_t known = c.setup.model.config.max_positions;
        c.setup.spec.context = opt_given(o, OPT_CONTEXT) ? opt_int(o, OPT_CONTEXT)
                                : known                   ? MIN2(known, CHAT_CONTEXT)
                                                          : CHAT_CONTEXT;
        int64_t least = opt_given(o, OPT_CONTEXT) ? c.setup.spec.context : CHAT_LEAST;
        ok = gen_setup_start(&c.setup, &(GenHost){.requests = MIB}, false, least, e);
    }
    forget(&c);
    ok = ok && talk(&c, e);
    json_decref(c.messages);
    token_ids_free(&c.ids);
    str_free(&c.reply);
    gen_setup_end(&c.setup);
    return ok;
}
