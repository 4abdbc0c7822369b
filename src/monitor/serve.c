/* serve.c - the binding to libmicrohttpd, and which request gets which answer.
 *
 * Declared here as its documentation does, with the numbers of version 12 of the library: it brings a whole TLS
 * library with it, which only this command shall load. Requests are answered inside serve_run; a listener whose
 * events are told is suspended until the next look. */
#include "monitor/serve.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/library.h"
#include "base/json.h"
#include "base/mem.h"

enum { LISTENERS = 64, CONNECTIONS = 128, END_OF_STREAM = -1 };
enum { NO = 0, YES = 1, USE_IPV6 = 16, SUSPEND_RESUME = 8192 | 1024 };
enum { OPTION_END = 0, OPTION_LIMIT = 2, OPTION_TIMEOUT = 3, OPTION_ADDRESS = 6 };
enum { KIND_HEADER = 1, KIND_ARGUMENT = 8, MUST_COPY = 2, INFO_PORT = 6 };

typedef int Handler(void *user, void *connection, const char *url, const char *method, const char *version,
                    const char *upload, size_t *upload_size, void **state);
typedef ssize_t Reader(void *user, uint64_t at, char *to, size_t room);
typedef void Freer(void *user);

typedef struct Library {
    void *handle;
    void *(*start)(unsigned, uint16_t, void *, void *, Handler *, void *, ...);
    void (*stop)(void *);
    int (*run)(void *);
    int (*run_wait)(void *, int32_t); /* NULL: an older version */
    const void *(*info)(void *, int, ...);
    void *(*from_buffer)(size_t, void *, int);
    void *(*from_callback)(uint64_t, size_t, Reader *, void *, Freer *);
    int (*add_header)(void *, const char *, const char *);
    int (*queue)(void *, unsigned, void *);
    void (*destroy)(void *);
    const char *(*lookup)(void *, int, const char *);
    void (*suspend)(void *), (*resume)(void *);
} Library;

typedef struct Listener { /* somebody who follows /events */
    Server *server;
    void *connection; /* NULL: a free place */
    bool suspended;
    int64_t told; /* the look that it was told last; 0: none */
    Str pending;  /* owns: what is still to be sent */
    int64_t sent; /* of pending */
} Listener;

struct Server {
    Library lib;
    void *daemon;
    bool local, closing;
    char token[256];
    const Snapshot *now; /* keeps, until the next look */
    const Past *past;
    int64_t look; /* counted from 1 */
    Listener listener[LISTENERS];
};

/* ---- the library ---- */

static bool open_library(Library *l, Err *e) {
    static const char *const names[] = {"libmicrohttpd.so.12"};
    const LibraryCall calls[] = {
        {"MHD_start_daemon", (void **)&l->start},
        {"MHD_stop_daemon", (void **)&l->stop},
        {"MHD_run", (void **)&l->run},
        {"MHD_get_daemon_info", (void **)&l->info},
        {"MHD_create_response_from_buffer", (void **)&l->from_buffer},
        {"MHD_create_response_from_callback", (void **)&l->from_callback},
        {"MHD_add_response_header", (void **)&l->add_header},
        {"MHD_queue_response", (void **)&l->queue},
        {"MHD_destroy_response", (void **)&l->destroy},
        {"MHD_lookup_connection_value", (void **)&l->lookup},
        {"MHD_suspend_connection", (void **)&l->suspend},
        {"MHD_resume_connection", (void **)&l->resume},
    };
    l->handle = library_open(names, COUNT_OF(names), calls, COUNT_OF(calls));
    if (l->handle) *(void **)&l->run_wait = dlsym(l->handle, "MHD_run_wait");
    if (l->handle) return true;
    return fail(e, ERR_FAIL,
                "--serve needs libmicrohttpd (version 0.9.52 and later), which is not here: `make deps` installs "
                "it; packages libmicrohttpd-dev (Debian, Ubuntu), libmicrohttpd (Fedora, Arch, openSUSE)");
}

/* ---- answers ---- */

/* Nothing from elsewhere is loaded, whatever a name holds; nobody may frame the page. */
static const char policy[] =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src "
    "data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static int send_response(Server *s, void *connection, unsigned status, const char *type, void *response) {
    if (!response) return NO;
    const char *const headers[][2] = {{"Content-Type", type},
                                      {"Cache-Control", "no-store"},
                                      {"Content-Security-Policy", policy},
                                      {"X-Content-Type-Options", "nosniff"},
                                      {"Referrer-Policy", "no-referrer"}};
    for (int i = 0; i < COUNT_OF(headers); i++) s->lib.add_header(response, headers[i][0], headers[i][1]);
    int queued = s->lib.queue(connection, status, response);
    s->lib.destroy(response);
    return queued;
}

static int answer(Server *s, void *connection, unsigned status, const char *type, const Str *text) {
    return send_response(s, connection, status, type,
                         s->lib.from_buffer((size_t)text->len, text->data, MUST_COPY));
}

