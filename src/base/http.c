/* http.c - the binding to libcurl.
 *
 * Declared here as its documentation does, so that building needs no package: names, numbers and structures of
 * libcurl 4 never change. It allocates through base/mem.h. */
#include "base/http.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/units.h"

enum { GLOBAL_ALL = 3, OK = 0, MESSAGE_DONE = 1, ERROR_BYTES = 256, WRITE_ERROR = 23 };

typedef enum Option {
    OPT_WRITEDATA = 10001,
    OPT_URL = 10002,
    OPT_PROXY = 10004,
    OPT_ERRORBUFFER = 10010,
    OPT_USERAGENT = 10018,
    OPT_HTTPHEADER = 10023,
    OPT_COPYPOSTFIELDS = 10165,
    OPT_PRIVATE = 10103,
    OPT_WRITEFUNCTION = 20011,
    OPT_POSTFIELDSIZE_LARGE = 30120,
    OPT_NOSIGNAL = 99,
    OPT_TIMEOUT_MS = 155,
    OPT_CONNECTTIMEOUT_MS = 156,
} Option;

typedef enum Info { INFO_RESPONSE_CODE = 0x200002, INFO_PRIVATE = 0x100015, INFO_RETRY_AFTER = 0x600039 } Info;

typedef struct Message {
    int kind;
    void *easy;
    union {
        void *whatever;
        int result;
    } data;
} Message;

typedef struct Library {
    int (*global_init_mem)(long, void *(*)(size_t), void (*)(void *), void *(*)(void *, size_t),
                           char *(*)(const char *), void *(*)(size_t, size_t));
    void (*global_cleanup)(void);
    void *(*easy_init)(void);
    void (*easy_cleanup)(void *);
    void (*easy_reset)(void *);
    int (*easy_setopt)(void *, int, ...);
    int (*easy_getinfo)(void *, int, ...);
    const char *(*easy_strerror)(int);
    void *(*slist_append)(void *, const char *);
    void (*slist_free_all)(void *);
    void *(*multi_init)(void);
    int (*multi_cleanup)(void *);
    int (*multi_add_handle)(void *, void *);
    int (*multi_remove_handle)(void *, void *);
    int (*multi_perform)(void *, int *);
    int (*multi_poll)(void *, void *, unsigned, int, int *);
    Message *(*multi_info_read)(void *, int *);
} Library;

typedef struct Slot {
    void *easy, *headers; /* owns */
    bool busy, too_long;
    int64_t id;
    Str reply;
    char error[ERROR_BYTES];
    struct Http *http;
} Slot;

struct Http {
    const Library *curl;
    void *multi; /* owns */
    Slot *slot;  /* [most] */
    int most, n_busy;
    int64_t reply_bytes;
    char *proxy;
    HttpFn *fn;
    void *user;
};

/* ---- the library ---- */

static Library library;
static void *opened; /* stays open: its own clean-up runs when the process ends */
static int users;    /* of its global state */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool open_library(void) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};
    const LibraryCall calls[] = {
        {"curl_global_init_mem", (void **)&library.global_init_mem},
        {"curl_global_cleanup", (void **)&library.global_cleanup},
        {"curl_easy_init", (void **)&library.easy_init},
        {"curl_easy_cleanup", (void **)&library.easy_cleanup},
        {"curl_easy_reset", (void **)&library.easy_reset},
        {"curl_easy_setopt", (void **)&library.easy_setopt},
        {"curl_easy_getinfo", (void **)&library.easy_getinfo},
        {"curl_easy_strerror", (void **)&library.easy_strerror},
        {"curl_slist_append", (void **)&library.slist_append},
        {"curl_slist_free_all", (void **)&library.slist_free_all},
        {"curl_multi_init", (void **)&library.multi_init},
        {"curl_multi_cleanup", (void **)&library.multi_cleanup},
        {"curl_multi_add_handle", (void **)&library.multi_add_handle},
        {"curl_multi_remove_handle", (void **)&library.multi_remove_handle},
        {"curl_multi_perform", (void **)&library.multi_perform},
        {"curl_multi_poll", (void **)&library.multi_poll},
        {"curl_multi_info_read", (void **)&library.multi_info_read},
    };
    if (!opened) opened = library_open(names, COUNT_OF(names), calls, COUNT_OF(calls));
    return opened != NULL;
}

