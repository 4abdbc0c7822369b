/* test_remote.c - an evaluator over HTTP, against a server that is slow, wrong, closed, or away for a while. */
#include <jansson.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/http.h"
#include "base/log.h"
#include "base/mem.h"
#include "grpo/remote.h"
#include "grpo/remote_int.h"
#include "obs/sensors.h"
#include "tests/grpo/server.h"
#include "tests/snug.h"
#include "tests/test.h"

/* ---- the evaluator that is played ---- */

enum { MOST = 300, LONG = 300 }; /* LONG: seconds that no reply takes */

typedef struct World {
    pthread_mutex_t lock;
    int asked[MOST]; /* requests for each prompt's number */
    atomic_int checks;
    atomic_bool sick; /* the health check fails */
    int status;       /* of every answer; 0: 200 */
} World;

static void say(Str *body, const char *path, const char *text) {
    if (str_starts(path, "/api/"))
        str_addf(body, "{\"response\": \"%s\", \"done_reason\": \"stop\", \"eval_count\": 5}", text);
    else if (str_ends(path, "/chat/completions"))
        str_addf(body,
                 "{\"choices\": [{\"message\": {\"content\": \"%s\"}, \"finish_reason\": \"length\"}], \"usage\": "
                 "{\"completion_tokens\": 7}}",
                 text);
    else
        str_addf(body, "{\"choices\": [{\"text\": \"%s\", \"finish_reason\": \"stop\"}]}", text);
}

/* The prompt of a request: "WORD NUMBER". */
static void read_prompt(char *word, int *number, const char *body) {
    json_t *v = json_loads(body, 0, NULL);
    const json_t *turns = json_object_get(v, "messages"),
                 *last = json_array_get(turns, json_array_size(turns) - 1);
    const char *prompt = json_string_value(last ? json_object_get(last, "content") : json_object_get(v, "prompt"));
    if (!prompt || sscanf(prompt, "%30s %d", word, number) != 2) snprintf(word, 31, "?");
    json_decref(v);
}

static void play(World *w, const char *word, int asked, ServerReply *r) {
    bool first = asked == 1, early = asked < 3;
    if (!strcmp(word, "slow")) r->delay_ms = first ? SERVER_FOR_EVER : 0;
    if (!strcmp(word, "broken") && early) r->status = 500;
    if (!strcmp(word, "busy") && first) r->status = 429;
    if (!strcmp(word, "closed") && early) r->status = 0;
    if (!strcmp(word, "half") && first) r->half = true;
    if (!strcmp(word, "garbage") && early) str_add(&r->body, "<html>proxy</html>");
    if (!strcmp(word, "hollow") && first) str_add(&r->body, "{\"choices\": []}");
    if (!strcmp(word, "huge"))
        for (int i = 0; i < 60000; i++) str_add(&r->body, "xxxxxxxxxx");
    if (!strcmp(word, "always")) r->status = 500;
    if (!strcmp(word, "toolong")) r->status = 400;
    if (w->status) r->status = w->status;
    if (r->status >= 400) str_addf(&r->body, "{\"error\": {\"message\": \"no: %s\"}}", word);
}

static void serve(void *user, const ServerRequest *q, ServerReply *r) {
    World *w = user;
    char word[31] = "?", text[80];
    int number = 0, asked = 0;
    if (!strcmp(q->method, "GET")) {
        w->checks++;
        if (w->sick) r->status = 503;
        if (!strcmp(q->path, "/nolist/v1/models")) r->status = 404;
        str_add(&r->body, "{}");
        return;
    }
    read_prompt(word, &number, q->body);
    pthread_mutex_lock(&w->lock);
    if (number >= 0 && number < MOST) asked = ++w->asked[number];
    pthread_mutex_unlock(&w->lock);
    play(w, word, asked, r);
    if (r->body.len) return;
    snprintf(text, sizeof text, "answer %d%s", number, strcmp(q->key, "secret") ? "" : " with key");
    say(&r->body, q->path, text);
}

