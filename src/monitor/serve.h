/* serve.h - the monitor in a browser: one page, its events, figures for Prometheus, by libmicrohttpd, which is loaded
 * at run time.
 *
 *     GET /              the page: no resource from anywhere else
 *     GET /events        server-sent events: a snapshot as JSON at every look, the past before the first
 *     GET /snapshot.json one look
 *     GET /job?pid=N     a job's plan over the step and its losses
 *     GET /metrics       Prometheus text
 *
 * One thread does all of it, the caller's. It listens on a loopback address unless another is given. */
#ifndef MONITOR_SERVE_H
#define MONITOR_SERVE_H

#include "monitor/view.h"

typedef struct ServeOptions {
    const char *host;  /* a numeric address, or localhost */
    int port;          /* 0: any that is free */
    const char *token; /* asked for in ?token= or as a bearer; NULL: everybody who can connect may look */
} ServeOptions;

typedef struct Server Server;

bool serve_open(Server **s, const ServeOptions *o, Err *e); /* gives: serve_close */
void serve_close(Server *s);                                /* NULL is fine */
int serve_port(const Server *s);
bool serve_is_local(const Server *s); /* it cannot be reached from another machine */

/* A new sample, sent to all listeners. Both are kept until the next call. */
void serve_show(Server *s, const Snapshot *now, const Past *past);
void serve_run(Server *s, int milliseconds); /* answers what comes in the meantime */

/* The page (page.c). */
void page_html(Str *out);
/* A job's figures for its charts (job_charts.c): what its run folder tells; gives. */
json_t *job_charts(const JobStatus *s);

#endif