bool http_is_there(void) {
    pthread_mutex_lock(&lock);
    bool there = open_library();
    pthread_mutex_unlock(&lock);
    return there;
}

static void *take(size_t bytes) {
    return mem_alloc((int64_t)bytes);
}
static void *resize(void *p, size_t bytes) {
    return mem_resize(p, (int64_t)bytes);
}
static void *take_array(size_t n, size_t each) {
    return mem_alloc(mem_mul((int64_t)n, (int64_t)each));
}

static bool begin_use(Err *e) {
    pthread_mutex_lock(&lock);
    bool there = open_library();
    bool ready = there && (users > 0 || library.global_init_mem(GLOBAL_ALL, take, mem_free, resize, mem_strdup,
                                                                take_array) == OK);
    users += ready;
    pthread_mutex_unlock(&lock);
    if (!there)
        return fail(
            e, ERR_FAIL,
            "HTTP needs libcurl 7.66 or newer, which is not installed (libcurl.so.4; apt-get install curl)");
    return ready || fail(e, ERR_FAIL, "libcurl could not be started");
}

static void end_use(void) {
    pthread_mutex_lock(&lock);
    if (--users == 0) library.global_cleanup();
    pthread_mutex_unlock(&lock);
}

/* ---- requests ---- */

static size_t take_bytes(char *bytes, size_t each, size_t n, void *user) {
    Slot *s = user;
    int64_t got = (int64_t)(each * n);
    s->too_long = s->reply.len + got > s->http->reply_bytes;
    if (s->too_long) return 0; /* ends the transfer */
    str_add_bytes(&s->reply, bytes, got);
    return (size_t)got;
}

static void set_headers(Http *h, Slot *s, const HttpRequest *r) {
    const Library *c = h->curl;
    s->headers = c->slist_append(NULL, "Accept: application/json");
    if (r->body) s->headers = c->slist_append(s->headers, "Content-Type: application/json");
    s->headers = c->slist_append(s->headers, "Expect:"); /* no asking beforehand */
    if (r->key) {
        Str header = {0};
        str_addf(&header, "Authorization: Bearer %s", r->key);
        s->headers = c->slist_append(s->headers, header.data);
        str_free(&header);
    }
    c->easy_setopt(s->easy, OPT_HTTPHEADER, s->headers);
}

void http_send(Http *h, int64_t id, const HttpRequest *r) {
    const Library *c = h->curl;
    Slot *s = h->slot;
    while (s < h->slot + h->most && s->busy) s++;
    CHECK(s < h->slot + h->most);
    s->busy = true;
    s->id = id;
    s->too_long = false;
    s->error[0] = 0;
    str_clear(&s->reply);
    c->easy_reset(s->easy);
    c->easy_setopt(s->easy, OPT_URL, r->url);
    c->easy_setopt(s->easy, OPT_PROXY, h->proxy);
    c->easy_setopt(s->easy, OPT_NOSIGNAL, 1L);
    c->easy_setopt(s->easy, OPT_USERAGENT, "snug");
    c->easy_setopt(s->easy, OPT_ERRORBUFFER, s->error);
    c->easy_setopt(s->easy, OPT_PRIVATE, s);
    c->easy_setopt(s->easy, OPT_WRITEFUNCTION, take_bytes);
    c->easy_setopt(s->easy, OPT_WRITEDATA, s);
    c->easy_setopt(s->easy, OPT_CONNECTTIMEOUT_MS, (long)(r->connect_seconds * 1e3));
    c->easy_setopt(s->easy, OPT_TIMEOUT_MS, (long)(r->seconds * 1e3));
    set_headers(h, s, r);
    if (r->body) {
        c->easy_setopt(s->easy, OPT_POSTFIELDSIZE_LARGE, (int64_t)strlen(r->body));
        c->easy_setopt(s->easy, OPT_COPYPOSTFIELDS, r->body);
    }
    CHECK(c->multi_add_handle(h->multi, s->easy) == OK);
    h->n_busy++;
}

static void release(Http *h, Slot *s) {
    h->curl->multi_remove_handle(h->multi, s->easy);
    h->curl->slist_free_all(s->headers);
    s->headers = NULL;
    s->busy = false;
    h->n_busy--;
}

/* ---- replies ---- */