static int answer_words(Server *s, void *connection, unsigned status, const char *words) {
    Str text = {0};
    str_addf(&text, "%s\n", words);
    int queued = answer(s, connection, status, "text/plain; charset=utf-8", &text);
    str_free(&text);
    return queued;
}

static void add_json(Str *out, json_t *root) { /* takes over root */
    json_add(out, root, 15);
    json_decref(root);
}

static int answer_json(Server *s, void *connection, json_t *root) {
    Str text = {0};
    add_json(&text, root);
    int queued = answer(s, connection, 200, "application/json", &text);
    str_free(&text);
    return queued;
}

/* ---- events ---- */

static json_t *history_json(const History *h) {
    json_t *list = json_array();
    for (int i = 0; i < h->n; i++)
        json_array_append_new(list, json_integer((json_int_t)(1000 * h->share[i] + 0.5f)));
    return list;
}

/* The past in thousandths, for the lines of the page. */
static json_t *past_json(const Server *s) {
    json_t *o = json_object(), *gpus = json_array();
    json_object_set_new(o, "host_memory", history_json(&s->past->host_memory));
    json_object_set_new(o, "host_cpu", history_json(&s->past->host_cpu));
    for (int i = 0; i < s->now->n_gpus; i++)
        json_array_append_new(gpus, json_pack("{s:o, s:o}", "memory", history_json(&s->past->gpu_memory[i]),
                                              "busy", history_json(&s->past->gpu_busy[i])));
    json_object_set_new(o, "gpus", gpus);
    return o;
}

static void prepare_event(Listener *l) {
    Server *s = l->server;
    str_clear(&l->pending);
    l->sent = 0;
    if (!l->told) {
        str_add(&l->pending, "event: past\ndata: ");
        add_json(&l->pending, past_json(s));
        str_add(&l->pending, "\n\n");
    }
    str_add(&l->pending, "data: ");
    add_json(&l->pending, view_json(s->now));
    str_add(&l->pending, "\n\n");
    l->told = s->look;
}

static ssize_t read_events(void *user, uint64_t at, char *to, size_t room) {
    Listener *l = user;
    if (l->sent == l->pending.len && l->told < l->server->look && l->server->now) prepare_event(l);
    int64_t n = MIN2((int64_t)room, l->pending.len - l->sent);
    if (n > 0) {
        memcpy(to, l->pending.data + l->sent, (size_t)n);
        l->sent += n;
        return (ssize_t)n;
    }
    if (l->server->closing) return END_OF_STREAM;
    l->suspended = true;
    l->server->lib.suspend(l->connection);
    return 0;
}

static void end_listener(void *user) {
    Listener *l = user;
    str_free(&l->pending);
    *l = (Listener){0};
}

static int follow(Server *s, void *connection) {
    Listener *l = NULL;
    for (int i = 0; i < LISTENERS && !l; i++)
        if (!s->listener[i].connection) l = &s->listener[i];
    if (!l) return answer_words(s, connection, 503, "too many pages are open");
    *l = (Listener){.server = s, .connection = connection};
    void *response = s->lib.from_callback(UINT64_MAX, 1 << 16, read_events, l, end_listener);
    if (!response) end_listener(l);
    return send_response(s, connection, 200, "text/event-stream", response);
}

/* ---- who asks for what ---- */

/* The same time whatever the difference is. */
static bool same_secret(const char *given, const char *token) {
    size_t n = strlen(token), m = strlen(given);
    unsigned char different = n != m;
    for (size_t i = 0; i < n; i++) different |= (unsigned char)(token[i] ^ given[m ? i % m : 0]);
    return !different;
}

static bool may_look(Server *s, void *connection) {
    if (!s->token[0]) return true;
    const char *argument = s->lib.lookup(connection, KIND_ARGUMENT, "token");
    const char *bearer = s->lib.lookup(connection, KIND_HEADER, "Authorization");
    if (bearer && str_starts(bearer, "Bearer ") && same_secret(bearer + 7, s->token)) return true;
    return argument && same_secret(argument, s->token);
}

/* Another site's name that leads to this address would let its pages read ours. */
static bool is_asked_as_local(Server *s, void *connection) {
    static const char *const names[] = {"localhost", "127.", "[::1]"};
    const char *host = s->lib.lookup(connection, KIND_HEADER, "Host");
    if (!s->local) return true;
    for (int i = 0; i < COUNT_OF(names); i++) {
        size_t n = strlen(names[i]);
        if (host && !strncmp(host, names[i], n) && (i == 1 || !host[n] || host[n] == ':'))
            return i != 1 || !host[strspn(host, "0123456789.:")];
    }
    return false;
}

static int answer_job(Server *s, void *connection) {
    const char *pid = s->lib.lookup(connection, KIND_ARGUMENT, "pid");
    long wanted = pid ? strtol(pid, NULL, 10) : 0;
    for (int i = 0; i < s->now->n_jobs; i++)
        if (s->now->job[i].s.pid == wanted) return answer_json(s, connection, job_charts(&s->now->job[i].s));
    return answer_words(s, connection, 404, "there is no such job");
}

