/* cmd_chat.c - snug chat: a conversation, line by line; standard input need not be a terminal. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/gen_setup.h"
#include "cli/line_input.h"
#include "data/source.h"

enum { CHAT_CONTEXT = 4096, CHAT_LEAST = 64 };

typedef struct Chat {
    const Options *o;
    GenSetup setup;
    LineInput *input;
    json_t *messages;
    TokenIds ids;
    Str line, text;  /* typed: a line; a message of one or more */
    Str reply;
    char saved[1024]; /* the file the conversation was last saved to or loaded from */
    int64_t turn;    /* answers so far, those made again too: each has its own random numbers */
} Chat;

/* ---- the conversation ---- */

static const char *role_at(const Chat *c, size_t at) {
    return json_string_value(json_object_get(json_array_get(c->messages, at), "role"));
}

static bool has_system(const Chat *c) { return json_array_size(c->messages) && !strcmp(role_at(c, 0), "system"); }

static bool add_message(Chat *c, const char *role, const char *text, int64_t bytes, Err *e) {
    json_t *m = json_pack("{s:s, s:s%}", "role", role, "content", text, (size_t)bytes);
    return m ? !json_array_append_new(c->messages, m) : fail(e, ERR_FAIL, "the message is not UTF-8");
}

/* The system message; "": none. What was said stays. */
static void set_system(Chat *c, const char *text) {
    if (has_system(c)) json_array_remove(c->messages, 0);
    if (*text) json_array_insert_new(c->messages, 0, json_pack("{s:s, s:s}", "role", "system", "content", text));
}

