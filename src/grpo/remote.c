/* remote.c - when each prompt is asked, asked again, given up, or waits for the server to come back. */
#include "grpo/remote.h"

#include <errno.h>
#include <math.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"
#include "grpo/remote_int.h"
#include "obs/sensors.h"

enum { LOOK_MS = 200, WARNINGS = 20, CONCURRENCY_MOST = 256, HEALTH_ID = -1, CHECK_TIMEOUT = 10,
       LONGEST_REPLY = 4 * MIB };
static const double LONGEST_WAIT = 60; /* before an attempt, whatever a server asks for */

typedef enum AskState {
    ASK_WAITS,
    ASK_FLIES,
    ASK_SPENT /* attempts used up; the next health check decides */
} AskState;

typedef struct RemoteRequest {
    int64_t id;
    char *name, *body; /* owns */
    AskState state;
    int attempts;
    double not_before;
    char *why; /* of the latest failure; owns */
} RemoteRequest;

struct Remote {
    RemoteSpec spec;
    Http *http;
    Str url, health_url;
    RemoteFn *fn;
    void *user;
    RemoteRequest *ask; /* in the order they came */
    int64_t n, capacity;
    bool checking, paused;
    double next_check, paused_at;
    int64_t warned;
    bool health_known; /* since the check that remote_open makes */
    Err fatal;
    RemoteFacts facts;
};

/* ---- the end of a prompt ---- */

static void remove_ask(Remote *r, int64_t i) {
    mem_free(r->ask[i].name);
    mem_free(r->ask[i].body);
    mem_free(r->ask[i].why);
    r->n--;
    for (; i < r->n; i++) r->ask[i] = r->ask[i + 1];
}

static void lose(Remote *r, int64_t i, const char *why) {
    RemoteRequest ask = r->ask[i];
    r->facts.lost++;
    if (r->warned++ < WARNINGS)
        log_warn("evaluator's answer to %s: %s. It counts as missing%s", ask.name, why,
                 r->warned == WARNINGS ? "; further ones are counted, not named" : "");
    r->fn(r->user, &(RemoteAnswer){.id = ask.id, .tokens = -1, .why = why});
    remove_ask(r, i);
}

static void answer(Remote *r, int64_t i, const Reply *reply) {
    r->facts.answered++;
    r->fn(r->user, &(RemoteAnswer){.id = r->ask[i].id,
                                   .text = str_text(&reply->text),
                                   .tokens = reply->tokens,
                                   .cut = reply->cut,
                                   .why = ""});
    remove_ask(r, i);
}

/* ---- health ---- */

static void check_health(Remote *r) {
    if (r->checking || !http_free(r->http)) return;
    r->checking = true;
    http_send(r->http, HEALTH_ID,
              &(HttpRequest){.url = r->health_url.data,
                             .key = r->spec.key,
                             .connect_seconds = CHECK_TIMEOUT,
                             .seconds = CHECK_TIMEOUT});
}

static void begin_pause(Remote *r, const char *why) {
    r->next_check = sensors_seconds() + r->spec.check_seconds;
    if (r->paused) return;
    r->paused = true;
    r->paused_at = sensors_seconds();
    r->facts.pauses++;
    log_warn("the evaluator at %s does not answer (%s). The run waits until it does; Ctrl-C stops it", r->url.data,
             why);
}

/* Everything that failed meanwhile has its attempts again. */
static void end_pause(Remote *r) {
    double seconds = sensors_seconds() - r->paused_at;
    r->paused = false;
    r->facts.paused_seconds += seconds;
    log_line("the evaluator at %s answers again after %s; going on", r->url.data, units_seconds(seconds).s);
    for (int64_t i = 0; i < r->n; i++) {
        if (r->ask[i].state == ASK_FLIES) continue;
        r->ask[i].state = ASK_WAITS;
        r->ask[i].attempts = 0;
        r->ask[i].not_before = 0;
    }
}