static int answer_page(Server *s, void *connection) {
    Str text = {0};
    page_html(&text);
    int queued = answer(s, connection, 200, "text/html; charset=utf-8", &text);
    str_free(&text);
    return queued;
}

static int answer_metrics(Server *s, void *connection) {
    Str text = {0};
    view_prometheus(&text, s->now);
    int queued = answer(s, connection, 200, "text/plain; version=0.0.4; charset=utf-8", &text);
    str_free(&text);
    return queued;
}

static int handle(void *user, void *connection, const char *url, const char *method, const char *version,
                  const char *upload, size_t *upload_size, void **state) {
    Server *s = user;
    static int seen;
    if (strcmp(method, "GET") && strcmp(method, "HEAD"))
        return answer_words(s, connection, 405, "only GET is answered");
    if (!*state) { /* the first call has the headers alone */
        *state = &seen;
        return YES;
    }
    if (*upload_size) return *upload_size = 0, YES;
    if (!is_asked_as_local(s, connection)) return answer_words(s, connection, 403, "ask for it as localhost");
    if (!may_look(s, connection))
        return answer_words(s, connection, 401, "the token is missing or wrong: ?token=...");
    if (!s->now) return answer_words(s, connection, 503, "there was no look yet");
    if (!strcmp(url, "/")) return answer_page(s, connection);
    if (!strcmp(url, "/events")) return follow(s, connection);
    if (!strcmp(url, "/snapshot.json")) return answer_json(s, connection, view_json(s->now));
    if (!strcmp(url, "/job")) return answer_job(s, connection);
    if (!strcmp(url, "/metrics")) return answer_metrics(s, connection);
    return answer_words(s, connection, 404, "there is no such page");
}

/* ---- opening ---- */

typedef union Address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} Address;

static bool parse_address(Address *a, bool *local, const ServeOptions *o, Err *e) {
    const char *host = strcmp(o->host, "localhost") ? o->host : "127.0.0.1";
    memset(a, 0, sizeof *a);
    if (inet_pton(AF_INET, host, &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        a->v4.sin_port = htons((uint16_t)o->port);
        *local = ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
        return true;
    }
    if (inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1) {
        a->v6.sin6_family = AF_INET6;
        a->v6.sin6_port = htons((uint16_t)o->port);
        *local = !memcmp(&a->v6.sin6_addr, &in6addr_loopback, sizeof in6addr_loopback);
        return true;
    }
    return fail(e, ERR_USAGE, "--host %s: is no address of this machine such as 127.0.0.1, 0.0.0.0 or ::1",
                o->host);
}

bool serve_open(Server **to, const ServeOptions *o, Err *e) {
    Address address;
    *to = NULL;
    Server *s = MEM_NEW(Server, 1);
    bool ok = parse_address(&address, &s->local, o, e) && open_library(&s->lib, e);
    if (o->token) snprintf(s->token, sizeof s->token, "%s", o->token);
    if (ok) {
        unsigned flags = SUSPEND_RESUME | (address.any.sa_family == AF_INET6 ? USE_IPV6 : 0);
        s->daemon = s->lib.start(flags, (uint16_t)o->port, NULL, NULL, handle, s, OPTION_ADDRESS, &address.any,
                                 OPTION_LIMIT, (unsigned)CONNECTIONS, OPTION_TIMEOUT, 120u, OPTION_END);
        ok = s->daemon != NULL;
        if (!ok)
            fail(e, ERR_FAIL, "%s:%d cannot be listened on. Is something else there? --serve takes another port",
                 o->host, o->port);
        if (!ok) dlclose(s->lib.handle);
    }
    if (!ok) mem_free(s);
    if (ok) *to = s;
    return ok;
}

static void resume_all(Server *s) {
    for (int i = 0; i < LISTENERS; i++) {
        if (!s->listener[i].suspended) continue;
        s->listener[i].suspended = false;
        s->lib.resume(s->listener[i].connection);
    }
}

void serve_close(Server *s) {
    if (!s) return;
    s->closing = true;
    resume_all(s); /* the library does not stop while one is suspended */
    s->lib.run(s->daemon);
    s->lib.stop(s->daemon);
    dlclose(s->lib.handle);
    mem_free(s);
}

int serve_port(const Server *s) {
    const uint16_t *port = s->lib.info(s->daemon, INFO_PORT);
    return port ? *port : 0;
}

bool serve_is_local(const Server *s) {
    return s->local;
}

void serve_show(Server *s, const Snapshot *now, const Past *past) {
    s->now = now;
    s->past = past;
    s->look++;
    resume_all(s);
}

void serve_run(Server *s, int milliseconds) {
    if (s->lib.run_wait) {
        s->lib.run_wait(s->daemon, milliseconds);
        return;
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000L * MIN2(milliseconds, 20)}, NULL);
    s->lib.run(s->daemon);
}