/* ---- what a test sees ---- */

typedef struct Seen {
    char text[MOST][100];
    int times[MOST];
    bool lost[MOST];
    int64_t tokens;
    bool cut;
} Seen;

static void see(void *user, const RemoteAnswer *a) {
    Seen *seen = user;
    if (!EXPECT(a->id >= 0 && a->id < MOST)) return;
    seen->times[a->id]++;
    seen->lost[a->id] = !a->text;
    seen->tokens = a->tokens;
    seen->cut = a->cut;
    snprintf(seen->text[a->id], sizeof seen->text[0], "%s", a->text ? a->text : a->why);
}

typedef struct Fixture {
    World world;
    Server server;
    Seen seen;
    char url[100];
    RemoteSpec spec;
} Fixture;

static bool begin_at(Fixture *f, RemoteApi api, int port) { /* 0: any */
    memset(f, 0, sizeof *f);
    pthread_mutex_init(&f->world.lock, NULL);
    if (!http_is_there()) return test_skip("there is no libcurl"), false;
    if (!EXPECT(server_start(&f->server, port, serve, &f->world))) return false;
    snprintf(f->url, sizeof f->url, "http://127.0.0.1:%d", f->server.port);
    f->spec = (RemoteSpec){.api = api,
                           .url = f->url,
                           .model = "m",
                           .seed = -1,
                           .seconds = LONG,
                           .backoff_seconds = 0.02,
                           .check_seconds = 0.05,
                           .reply_bytes = 100000};
    log_quiet(true);
    return true;
}

static bool begin(Fixture *f, RemoteApi api) { return begin_at(f, api, 0); }

static void end(Fixture *f) {
    log_quiet(false);
    server_stop(&f->server);
}

static void submit(Remote *r, int id, const char *word) {
    char prompt[60], name[40];
    snprintf(prompt, sizeof prompt, "%s %d", word, id);
    snprintf(name, sizeof name, "item %d", id);
    remote_submit(r, id, name, prompt);
}

/* ---- tests ---- */

TEST(answers_of_every_api) {
    static const RemoteApi apis[] = {REMOTE_CHAT, REMOTE_COMPLETION, REMOTE_OLLAMA};
    for (int k = 0; k < COUNT_OF(apis); k++) {
        Fixture f;
        Remote *r;
        Err e = {0};
        if (!begin(&f, apis[k])) return;
        f.spec.key = "secret";
        f.spec.concurrency = 5;
        EXPECT_OK(remote_open(&r, &f.spec, see, &f.seen, &e));
        for (int i = 0; i < 100; i++) submit(r, i, "fine");
        EXPECT_OK(remote_finish(r, NULL, NULL, &e));
        for (int i = 0; i < 100; i++) {
            char want[40];
            snprintf(want, sizeof want, "answer %d with key", i);
            EXPECT_STR(f.seen.text[i], want);
            EXPECT(f.seen.times[i] == 1 && f.world.asked[i] == 1); /* asked once, told once */
        }
        EXPECT(f.seen.tokens == (apis[k] == REMOTE_CHAT ? 7 : apis[k] == REMOTE_OLLAMA ? 5 : -1));
        EXPECT(f.seen.cut == (apis[k] == REMOTE_CHAT) && f.server.most_at_once <= 5);
        EXPECT(remote_facts(r).answered == 100 && remote_facts(r).retries == 0 && f.world.checks == 1);
        remote_close(r);
        end(&f);
    }
}

