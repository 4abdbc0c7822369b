/* process.c - which process works on which sample, and how each of them can go wrong. */
#include "grpo/process.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/child.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"
#include "grpo/clean.h"
#include "obs/sensors.h"

enum { LOOK_MS = 200, WARNINGS = 20, EXCERPT = 60, GRACE_SECONDS = 1 };
static const double DYING_SECONDS = 1; /* for the exit code of a process that closed its output */
/* A process may start up so many times as slowly as the quickest so far, and so many seconds more. */
static const double START_TIMES = 4, START_MORE = 2;

typedef struct ScoreRequest {
    int64_t id;
    char *name, *line; /* owns */
} ScoreRequest;

typedef struct Worker {
    Child child;
    bool busy, fresh; /* fresh: it has not replied yet */
    ScoreRequest ask;
    int64_t sent; /* bytes of the line */
    char *reply;  /* [reply_bytes], owns */
    int64_t got;
    double started, limit, deadline; /* limit: seconds for the sample at hand */
} Worker;

struct Scorer {
    ScorerSpec spec;
    const char *shell[4];
    const char *const *argv;
    ScoreFn *fn;
    void *user;
    Worker *worker; /* [processes] */
    ScoreRequest *queue; /* [first, last) wait */
    int64_t first, last, capacity;
    int64_t warned;
    double quickest_start; /* seconds from a process's start to its first reply; 0: none has replied */
    int64_t deaths; /* processes in a row that left without a reply, while the command never gave one; -1: it has */
    bool warned_of_failures, warned_of_deaths;
    bool had_all_the_time; /* one that was starting up did not reply in all of its time */
    char why[200];         /* the latest sample that got no reply */
    ScorerFacts facts;
};

/* ---- samples ---- */

static void request_free(ScoreRequest *a) {
    mem_free(a->name);
    mem_free(a->line);
    *a = (ScoreRequest){0};
}

/* It may take a minute to start, and a start in vain for every sample would be most of the run. */
static bool has_given_up(const Scorer *s) { return s->deaths >= SCORER_TRIES; }

/* The sample is over: it is counted, named when something went wrong, and handed over. */
static void end_request(Scorer *s, ScoreRequest *ask, const Score *score) {
    s->facts.ended[score->end]++;
    bool says_why = score->end > SCORE_NONE && !has_given_up(s);
    if (says_why) snprintf(s->why, sizeof s->why, "%s", score->why);
    if (says_why && s->warned++ < WARNINGS)
        log_warn("reward of %s: %s. It counts as missing%s", ask->name, score->why,
                 s->warned == WARNINGS ? "; further ones are counted, not named" : "");
    s->fn(s->user, score);
    request_free(ask);
}

static void end_work(Scorer *s, Worker *w, ScoreEnd end, double reward, const char *why) {
    Score score = {.id = w->ask.id, .reward = reward, .end = end};
    double taken = sensors_seconds() - w->started;
    snprintf(score.why, sizeof score.why, "%s", why);
    if (w->fresh && end <= SCORE_NONE && (s->quickest_start == 0 || taken < s->quickest_start))
        s->quickest_start = fmax(taken, 1e-9);
    s->had_all_the_time |= w->fresh && end == SCORE_LATE;
    bool died = w->fresh && end == SCORE_DIED;
    w->busy = w->fresh = false;
    w->got = 0;
    end_request(s, &w->ask, &score);
    if (end <= SCORE_NONE) s->deaths = -1;
    if (s->deaths >= 0) s->deaths = died ? s->deaths + 1 : 0;
}

/* ---- processes ---- */

static bool start_worker(Scorer *s, Worker *w, Err *e) {
    w->fresh = true;
    w->got = 0;
    w->started = sensors_seconds();
    return child_start(&w->child, s->argv, s->spec.err_fd, e);
}

