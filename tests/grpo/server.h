/* server.h - a tiny HTTP server of the test's own, on loopback only: a few threads, bounded requests, replies as
 * told. */
#ifndef TESTS_GRPO_SERVER_H
#define TESTS_GRPO_SERVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/str.h"

enum { SERVER_CONNECTIONS = 64, SERVER_BYTES = 1 << 20, SERVER_FOR_EVER = 1 << 30 /* ms, or until it stops */ };

typedef struct ServerReply {
    int status; /* 0: the connection is closed without a word */
    int delay_ms;
    int retry_after; /* seconds; 0: not said */
    bool half;       /* closed in the middle of the body */
    Str body;        /* freed by the server */
} ServerReply;

typedef struct ServerRequest {
    const char *method, *path, *key, *body; /* key: of the Authorization header, "" when absent */
} ServerRequest;
typedef void ServerFn(void *user, const ServerRequest *request,
                      ServerReply *reply); /* called from several threads */

typedef struct Server {
    int fd, port;
    atomic_bool stop;
    ServerFn *fn;
    void *user;
    pthread_t accepting, connection[SERVER_CONNECTIONS];
    int client[SERVER_CONNECTIONS];
    int n;
    atomic_int requests, at_once, most_at_once;
} Server;

bool server_start(Server *s, int port, ServerFn *fn, void *user); /* 0: any port */
void server_stop(Server *s);
/* A socket that has a port and does not listen: while it is open nobody but a server_start gets that port. */
int server_hold(int *port);

#endif