static void forget(Chat *c) { /* all but the system message */
    while (json_array_size(c->messages) > (size_t)has_system(c))
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

static void drop_last(Chat *c, const char *role) {
    size_t n = json_array_size(c->messages);
    if (n && !strcmp(role_at(c, n - 1), role)) json_array_remove(c->messages, n - 1);
}

/* The ids of the conversation; the oldest exchange is dropped until an answer has room. */
static bool encode(Chat *c, Err *e) {
    int64_t context = c->setup.gen->spec.context, room = context - MIN2(opt_int(c->o, OPT_MAX_TOKENS), context / 2);
    size_t first = has_system(c);
    for (;;) {
        c->ids.n = 0;
        if (!gen_setup_encode_chat(&c->setup, &c->ids, c->messages, e)) return false;
        if (c->ids.n <= room) return true;
        if (json_array_size(c->messages) <= first + 1)
            return fail(e, ERR_FAIL, "the message is %lld tokens long, there is room for %lld; %s",
                        (long long)c->ids.n, (long long)room,
                        context == c->setup.model.config.max_positions
                            ? "the model knows no more positions, so shorten it"
                            : "shorten it, or give a larger --context");
        json_array_remove(c->messages, first); /* what was asked, and what was answered */
        if (json_array_size(c->messages) > first + 1) json_array_remove(c->messages, first);
        log_line("(the oldest exchange is forgotten: the context is full)");
    }
}

/* ---- answers ---- */

static Request request_of(const Chat *c) {
    Request r = gen_setup_request(&c->setup, rng_fold((uint64_t)opt_int(c->o, OPT_SEED), (uint64_t)c->turn));
    r.prompt = c->ids.ids;
    r.n_prompt = c->ids.n;
    r.max_new = MIN2(r.max_new, c->setup.gen->spec.context - c->ids.n);
    r.number = c->turn;
    r.stream = true;
    return r;
}

/* Shows the text as it comes; the whole of it is the reply. */
static bool take_events(Chat *c, Err *e) {
    bool ok = true;
    for (EngineEvent ev; engine_event(&c->setup.engine, &ev);) {
        if (ev.kind == EVENT_FAILED) ok = fail(e, ERR_FAIL, "%s", ev.error);
        if (ev.kind == EVENT_TEXT) fwrite(ev.fresh, 1, (size_t)ev.fresh_bytes, stdout);
        if (ev.kind != EVENT_DONE) continue;
        str_clear(&c->reply);
        str_add_bytes(&c->reply, str_text(ev.text), ev.text->len);
        printf("\n");
    }
    return ok && (!fflush(stdout) || fail(e, ERR_FAIL, "standard output could not be written"));
}

static bool run_engine(Chat *c, Err *e) {
    Engine *n = &c->setup.engine;
    Request r = request_of(c);
    if (!engine_submit(n, &r, NULL, e)) return false;
    for (EngineState state = ENGINE_BUSY; state == ENGINE_BUSY;) {
        state = engine_step(n, e);
        if (state == ENGINE_BROKEN) return false;
        if (stop_signal) engine_cancel_all(n);
        if (!take_events(c, e)) return false;
        if (stop_signal) break;
    }
    if (stop_signal == SIGINT) stop_signal = 0; /* it ended the answer, not the conversation */
    return true;
}

/* To the last message, which is the user's. */
static bool answer(Chat *c, Err *e) {
    gen_setup_tell(&c->setup, "answering", "answer", 0);
    if (!encode(c, e) || !run_engine(c, e)) return false;
    c->turn++;
    c->setup.status.step = c->turn;
    return add_message(c, "assistant", str_text(&c->reply), c->reply.len, e);
}

static bool say(Chat *c, Err *e) {
    if (!c->text.len) return true;
    if (!add_message(c, "user", c->text.data, c->text.len, e)) return false;
    if (answer(c, e)) return true;
    drop_last(c, "user");
    return false;
}

/* ---- commands ---- */

typedef bool ChatCommand(Chat *c, const char *rest, Err *e);

static bool do_system(Chat *c, const char *rest, Err *e) {
    if (*rest) set_system(c, strcmp(rest, "-") ? rest : "");
    else if (has_system(c))
        log_line("%s", json_string_value(json_object_get(json_array_get(c->messages, 0), "content")));
    else log_line("there is no system message");
    return true;
}

static bool do_reset(Chat *c, const char *rest, Err *e) {
    forget(c);
    return true;
}

static bool do_retry(Chat *c, const char *rest, Err *e) {
    size_t n = json_array_size(c->messages);
    if (!n || !strcmp(role_at(c, n - 1), "system")) return fail(e, ERR_FAIL, "nothing was said yet");
    json_t *before = json_deep_copy(c->messages);
    drop_last(c, "assistant");
    bool ok = answer(c, e);
    if (!ok) { /* the answer before stays */
        json_decref(c->messages);
        c->messages = json_incref(before);
    }
    json_decref(before);
    return ok;
}

static bool do_save(Chat *c, const char *rest, Err *e) {
    if (!*rest) return fail(e, ERR_USAGE, "/save needs a file name");
    if (strlen(rest) >= sizeof c->saved) return fail(e, ERR_USAGE, "/save: the path is too long");
    if (file_exists(rest) && strcmp(rest, c->saved))
        return fail(e, ERR_FAIL, "%s: is already there; take another name", rest);
    json_t *j = json_pack("{s:O}", "messages", c->messages);
    Str line = {0};
    json_add(&line, j, JSON_ALL_DIGITS);
    str_add_char(&line, '\n');
    bool ok = file_write_all(rest, line.data, line.len, e);
    if (ok) snprintf(c->saved, sizeof c->saved, "%s", rest);
    if (ok) log_line("%zu messages saved", json_array_size(c->messages));
    str_free(&line);
    json_decref(j);
    return ok;
}

static bool check_messages(const json_t *messages) {
    size_t i;
    json_t *m;
    json_array_foreach(messages, i, m) {
        if (!json_is_string(json_object_get(m, "role")) || !json_is_string(json_object_get(m, "content"))) return false;
    }
    return json_array_size(messages) > 0;
}

static bool do_load(Chat *c, const char *rest, Err *e) {
    Str text = {0};
    json_error_t je;
    if (!*rest) return fail(e, ERR_USAGE, "/load needs a file name");
    if (!source_read_text(rest, &text, 1 << 28, e)) return false;
    json_t *j = json_loadb(str_text(&text), (size_t)text.len, JSON_DISABLE_EOF_CHECK, &je); /* its first row */
    json_t *messages = json_object_get(j, "messages");
    bool ok = check_messages(messages);
    if (ok) {
        json_decref(c->messages);
        c->messages = json_incref(messages);
        snprintf(c->saved, sizeof c->saved, "%s", strlen(rest) < sizeof c->saved ? rest : "");
        log_line("%zu messages loaded", json_array_size(messages));
    } else {
        fail(e, ERR_FAIL, "%s: its first row has no messages with a role and a content", rest);
    }
    json_decref(j);
    str_free(&text);
    return ok;
}

static bool do_help(Chat *c, const char *rest, Err *e);

static const struct {
    const char *name, *unit, *help;
    ChatCommand *run; /* NULL: leaves */
} commands[] = {{"/help", "", "this list", do_help},
                {"/system", " [TEXT]", "the system message from now on; - for none, alone: what it is", do_system},
                {"/retry", "", "answer the last message again", do_retry},
                {"/reset", "", "forget the conversation", do_reset},
                {"/save", " FILE", "the conversation as a row of messages, as training and generate read it", do_save},
                {"/load", " FILE", "go on with the first row of such a file", do_load},
                {"/quit", "", "leave; so does the end of input (Ctrl-D)", NULL},
                {"/exit", "", "the same", NULL}};

static bool do_help(Chat *c, const char *rest, Err *e) {
    for (int i = 0; i < COUNT_OF(commands); i++) {
        char name[40];
        snprintf(name, sizeof name, "%s%s", commands[i].name, commands[i].unit);
        log_line("  %-16s %s", name, commands[i].help);
    }
    log_line("  A line that ends in \\ goes on in the next; \"\"\" alone begins and ends a message of many lines.\n"
             "  Ctrl-C ends an answer, or drops the line that is being typed.");
    return true;
}

/* *leave: the conversation is over. */
static bool run_command(Chat *c, bool *leave, Err *e) {
    const char *text = str_text(&c->text), *space = strpbrk(text, " \t");
    int64_t len = space ? space - text : c->text.len;
    const char *rest = space ? space + strspn(space, " \t") : "";
    for (int i = 0; i < COUNT_OF(commands); i++) {
        if ((int64_t)strlen(commands[i].name) != len || strncmp(text, commands[i].name, (size_t)len)) continue;
        *leave = !commands[i].run;
        return *leave || commands[i].run(c, rest, e);
    }
    return fail(e, ERR_USAGE, "%.*s: is no command; /help lists them. A space in front makes it a message", (int)len,
                text);
}

/* ---- lines ---- */

static bool continues(const Str *line) { return line->len && line->data[line->len - 1] == '\\'; }

/* A message: a line, lines that end in a backslash and what follows them, or all between two lines of three quotes. */
static LineEnd read_message(Chat *c) {
    bool quoted = false;
    str_clear(&c->text);
    for (bool first = true;; first = false) {
        LineEnd end = line_input_read(c->input, first ? "> " : "... ", &c->line);
        if (end != LINE_GIVEN) return first || end == LINE_DROPPED ? end : LINE_GIVEN;
        bool mark = !strcmp(str_text(&c->line), "\"\"\"");
        if (mark && first) {
            quoted = true;
            continue;
        }
        if (mark && quoted) break;
        bool more = continues(&c->line) && !quoted;
        str_add_bytes(&c->text, str_text(&c->line), c->line.len - more);
        if (!more && !quoted) break;
        str_add_char(&c->text, '\n');
    }
    while (c->text.len && strchr("\r\n", c->text.data[c->text.len - 1])) c->text.data[--c->text.len] = 0;
    return LINE_GIVEN;
}

/* In front of a terminal what goes wrong with one message is said, and the conversation goes on. */
static bool recover(const Chat *c, Err *e) {
    if (!line_input_is_terminal(c->input)) return false;
    log_line("%s", e->text);
    *e = (Err){0};
    return true;
}

static bool talk(Chat *c, Err *e) {
    bool leave = false;
    if (line_input_is_terminal(c->input)) log_line("/help lists the commands, /quit leaves.");
    while (!leave) {
        gen_setup_tell(&c->setup, "waiting", "answer", 0);
        LineEnd end = read_message(c);
        if (end == LINE_CLOSED) break;
        if (end == LINE_DROPPED || !c->text.len) continue;
        line_input_remember(c->input, c->text.data);
        bool ok = c->text.data[0] == '/' ? run_command(c, &leave, e) : say(c, e);
        if (!ok && !recover(c, e)) return false;
        if (stop_signal) break; /* a signal that is no Ctrl-C */
    }
    return true;
}

/* ---- the whole ---- */

static const char *history_path(char to[1100]) { /* NULL: nowhere */
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && state[0]) snprintf(to, 1100, "%.1000s/snug/chat_history", state);
    else if (home && home[0]) snprintf(to, 1100, "%.1000s/.local/state/snug/chat_history", home);
    else return NULL;
    return to;
}