/* Ends the process; a sample it worked on is lost for the reason given (NULL: how the process ended). */
static void drop_worker(Scorer *s, Worker *w, ScoreEnd end, const char *why) {
    char how[CHILD_HOW];
    Str text = {0};
    child_stop(&w->child, end == SCORE_DIED ? DYING_SECONDS : 0, how);
    if (why)
        str_add(&text, why);
    else
        str_addf(&text, "the command ended its output (%s)", how);
    if (w->busy) end_work(s, w, end, NAN, str_text(&text));
    w->got = 0;
    str_free(&text);
}

/* What a process gets more for its first reply: all of it until a start was seen. */
static double start_seconds(const Scorer *s) {
    double all = s->spec.start_seconds;
    if (s->quickest_start > 0) return fmin(all, START_TIMES * s->quickest_start + START_MORE);
    return s->had_all_the_time ? 0 : all;
}

/* The next sample costs no start. */
static void pass_over(Scorer *s) {
    ScoreRequest ask = s->queue[s->first++];
    Score score = {.id = ask.id, .reward = NAN, .end = SCORE_DIED};
    snprintf(score.why, sizeof score.why, "the command is not started again: it left %d times and never replied",
             SCORER_TRIES);
    end_request(s, &ask, &score);
}

/* Takes the next sample from the queue. A process that cannot be started costs it. */
static void give_work(Scorer *s, Worker *w) {
    Err e = {0};
    if (!w->child.pid && has_given_up(s)) {
        pass_over(s);
        return;
    }
    w->ask = s->queue[s->first++];
    w->busy = true;
    w->sent = 0;
    if (!w->child.pid) {
        s->facts.restarts++;
        if (!start_worker(s, w, &e)) {
            end_work(s, w, SCORE_DIED, NAN, e.text);
            return;
        }
    }
    w->limit = s->spec.seconds + (w->fresh ? start_seconds(s) : 0);
    w->deadline = sensors_seconds() + w->limit;
}

static void send_bytes(Scorer *s, Worker *w) {
    int64_t bytes = (int64_t)strlen(w->ask.line);
    while (w->busy && w->sent < bytes) {
        int64_t n = child_write(&w->child, w->ask.line + w->sent, bytes - w->sent);
        if (n < 0) drop_worker(s, w, SCORE_DIED, NULL);
        if (n <= 0) return;
        w->sent += n;
    }
}

/* ---- replies ---- */

/* What a reply says: false with the reason where it says nothing that can be used. */
static bool read_reply(ScoreEnd *end, double *reward, const Worker *w, int64_t bytes, Str *why) {
    json_error_t at;
    json_t *reply = json_loadb(w->reply, (size_t)bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &at);
    const json_t *value = json_is_object(reply) ? json_object_get(reply, "reward") : reply;
    const json_t *id = json_is_object(reply) ? json_object_get(reply, "id") : NULL;
    if (!reply) {
        str_add(why, "the command wrote what is not JSON: ");
        clean_excerpt(why, w->reply, bytes, EXCERPT);
    } else if (id && (!json_is_integer(id) || json_integer_value(id) != w->ask.id)) {
        str_add(why, "the command replied to another id");
    } else if (!json_is_number(value) && !json_is_null(value)) {
        str_add(why, "the reply has no number or null as its reward: ");
        clean_excerpt(why, w->reply, bytes, EXCERPT);
    }
    *reward = json_is_number(value) ? json_number_value(value) : NAN;
    *end = json_is_number(value) ? SCORE_GIVEN : SCORE_NONE;
    json_decref(reply);
    return why->len == 0;
}

static void take_reply(Scorer *s, Worker *w, int64_t bytes) {
    Str why = {0};
    ScoreEnd end;
    double reward;
    bool more = w->got > bytes + 1, unread = w->sent < (int64_t)strlen(w->ask.line);
    if (unread) /* it cannot have read the whole line */
        drop_worker(s, w, SCORE_RUBBISH, "the command replied before it had read the line");
    else if (!read_reply(&end, &reward, w, bytes, &why))
        drop_worker(s, w, SCORE_RUBBISH, why.data);
    else
        end_work(s, w, end, reward, "");
    if (more && w->child.pid) drop_worker(s, w, SCORE_RUBBISH, "");
    str_free(&why);
}

