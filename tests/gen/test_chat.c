/* test_chat.c - snug chat as a person uses it: lines edited and remembered in front of a terminal, Ctrl-C, commands,
 * messages of many lines; and the same without a terminal. */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/data/tiny_data.h"
#include "tests/terminal.h"
#include "tests/snug.h"
#include "tests/test.h"

static void write_text(const char *path, const char *text) { file_write_all(path, text, (int64_t)strlen(text), NULL); }

/* A model in m that can be talked to: bytes are its tokens. */
static void make_model(void) {
    tokenizer_close(tiny_tokenizer(false)); /* writes tok/tokenizer.json */
    Ran r = snug_run(
        "init --model llama-3.2-1b --out %s --dtype fp32 --set num_hidden_layers=2 --set hidden_size=32 "
        "--set num_attention_heads=2 --set num_key_value_heads=1 --set intermediate_size=48 --set "
        "initializer_range=0.3 "
        "--set vocab_size=260 --tokenizer %s",
        test_path("m"), test_path("tok"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    write_text(test_path("m/chat_template.jinja"), tiny_chatml);
}

static json_t *saved(const char *name) { /* the messages of that file; gives, NULL: there are none */
    json_t *j = json_load_file(test_path(name), 0, NULL), *messages = json_incref(json_object_get(j, "messages"));
    json_decref(j);
    return messages;
}

static const char *content(json_t *messages, size_t at) {
    const char *text = json_string_value(json_object_get(json_array_get(messages, at), "content"));
    return text ? text : "(none)";
}
static const char *role(json_t *messages, size_t at) {
    const char *text = json_string_value(json_object_get(json_array_get(messages, at), "role"));
    return text ? text : "(none)";
}

static Ran chat(const char *more, const char *input) {
    write_text(test_path("in"), input);
    return snug_run("chat --model %s --max-tokens 8 --temperature 1 --device cpu %s <%s", test_path("m"), more,
                    test_path("in"));
}

/* ---- without a terminal ---- */

TEST(chat_commands_change_save_and_load_the_conversation) {
    char input[2000], more[400];
    make_model();
    snprintf(input, sizeof input,
             "first\n/system be brief\nsecond\n/save %s\n/retry\n/save %s\n/reset\n/save %s\n/system -\n/load "
             "%s\nthird\n/save %s\n",
             test_path("a"), test_path("b"), test_path("c"), test_path("a"), test_path("d"));
    Ran r = chat("--system hello", input);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    json_t *a = saved("a"), *b = saved("b"), *c = saved("c"), *d = saved("d");
    EXPECT(json_array_size(a) == 5 && json_array_size(b) == 5 && json_array_size(c) == 1 && json_array_size(d) == 7);
    EXPECT_STR(content(a, 0), "be brief");
    EXPECT_STR(content(a, 1), "first");
    EXPECT_STR(role(a, 2), "assistant");
    EXPECT_STR(content(a, 3), "second");
    EXPECT_STR(content(b, 3), "second");
    EXPECT(strcmp(content(a, 4), content(b, 4))); /* made again, by other random numbers */
    EXPECT_STR(content(c, 0), "be brief");
    EXPECT_STR(content(d, 4), content(a, 4));
    EXPECT_STR(content(d, 5), "third");
    /* what was saved is a prompt of generate, and a row of training */
    json_t *row = json_load_file(test_path("d"), 0, NULL);
    json_array_remove(json_object_get(row, "messages"), 6);
    char *text = json_dumps(row, JSON_COMPACT);
    write_text(test_path("p.jsonl"), text);
    mem_free(text);
    json_decref(row);
    r = snug_run("generate --model %s --prompts %s --max-tokens 3 --device cpu", test_path("m"), test_path("p.jsonl"));
    EXPECT(r.code == 0);
    ran_free(&r);
    /* a file that is there is not lost */
    snprintf(input, sizeof input, "hello\n/save %s\n", test_path("a"));
    r = chat("", input);
    EXPECT(r.code == 1 && strstr(str_text(&r.err), "already there"));
    ran_free(&r);
    json_t *again = saved("a");
    EXPECT(json_equal(again, a));
    snprintf(input, sizeof input, "/load %s\n/save %s\n/save %s\n", test_path("a"), test_path("a"),
             test_path("a")); /* its own may */
    r = chat("", input);
    EXPECT(r.code == 0);
    ran_free(&r);
    snprintf(more, sizeof more, "/load %s\n", test_path("in"));
    r = chat("", more);
    EXPECT(r.code == 1 && strstr(str_text(&r.err), "no messages"));
    ran_free(&r);
    r = chat("", "/nonsense\n");
    EXPECT(r.code == 2 && strstr(str_text(&r.err), "/help"));
    ran_free(&r);
    r = chat("", "/help\n");
    EXPECT(r.code == 0 && strstr(str_text(&r.err), "/retry") && strstr(str_text(&r.err), "/save FILE"));
    ran_free(&r);
    json_decref(a), json_decref(b), json_decref(c), json_decref(d), json_decref(again);
}

TEST(messages_of_many_lines_are_one_message) {
    char input[1000];
    make_model();
    snprintf(input, sizeof input, "one \\\ntwo\\\nthree\n\"\"\"\nfour\n\n/five\\\nsix\n\"\"\"\n /seven\n/save %s\n",
             test_path("a"));
    Ran r = chat("", input);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    json_t *a = saved("a");
    EXPECT(json_array_size(a) == 6);
    EXPECT_STR(content(a, 0), "one \ntwo\nthree");
    EXPECT_STR(content(a, 2), "four\n\n/five\\\nsix");
    EXPECT_STR(content(a, 4), " /seven");
    json_decref(a);
}

/* ---- in front of one ---- */

static bool has_libedit(void) {
    void *l = dlopen("libedit.so.2", RTLD_NOW);
    if (!l) l = dlopen("libedit.so.0", RTLD_NOW);
    if (l) dlclose(l);
    else test_skip("libedit is not installed: lines are not edited");
    return l != NULL;
}

static bool begin(Terminal *t, const char *before, const char *more) {
    char arguments[1000];
    snprintf(arguments, sizeof arguments, "chat --model %s --temperature 0 --device cpu %s", test_path("m"), more);
    return terminal_start(t, before, arguments) && EXPECT(terminal_wait(t, "/quit leaves")) &&
           EXPECT(terminal_wait(t, "> "));
}

static void type_save(Terminal *t, const char *name) {
    char keys[400];
    snprintf(keys, sizeof keys, "/save %s\r", test_path(name));
    terminal_type(t, keys);
    EXPECT(terminal_wait(t, "messages saved"));
}

TEST(lines_are_edited_and_remembered_from_one_chat_to_the_next) {
    char before[400];
    Terminal t;
    if (!has_libedit()) return;
    make_model();
    snprintf(before, sizeof before, "TERM=xterm LC_ALL=C.UTF-8 XDG_STATE_HOME=%s", test_path("state"));
    if (!begin(&t, before, "--max-tokens 4")) return;
    terminal_type(&t, "helo\033[Dl\r"); /* left, then the letter that is missing: caf\xc3\xa9 comes in one piece too */
    EXPECT(terminal_wait(&t, "> "));
    terminal_type(&t, "caf\xc3\xa9!\b\r");
    EXPECT(terminal_wait(&t, "> "));
    terminal_type(&t, "\033[A\033[A\r"); /* up twice: the first line again */
    EXPECT(terminal_wait(&t, "> "));
    type_save(&t, "a");
    terminal_type(&t, "\004"); /* Ctrl-D */
    EXPECT(terminal_end(&t) == 0);
    json_t *a = saved("a");
    EXPECT_STR(content(a, 0), "hello");
    EXPECT_STR(content(a, 2), "caf\xc3\xa9");
    EXPECT_STR(content(a, 4), "hello");
    json_decref(a);
    EXPECT(file_exists(test_path("state/snug/chat_history")));

    if (!begin(&t, before, "--max-tokens 4")) return;
    terminal_type(&t, "\033[A\033[A\r"); /* behind /save is what was said before it */
    EXPECT(terminal_wait(&t, "> "));
    type_save(&t, "b");
    terminal_type(&t, "/quit\r");
    EXPECT(terminal_end(&t) == 0);
    json_t *b = saved("b");
    EXPECT_STR(content(b, 0), "hello");
    json_decref(b);
}

TEST(a_history_that_cannot_be_written_does_not_matter) {
    Terminal t;
    make_model();
    static const char *const homes[] = {"TERM=xterm XDG_STATE_HOME=/dev/null/x",
                                        "TERM=xterm XDG_STATE_HOME= HOME=/proc", "TERM=xterm XDG_STATE_HOME= HOME="};
    for (int i = 0; i < COUNT_OF(homes); i++) {
        if (!begin(&t, homes[i], "--max-tokens 4")) return;
        terminal_type(&t, "hello\r");
        EXPECT(terminal_wait(&t, "> "));
        terminal_type(&t, "/quit\r");
        EXPECT(terminal_end(&t) == 0);
    }
}

/* With libedit and without: an answer that would go on for long is ended, the conversation goes on. */
TEST(ctrl_c_ends_the_answer_and_drops_a_line_not_the_program) {
    static const char *const kinds[] = {"TERM=xterm XDG_STATE_HOME=/dev/null", "TERM=dumb"};
    make_model();
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        Terminal t;
        char name[16];
        snprintf(name, sizeof name, "a%d", i);
        if (!begin(&t, kinds[i], "--context 100000 --max-tokens 90000")) return;
        terminal_type(&t, "tell me\r");
        EXPECT(terminal_wait(&t, "\n")); /* what was typed; the answer comes now */
        EXPECT(terminal_more(&t, 200));
        terminal_type(&t, "\003");
        EXPECT(terminal_wait(&t, "> "));
        terminal_type(&t, "half a li\003");
        EXPECT(terminal_wait(&t, "> "));
        type_save(&t, name);
        terminal_type(&t, "/quit\r");
        EXPECT(terminal_end(&t) == 0);
        json_t *a = saved(name);
        EXPECT(json_array_size(a) == 2);
        EXPECT_STR(content(a, 0), "tell me");
        json_decref(a);
    }
}

/* While an answer is written the terminal is the kernel's, which keeps the end of the input as a zero. */
TEST(ctrl_d_that_is_typed_into_an_answer_ends_the_chat_behind_it) {
    Terminal t;
    make_model();
    if (!begin(&t, "TERM=xterm XDG_STATE_HOME=/dev/null", "--context 4096 --max-tokens 3000")) return;
    terminal_type(&t, "tell me\r");
    EXPECT(terminal_wait(&t, "\n"));
    EXPECT(terminal_more(&t, 100));
    terminal_type(&t, "\004");
    EXPECT(terminal_end(&t) == 0);
}

TEST(a_signal_that_is_no_ctrl_c_leaves_the_chat) {
    Terminal t;
    make_model();
    if (!begin(&t, "TERM=xterm XDG_STATE_HOME=/dev/null", "--max-tokens 4")) return;
    kill(t.pid, SIGTERM);
    EXPECT(terminal_end(&t) == 0);
}

TEST(a_message_too_long_for_the_context_does_not_end_the_chat) {
    Terminal t;
    make_model();
    if (!begin(&t, "TERM=dumb", "--context 64 --max-tokens 8")) return;
    terminal_type(&t,
                  "this message has many more bytes than sixty-four, and every one of them is a token of its own\r");
    EXPECT(terminal_wait(&t, "give a larger --context"));
    EXPECT(terminal_wait(&t, "> "));
    terminal_type(&t, "short\r");
    EXPECT(terminal_wait(&t, "> "));
    type_save(&t, "a");
    terminal_type(&t, "/quit\r");
    EXPECT(terminal_end(&t) == 0);
    json_t *a = saved("a");
    EXPECT(json_array_size(a) == 2);
    EXPECT_STR(content(a, 0), "short");
    json_decref(a);
}