static void end_request(Http *h, Slot *s, int result) {
    const Library *c = h->curl;
    long status = 0;
    int64_t retry_after = 0;
    char why[ERROR_BYTES + 64] = "";
    c->easy_getinfo(s->easy, INFO_RESPONSE_CODE, &status);
    c->easy_getinfo(s->easy, INFO_RETRY_AFTER, &retry_after);
    if (result == WRITE_ERROR && s->too_long)
        snprintf(why, sizeof why, "a reply of more than %s", units_bytes(h->reply_bytes).s);
    else if (result != OK)
        snprintf(why, sizeof why, "%s", s->error[0] ? s->error : c->easy_strerror(result));
    release(h, s);
    Str reply = s->reply; /* the place may be used again by fn */
    s->reply = (Str){0};
    h->fn(h->user, &(HttpReply){.id = s->id,
                                .status = result == OK ? (int)status : 0,
                                .body = str_text(&reply),
                                .bytes = reply.len,
                                .error = why,
                                .retry_after = (double)retry_after});
    str_free(&reply);
}

void http_pump(Http *h, int milliseconds) {
    const Library *c = h->curl;
    int running, left;
    c->multi_perform(h->multi, &running);
    if (running == h->n_busy) { /* nothing has ended yet; with nothing under way it only waits */
        c->multi_poll(h->multi, NULL, 0, milliseconds, NULL);
        c->multi_perform(h->multi, &running);
    }
    for (Message *m; (m = c->multi_info_read(h->multi, &left));) {
        Slot *s = NULL;
        int result = m->data.result;
        if (m->kind != MESSAGE_DONE) continue;
        c->easy_getinfo(m->easy, INFO_PRIVATE, &s);
        end_request(h, s, result);
    }
}

int http_free(const Http *h) {
    return h->most - h->n_busy;
}

/* ---- opening ---- */

/* HOST, HOST:PORT or [ADDRESS]:PORT, with a name and a password before '@' or without; n bytes. */
static bool is_authority(const char *at, size_t n) {
    const char *end = at + n, *user = memrchr(at, '@', n), *host = user ? user + 1 : at;
    bool bracket = host < end && *host == '[';
    const char *stop = memchr(host, bracket ? ']' : ':', (size_t)(end - host));
    if (bracket && !stop) return false;
    if (bracket) stop++;
    if (!stop) stop = end;
    if (stop == host || (bracket && stop - host < 4)) return false;
    if (stop == end) return true;
    size_t digits = strspn(stop + 1, "0123456789");
    long port = digits <= 5 ? strtol(stop + 1, NULL, 10) : 0;
    return *stop == ':' && stop + 1 + digits == end && port >= 1 && port <= 65535;
}

bool http_check_url(const char *url, Err *e) {
    const char *host = str_starts(url, "http://") ? url + 7 : str_starts(url, "https://") ? url + 8 : NULL;
    bool is_word = true;
    for (const char *c = url; *c; c++) is_word &= (unsigned char)*c > ' ' && *c != '\x7f';
    if (host && is_word && is_authority(host, strcspn(host, "/?#"))) return true;
    return fail(e, ERR_USAGE, "'%s' is no address of a server: http://HOST:PORT or https://HOST is expected", url);
}

bool http_open(Http **out, int most, int64_t reply_bytes, const char *proxy, HttpFn *fn, void *user, Err *e) {
    if (!begin_use(e)) return false;
    Http *h = MEM_NEW(Http, 1);
    *h = (Http){.curl = &library, .most = most, .reply_bytes = reply_bytes, .fn = fn, .user = user};
    h->proxy = mem_strdup(proxy ? proxy : "");
    h->slot = MEM_NEW(Slot, most);
    h->multi = library.multi_init();
    CHECK(h->multi);
    for (int i = 0; i < most; i++) {
        h->slot[i].http = h;
        h->slot[i].easy = library.easy_init();
        CHECK(h->slot[i].easy);
    }
    *out = h;
    return true;
}

void http_drop_all(Http *h) {
    for (int i = 0; i < h->most; i++)
        if (h->slot[i].busy) release(h, &h->slot[i]);
}

void http_close(Http *h) {
    if (!h) return;
    http_drop_all(h);
    for (int i = 0; i < h->most; i++) {
        h->curl->easy_cleanup(h->slot[i].easy);
        str_free(&h->slot[i].reply);
    }
    h->curl->multi_cleanup(h->multi);
    mem_free(h->slot);
    mem_free(h->proxy);
    mem_free(h);
    end_use();
}