static void take_health(Remote *r, const HttpReply *h) {
    Reply reply;
    r->checking = false;
    remote_read_health(&reply, &r->spec, h);
    if (reply.kind == REPLY_FATAL || (!r->health_known && reply.kind != REPLY_ANSWER)) {
        fail(&r->fatal, ERR_FAIL, "the evaluator at %s: %s", r->health_url.data, str_text(&reply.why));
    } else if (reply.kind != REPLY_ANSWER) {
        begin_pause(r, str_text(&reply.why));
    } else if (r->paused) {
        end_pause(r);
    } else {
        for (int64_t i = r->n; i-- > 0;)
            if (r->ask[i].state == ASK_SPENT) lose(r, i, r->ask[i].why);
    }
    r->health_known = true;
    remote_reply_free(&reply);
}

/* ---- replies ---- */

static void try_again(Remote *r, RemoteRequest *a, const HttpReply *h, const char *why) {
    double wait = r->spec.backoff_seconds * pow(2, a->attempts - 1);
    a->state = a->attempts < r->spec.attempts ? ASK_WAITS : ASK_SPENT;
    a->not_before = sensors_seconds() + fmin(LONGEST_WAIT, fmax(wait, h->retry_after));
    mem_free(a->why);
    a->why = mem_strdup(why);
    r->facts.retries += a->state == ASK_WAITS;
    if (a->state == ASK_SPENT || !h->status) check_health(r); /* is it this prompt, or the server? */
}

static void take_reply(void *user, const HttpReply *h) {
    Remote *r = user;
    Reply reply;
    int64_t i = 0;
    if (h->id == HEALTH_ID) {
        take_health(r, h);
        return;
    }
    while (i < r->n && !(r->ask[i].id == h->id && r->ask[i].state == ASK_FLIES)) i++;
    CHECK(i < r->n);
    remote_read(&reply, &r->spec, h);
    switch (reply.kind) {
        case REPLY_ANSWER:
            answer(r, i, &reply);
            break;
        case REPLY_AGAIN:
            try_again(r, &r->ask[i], h, str_text(&reply.why));
            break;
        case REPLY_LOST:
            lose(r, i, str_text(&reply.why));
            break;
        case REPLY_FATAL:
            r->ask[i].state = ASK_WAITS;
            fail(&r->fatal, ERR_FAIL, "the evaluator at %s: %s", r->url.data, str_text(&reply.why));
            break;
    }
    remote_reply_free(&reply);
}

/* ---- the owner's side ---- */

void remote_submit(Remote *r, int64_t id, const char *name, const char *prompt) {
    Str body = {0};
    CHECK(id >= 0);
    remote_body(&body, &r->spec, prompt);
    r->ask = mem_grow(r->ask, &r->capacity, r->n + 1, sizeof *r->ask);
    r->ask[r->n++] = (RemoteRequest){.id = id, .name = mem_strdup(name), .body = body.data};
}

int64_t remote_pending(const Remote *r) {
    return r->n;
}

bool remote_paused(const Remote *r) {
    return r->paused;
}

static void send_waiting(Remote *r, double now) {
    for (int64_t i = 0; i < r->n && http_free(r->http) > 1; i++) { /* one place is the health check's */
        RemoteRequest *a = &r->ask[i];
        if (a->state != ASK_WAITS || a->not_before > now) continue;
        a->state = ASK_FLIES;
        a->attempts++;
        http_send(r->http, a->id,
                  &(HttpRequest){.url = r->url.data,
                                 .body = a->body,
                                 .key = r->spec.key,
                                 .connect_seconds = CHECK_TIMEOUT,
                                 .seconds = r->spec.seconds});
    }
}

/* Until when nothing is to be done unless a reply comes. */
static double next_thing(const Remote *r, double until) {
    if (r->paused) return fmin(until, r->next_check);
    for (int64_t i = 0; i < r->n; i++)
        if (r->ask[i].state == ASK_WAITS && http_free(r->http) > 1) until = fmin(until, r->ask[i].not_before);
    return until;
}

bool remote_pump(Remote *r, int milliseconds, Err *e) {
    double now = sensors_seconds(), until = now + milliseconds * 1e-3;
    bool spent = false;
    for (int64_t i = 0; i < r->n; i++) spent |= r->ask[i].state == ASK_SPENT;
    if (r->paused ? now >= r->next_check : spent) check_health(r);
    if (!r->paused) send_waiting(r, now);
    http_pump(r->http, (int)ceil(fmax(0, next_thing(r, until) - now) * 1e3));
    if (r->fatal.code == ERR_NONE) return true;
    if (e) *e = r->fatal;
    return false;
}