static void receive_bytes(Scorer *s, Worker *w) {
    int64_t n = child_read(&w->child, w->reply + w->got, s->spec.reply_bytes - w->got);
    if (n < 0 || (n > 0 && !w->busy)) {
        drop_worker(s, w, SCORE_DIED, NULL);
        return;
    }
    char *newline = n > 0 ? memchr(w->reply + w->got, '\n', (size_t)n) : NULL;
    w->got += n;
    if (newline) {
        take_reply(s, w, newline - w->reply);
    } else if (w->got == s->spec.reply_bytes) {
        char why[80];
        snprintf(why, sizeof why, "a reply of more than %s", units_bytes(s->spec.reply_bytes).s);
        drop_worker(s, w, SCORE_RUBBISH, why);
    }
}

static void check_deadline(Scorer *s, Worker *w, double now) {
    char why[80];
    if (!w->busy || now < w->deadline) return;
    snprintf(why, sizeof why, "no reply in %.3g s", w->limit);
    drop_worker(s, w, SCORE_LATE, why);
}

/* A process that left or spoke while it had nothing to do is ended now, before it costs a sample. */
static void look_at_idle(Scorer *s, Worker *w) {
    ChildWait wait = {.c = &w->child};
    if (w->busy || !w->child.pid) return;
    child_wait(&wait, 1, 0);
    if (wait.has_bytes) receive_bytes(s, w);
}

/* ---- the owner's side ---- */

void scorer_submit(Scorer *s, int64_t id, const char *name, const char *line) {
    CHECK(str_ends(line, "\n"));
    if (s->first == s->last) s->first = s->last = 0;
    s->queue = mem_grow(s->queue, &s->capacity, s->last + 1, sizeof *s->queue);
    s->queue[s->last++] = (ScoreRequest){id, mem_strdup(name), mem_strdup(line)};
}

int64_t scorer_pending(const Scorer *s) {
    int64_t n = s->last - s->first;
    for (int i = 0; i < s->spec.processes; i++) n += s->worker[i].busy;
    return n;
}

/* Moves what can be moved, waiting at most so long for something to do. */
static void pump(Scorer *s, int milliseconds) {
    ChildWait wait[SCORER_MOST];
    int n = s->spec.processes;
    double now = sensors_seconds(), until = now + milliseconds * 1e-3;
    for (int i = 0; i < n; i++) {
        Worker *w = &s->worker[i];
        look_at_idle(s, w);
        while (!w->busy && s->first < s->last) give_work(s, w);
        if (w->busy) send_bytes(s, w);
        if (w->busy) until = fmin(until, w->deadline);
        wait[i] = (ChildWait){.c = &w->child, .wants_room = w->busy && w->sent < (int64_t)strlen(w->ask.line)};
    }
    child_wait(wait, n, (int)ceil(fmax(0, until - now) * 1e3));
    now = sensors_seconds();
    for (int i = 0; i < n; i++) {
        if (wait[i].has_bytes) receive_bytes(s, &s->worker[i]);
        if (wait[i].has_room && s->worker[i].busy) send_bytes(s, &s->worker[i]);
        check_deadline(s, &s->worker[i], now);
    }
}

static void drop_all(Scorer *s) {
    for (int i = 0; i < s->spec.processes; i++) {
        Worker *w = &s->worker[i];
        if (w->busy) child_stop(&w->child, 0, NULL);
        request_free(&w->ask);
        w->busy = false;
    }
    for (; s->first < s->last; s->first++) request_free(&s->queue[s->first]);
}

/* Once: nothing that was tried so far got a reply that can be used. The run goes on, with rewards missing. */
static void warn_of_failures(Scorer *s) {
    const int64_t *ended = s->facts.ended, tries = ended[SCORE_LATE] + ended[SCORE_DIED] + ended[SCORE_RUBBISH];
    if (has_given_up(s) && !s->warned_of_deaths) {
        s->warned_of_deaths = s->warned_of_failures = true;
        log_warn("the reward command left %d times in a row and never replied; the latest: %s. It is not started "
                 "again, and the rewards it would give are missing from here on: mend it, and go on with --resume",
                 SCORER_TRIES, s->why);
    }
    if (s->warned_of_failures || tries < SCORER_TRIES || ended[SCORE_GIVEN] || ended[SCORE_NONE]) return;
    s->warned_of_failures = true;
    log_warn("the reward command has not scored one of the first %lld samples; the latest: %s. Is it the right one? It "
             "is sent a JSON line and replies with one (docs/grpo.md)",
             (long long)tries, s->why);
}