static bool start(Chat *c, Err *e) {
    const Options *o = c->o;
    if (!gen_setup_begin(&c->setup, o, e)) return false;
    if (!c->setup.words.chat)
        return fail(e, ERR_FAIL, "%s: has no chat template; `snug generate --prompt` continues a text",
                    opt_text(o, OPT_MODEL));
    int64_t known = c->setup.model.config.max_positions;
    c->setup.spec.context = opt_given(o, OPT_CONTEXT) ? opt_int(o, OPT_CONTEXT)
                            : known                   ? MIN2(known, CHAT_CONTEXT)
                                                      : CHAT_CONTEXT;
    int64_t least = opt_given(o, OPT_CONTEXT) ? c->setup.spec.context : CHAT_LEAST;
    return gen_setup_start(&c->setup, &(GenHost){.requests = MIB}, false, least, e);
}

static bool finish(const Chat *c, Err *e) {
    Peak peak = gen_setup_peak(&c->setup);
    if (opt_flag(c->o, OPT_JSON)) {
        json_t *j = json_pack("{s:I}", "turns", (json_int_t)c->turn);
        peak_add_ring(j, &c->setup.ring, &peak);
        show_print_json(j);
    }
    return peak_settle(&peak, c->o, e);
}

bool cmd_chat(const Options *o, Err *e) {
    Chat c = {.o = o, .messages = json_array()};
    char history[1100];
    if (opt_given(o, OPT_SYSTEM)) set_system(&c, opt_text(o, OPT_SYSTEM));
    bool ok = start(&c, e);
    if (ok) {
        c.input = line_input_open(history_path(history));
        ok = talk(&c, e);
        line_input_close(c.input);
        ok = ok && finish(&c, e);
    }
    json_decref(c.messages);
    token_ids_free(&c.ids);
    str_free(&c.line);
    str_free(&c.text);
    str_free(&c.reply);
    gen_setup_end(&c.setup);
    return ok;
}