TEST(requests_say_what_was_asked_for) {
    RemoteSpec s = {.api = REMOTE_CHAT,
                    .url = "https://host/api/v1/",
                    .model = "m",
                    .system = "Be",
                    .temperature = 0,
                    .max_tokens = 9,
                    .seed = 3};
    Str text = {0};
    remote_body(&text, &s, "p\xff");
    EXPECT_STR(text.data,
               "{\"model\":\"m\",\"stream\":false,\"messages\":[{\"role\":\"system\",\"content\":\"Be\"},{"
               "\"role\":\"user\","
               "\"content\":\"p\xef\xbf\xbd\"}],\"temperature\":0.0,\"max_tokens\":9,\"seed\":3}");
    str_clear(&text);
    remote_answer_url(&text, &s);
    EXPECT_STR(text.data, "https://host/api/v1/chat/completions");
    s = (RemoteSpec){
        .api = REMOTE_OLLAMA, .model = "m", .temperature = 0.5, .top_p = 0.25, .max_tokens = 9, .seed = -1};
    str_clear(&text);
    remote_body(&text, &s, "p");
    EXPECT_STR(
        text.data,
        "{\"model\":\"m\",\"stream\":false,\"prompt\":\"p\",\"options\":{\"temperature\":0.5,\"top_p\":0.25,"
        "\"num_predict\":9}}");
    str_clear(&text);
    remote_health_url(&text, &s);
    EXPECT_STR(text.data, "http://localhost:11434/api/version");
    str_free(&text);
}

static const struct {
    const char *word, *says;
    bool lost;
    int asked; /* 0: not counted */
} troubles[] = {
    {"broken", "answer", false, 3},
    {"busy", "answer", false, 2},
    {"closed", "answer", false, 3},
    {"half", "answer", false, 2},
    {"garbage", "answer", false, 3},
    {"hollow", "answer", false, 2},
    {"huge", "more than", true, 4},
    {"always", "status 500: no: always", true, 4},
    {"toolong", "status 400: no: toolong", true, 1},
    {"fine", "answer", false, 1},
};

TEST(troubles_are_tried_again_and_cost_at_most_their_sample) {
    Fixture f;
    Remote *r;
    Err e = {0};
    int n = COUNT_OF(troubles), lost = 0;
    if (!begin(&f, REMOTE_CHAT)) return;
    EXPECT_OK(remote_open(&r, &f.spec, see, &f.seen, &e));
    for (int i = 0; i < 2 * n; i++) submit(r, i, troubles[i % n].word);
    EXPECT(remote_pending(r) == 2 * n);
    EXPECT_OK(remote_finish(r, NULL, NULL, &e));
    for (int i = 0; i < 2 * n; i++) {
        EXPECT(f.seen.times[i] == 1 && f.seen.lost[i] == troubles[i % n].lost);
        if (!EXPECT(strstr(f.seen.text[i], troubles[i % n].says)))
            test_note("    %s: %s", troubles[i % n].word, f.seen.text[i]);
        EXPECT(f.world.asked[i] == troubles[i % n].asked);
        lost += f.seen.lost[i];
    }
    RemoteFacts facts = remote_facts(r);
    EXPECT(facts.lost == lost && facts.answered == 2 * n - lost && facts.pauses == 0);
    remote_close(r);
    end(&f);
}

/* False: a reply that was not held back came too late as well. */
static bool ask_slow_server(double seconds) {
    Fixture f;
    Remote *r;
    Err e = {0};
    if (!begin(&f, REMOTE_CHAT)) return true;
    f.spec.seconds = seconds;
    EXPECT_OK(remote_open(&r, &f.spec, see, &f.seen, &e));
    for (int i = 0; i < 2; i++) submit(r, i, "slow");
    EXPECT_OK(remote_finish(r, NULL, NULL, &e));
    bool counts = (f.world.asked[0] == 2 && f.world.asked[1] == 2) || seconds >= LONG;
    for (int i = 0; i < 2 && counts; i++)
        EXPECT(f.seen.times[i] == 1 && f.world.asked[i] == 2 && strstr(f.seen.text[i], "answer"));
    remote_close(r);
    end(&f);
    return counts;
}

/* Where the machine is so busy that a prompt reply comes too late, the same again with more time. */
TEST(a_reply_that_does_not_come_is_asked_for_again) {
    for (double seconds = 0.5; !ask_slow_server(seconds);) seconds *= 4;
}

