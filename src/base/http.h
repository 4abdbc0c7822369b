/* http.h - HTTP requests, several at a time, by libcurl, which is loaded at run time.
 *
 * The library is opened when it is first needed, so that everything else works without it. Redirects are not
 * followed, no proxy is taken from the environment, replies have a longest length. One thread owns an Http; nothing
 * here waits but http_pump. With https the process must ignore SIGPIPE, as the command line does. */
#ifndef BASE_HTTP_H
#define BASE_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct HttpRequest {
    const char *url;                 /* http:// or https:// */
    const char *body;                /* JSON to post; NULL: a GET */
    const char *key;                 /* sent as "Authorization: Bearer KEY"; NULL: none */
    double connect_seconds, seconds; /* limits: until connected, of all of it */
} HttpRequest;

typedef struct HttpReply {
    int64_t id;
    int status;       /* of HTTP; 0: there was no whole reply, and error says why */
    const char *body; /* borrows; ends with 0 */
    int64_t bytes;
    const char *error;  /* "" where there was a reply */
    double retry_after; /* seconds the server asked for; 0: it did not */
} HttpReply;
typedef void HttpFn(void *user, const HttpReply *r);

typedef struct Http Http;

/* proxy: NULL or "": none. most: requests at a time. fn is called from inside http_pump, and may send. Gives:
 * http_close. */
bool http_open(Http **h, int most, int64_t reply_bytes, const char *proxy, HttpFn *fn, void *user, Err *e);
void http_close(Http *h); /* drops pending requests without calling fn; NULL is fine */

int http_free(const Http *h); /* how many requests can be sent now */
/* Copies. There must be a free place. */
void http_send(Http *h, int64_t id, const HttpRequest *r);
void http_pump(Http *h, int milliseconds); /* waits at most so long for something to happen */
void http_drop_all(Http *h);               /* pending requests, without calling fn */

bool http_is_there(void); /* whether there is a libcurl */

/* Adds nothing to a URL that is fine; otherwise refuses. */
bool http_check_url(const char *url, Err *e);

#endif