bool scorer_finish(Scorer *s, bool (*keep_going)(void *user), void *user, Err *e) {
    while (scorer_pending(s)) {
        pump(s, LOOK_MS);
        warn_of_failures(s);
        if (!keep_going || keep_going(user)) continue;
        int64_t left = scorer_pending(s);
        drop_all(s);
        return !left || fail_system(e, EINTR, "interrupted while %lld rewards were waited for", (long long)left);
    }
    return true;
}

ScorerFacts scorer_facts(const Scorer *s) {
    return s->facts;
}

static bool check_spec(ScorerSpec *spec, Err *e) {
    if (spec->seconds == 0) spec->seconds = 30;
    if (spec->start_seconds == 0) spec->start_seconds = 60;
    if (spec->reply_bytes == 0) spec->reply_bytes = 64 * KIB;
    if (!spec->argv || !spec->argv[0] || !*spec->argv[0]) return fail(e, ERR_USAGE, "the reward command is empty");
    if (spec->processes < 1 || spec->processes > SCORER_MOST)
        return fail(e, ERR_USAGE, "%d processes for rewards: 1 to %d are possible", spec->processes, SCORER_MOST);
    if (!(spec->seconds > 0) || !(spec->start_seconds > 0) || spec->reply_bytes < 16)
        return fail(e, ERR_USAGE, "time limits and reply sizes of a reward command must be above 0");
    return true;
}

bool scorer_open(Scorer **out, const ScorerSpec *spec, ScoreFn *fn, void *user, Err *e) {
    ScorerSpec checked = *spec;
    if (!check_spec(&checked, e)) return false;
    Scorer *s = MEM_NEW(Scorer, 1);
    *s = (Scorer){.spec = checked, .fn = fn, .user = user, .argv = spec->argv};
    s->shell[0] = "/bin/sh";
    s->shell[1] = "-c";
    s->shell[2] = spec->argv[0];
    if (spec->shell) s->argv = s->shell;
    s->worker = MEM_NEW(Worker, spec->processes);
    bool ok = true;
    for (int i = 0; i < spec->processes; i++) {
        s->worker[i].child = (Child){.in = -1, .out = -1};
        s->worker[i].reply = mem_alloc(checked.reply_bytes);
        ok = ok && start_worker(s, &s->worker[i], e);
    }
    if (ok)
        *out = s;
    else
        scorer_close(s);
    return ok || fail_within(e, "the reward command");
}

void scorer_close(Scorer *s) {
    if (!s) return;
    double until = sensors_seconds() + GRACE_SECONDS;
    drop_all(s);
    for (int i = 0; i < s->spec.processes; i++) child_end_input(&s->worker[i].child);
    for (int i = 0; i < s->spec.processes; i++) {
        child_stop(&s->worker[i].child, fmax(0, until - sensors_seconds()), NULL);
        mem_free(s->worker[i].reply);
    }
    mem_free(s->worker);
    mem_free(s->queue);
    mem_free(s);
}

void scorer_line(Str *out, int64_t id, const RewardInput *in) {
    const Item *item = in->item;
    json_t *prompt = item->messages ? json_incref(item->messages) : clean_json(item->text),
           *columns = item->columns ? json_incref(item->columns) : json_null();
    json_t *line = json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "id", (json_int_t)id, "prompt", prompt, "question",
                             clean_json(item->question), "gold", clean_json(item->gold), "completion",
                             clean_json(in->policy), "answer", clean_json(in->answer), "columns", columns);
    CHECK(json_add(out, line, JSON_ALL_DIGITS));
    str_add_char(out, '\n');
    json_decref(line);
}