static bool pauses(Remote *r) {
    Err e = {0};
    for (int i = 0; i < LONG * 50 && !remote_paused(r); i++) EXPECT_OK(remote_pump(r, 20, &e));
    return remote_paused(r);
}

TEST(a_server_that_goes_away_pauses_the_run) {
    Fixture f;
    Remote *r;
    Err e = {0};
    int port, held = server_hold(&port);
    if (!EXPECT(held >= 0) || !begin_at(&f, REMOTE_OLLAMA, port)) return;
    EXPECT_OK(remote_open(&r, &f.spec, see, &f.seen, &e));
    for (int i = 0; i < 60; i++) submit(r, i, "fine");
    while (remote_pending(r) > 40) EXPECT_OK(remote_pump(r, 50, &e));
    server_stop(&f.server);
    EXPECT(pauses(r));
    int64_t left = remote_pending(r);
    for (int i = 0; i < 5; i++) EXPECT_OK(remote_pump(r, 50, &e));
    EXPECT(remote_pending(r) == left && left > 0); /* nothing is given up */
    bool again = server_start(&f.server, port, serve, &f.world);
    if (EXPECT(again)) EXPECT_OK(remote_finish(r, NULL, NULL, &e));
    for (int i = 0; i < 60; i++) EXPECT(f.seen.times[i] == 1 && !f.seen.lost[i]);
    RemoteFacts facts = remote_facts(r);
    EXPECT(facts.pauses == 1 && facts.lost == 0 && facts.paused_seconds > 0 && !remote_paused(r));
    remote_close(r);
    end(&f);
    close(held);
}

TEST(a_server_that_is_not_well_pauses_the_run_too) {
    Fixture f;
    Remote *r;
    Err e = {0};
    if (!begin(&f, REMOTE_CHAT)) return;
    EXPECT_OK(remote_open(&r, &f.spec, see, &f.seen, &e));
    f.world.sick = true;
    f.world.status = 503;
    submit(r, 1, "fine");
    EXPECT(pauses(r));
    f.world.status = 0;
    f.world.sick = false;
    EXPECT_OK(remote_finish(r, NULL, NULL, &e));
    EXPECT_STR(f.seen.text[1], "answer 1");
    remote_close(r);
    end(&f);
}

static bool not_long(void *user) {
    return --*(int *)user > 0;
}

TEST(waiting_for_a_server_can_be_interrupted) {
    Fixture f;
    Remote *r;
    Err e = {0};
    int asked = 3;
    if (!begin(&f, REMOTE_CHAT)) return;
    EXPECT_OK(remote_open(&r, &f.spec, see, &f.seen, &e));
    f.world.sick = true;
    f.world.status = 503;
    for (int i = 0; i < 4; i++) submit(r, i, "fine");
    EXPECT(!remote_finish(r, not_long, &asked, &e) && strstr(e.text, "interrupted while 4 answers"));
    EXPECT(remote_pending(r) == 0);
    remote_close(r);
    end(&f);
}

TEST(a_server_that_refuses_ends_the_run) {
    static const struct {
        int status;
        const char *says;
    } c[] = {{401, "does it need a key?"}, {404, "is the model's name right"}, {302, "HTTP status 302"}};
    for (int i = 0; i < COUNT_OF(c); i++) {
        Fixture f;
        Remote *r;
        Err e = {0};
        if (!begin(&f, REMOTE_CHAT)) return;
        EXPECT_OK(remote_open(&r, &f.spec, see, &f.seen, &e));
        f.world.status = c[i].status;
        submit(r, 1, "fine");
        EXPECT(!remote_finish(r, NULL, NULL, &e));
        if (!EXPECT(strstr(e.text, c[i].says) && strstr(e.text, f.url))) test_note("    %s", e.text);
        EXPECT(f.world.asked[1] == 1 && f.seen.times[1] == 0);
        remote_close(r);
        end(&f);
    }
}