static void drop_all(Remote *r) {
    http_drop_all(r->http);
    r->checking = false;
    while (r->n) remove_ask(r, r->n - 1);
}

bool remote_finish(Remote *r, bool (*keep_going)(void *user), void *user, Err *e) {
    while (r->n) {
        bool ok = remote_pump(r, LOOK_MS, e);
        if (ok && (!r->n || !keep_going || keep_going(user))) continue;
        if (ok)
            fail_system(e, EINTR, "interrupted while %lld answers of the evaluator were waited for",
                        (long long)r->n);
        drop_all(r);
        return false;
    }
    return true;
}

RemoteFacts remote_facts(const Remote *r) {
    RemoteFacts f = r->facts;
    if (r->paused) f.paused_seconds += sensors_seconds() - r->paused_at;
    return f;
}

/* ---- opening ---- */

static bool check_spec(RemoteSpec *s, Err *e) {
    if (!s->url && s->api != REMOTE_OLLAMA)
        return fail(e, ERR_USAGE, "the address of the evaluator's server is missing");
    if (s->url && !http_check_url(s->url, e)) return false;
    if (!s->model || !*s->model)
        return fail(e, ERR_USAGE, "the model that the server is asked for has no name; give --evaluator-name");
    if (!s->concurrency) s->concurrency = REMOTE_CONCURRENCY;
    if (!s->seconds) s->seconds = 60;
    if (!s->attempts) s->attempts = 4;
    if (!s->backoff_seconds) s->backoff_seconds = 0.5;
    if (!s->check_seconds) s->check_seconds = 2;
    if (!s->reply_bytes) s->reply_bytes = LONGEST_REPLY;
    if (s->concurrency < 1 || s->concurrency > CONCURRENCY_MOST)
        return fail(e, ERR_USAGE, "%d requests at a time: 1 to %d are possible", s->concurrency, CONCURRENCY_MOST);
    if (s->attempts < 1 || !(s->seconds > 0) || !(s->backoff_seconds > 0) || !(s->check_seconds > 0) ||
        s->reply_bytes < 0)
        return fail(e, ERR_USAGE, "time limits and attempts of a remote evaluator must be above 0");
    return true;
}

int64_t remote_reply_bytes(int64_t prompt_tokens, int64_t max_tokens) {
    enum { REPLY = 64 * KIB, TOKEN = 64 /* of text with every byte escaped, as tokens are longer than one byte */ };
    return REPLY + TOKEN * (prompt_tokens + max_tokens);
}

int64_t remote_bytes(const RemoteSpec *s) {
    enum { GROWING = 2, PARSED = 24 /* of each byte: a list of one-digit numbers takes most */ };
    int64_t at_once = (s->concurrency ? s->concurrency : REMOTE_CONCURRENCY) + 1;
    return (at_once * GROWING + PARSED) * (s->reply_bytes ? s->reply_bytes : LONGEST_REPLY);
}

bool remote_open(Remote **out, const RemoteSpec *spec, RemoteFn *fn, void *user, Err *e) {
    RemoteSpec checked = *spec;
    if (!check_spec(&checked, e)) return false;
    Remote *r = MEM_NEW(Remote, 1);
    *r = (Remote){.spec = checked, .fn = fn, .user = user};
    remote_answer_url(&r->url, &checked);
    remote_health_url(&r->health_url, &checked);
    bool ok = http_open(&r->http, checked.concurrency + 1, checked.reply_bytes, checked.proxy, take_reply, r, e);
    if (ok) check_health(r);
    while (ok && !r->health_known) ok = remote_pump(r, LOOK_MS, e);
    if (ok) {
        *out = r;
        return true;
    }
    remote_close(r);
    return false;
}

void remote_close(Remote *r) {
    if (!r) return;
    if (r->http) drop_all(r);
    http_close(r->http);
    str_free(&r->url);
    str_free(&r->health_url);
    mem_free(r->ask);
    mem_free(r);
}