TEST(a_server_that_is_not_there_is_refused_at_the_beginning) {
    Fixture f;
    Remote *r = NULL;
    Err e = {0};
    if (!begin(&f, REMOTE_OLLAMA)) return;
    server_stop(&f.server);
    EXPECT(!remote_open(&r, &f.spec, see, &f.seen, &e) && strstr(e.text, "/api/version"));
    log_quiet(false);
    static const char *const bad[] = {"localhost:11434", "file:///etc/passwd", "http://", "http://a b"};
    for (int i = 0; i < COUNT_OF(bad); i++) {
        f.spec.url = bad[i];
        EXPECT(!remote_open(&r, &f.spec, see, &f.seen, &e) && strstr(e.text, "is no address"));
    }
    f.spec.url = f.url;
    f.spec.model = "";
    EXPECT(!remote_open(&r, &f.spec, see, &f.seen, &e) && e.code == ERR_USAGE && strstr(e.text, "model"));
}

TEST(a_server_without_a_list_of_models_is_well) {
    Fixture f;
    Remote *r;
    Err e = {0};
    char url[140];
    if (!begin(&f, REMOTE_CHAT)) return;
    snprintf(url, sizeof url, "%s/nolist/v1", f.url);
    f.spec.url = url;
    EXPECT_OK(remote_open(&r, &f.spec, see, &f.seen, &e));
    submit(r, 1, "fine");
    EXPECT_OK(remote_finish(r, NULL, NULL, &e));
    EXPECT_STR(f.seen.text[1], "answer 1");
    remote_close(r);
    end(&f);
}

TEST(kinds_of_servers_by_name) {
    RemoteApi api;
    Err e = {0};
    EXPECT(remote_api_find(&api, "openai", &e) && api == REMOTE_CHAT);
    EXPECT(remote_api_find(&api, "Ollama", &e) && api == REMOTE_OLLAMA);
    EXPECT(!remote_api_find(&api, "olama", &e) && strstr(e.text, "Did you mean ollama?"));
}

/* ---- the whole command ---- */

/* A list of numbers takes most of all replies once it is parsed; half of the replies are longer than any answer. */
static void serve_rubbish(void *user, const ServerRequest *q, ServerReply *r) {
    atomic_int *asked = user;
    int64_t bytes = (*asked)++ % 2 ? 60000 : 8 << 20;
    if (!strcmp(q->method, "GET")) {
        str_add(&r->body, "{}");
        return;
    }
    str_add(&r->body, "[0");
    while (r->body.len < bytes) str_add(&r->body, ",0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9");
    str_add(&r->body, "]");
}

TEST(a_server_that_sends_megabytes_stays_within_the_plan) {
    Server server;
    atomic_int asked = 0;
    if (!http_is_there()) {
        test_skip("there is no libcurl");
        return;
    }
    if (test_sanitized()) {
        test_skip("the sanitizers' own memory is in no command's plan");
        return;
    }
    if (!EXPECT(server_start(&server, 0, serve_rubbish, &asked))) return;
    Ran r = snug_run(
        "grpo --model models/tally --device cpu --threads 1 --parser test --max-samples 24 --eval-samples 0 --group 4 "
        "--global-batch 16 --prompt-tokens 64 --max-tokens 12 --steps 1 --log-steps 1 --beta 0 --precision fp32 "
        "--reward length --evaluator-name m --evaluator-url http://127.0.0.1:%d --out %s/rubbish --json",
        server.port, test_tmp());
    json_t *j = r.code == 0 ? ran_json(&r) : NULL;
    if (EXPECT(j)) EXPECT(json_integer_value(json_object_get(j, "above_plan_bytes")) == 0);
    if (!EXPECT(strstr(str_text(&r.err), "more than"))) test_note("%s", str_text(&r.err));
    EXPECT(asked > 16);
    json_decref(j);
    ran_free(&r);
    server_stop(&server);
}
