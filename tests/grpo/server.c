/* server.c - sockets, threads and as much HTTP/1.1 as a client needs. */
#include "tests/grpo/server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/test.h"

enum { LOOK_MS = 20 };

typedef struct Connection {
    Server *s;
    int fd;
} Connection;

/* Adds what came; false: the other side left, or the server stops. */
static bool receive(Connection *c, Str *text) {
    char block[4096];
    while (!c->s->stop) {
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        if (poll(&p, 1, LOOK_MS) <= 0) continue;
        ssize_t n = recv(c->fd, block, sizeof block, 0);
        if (n <= 0 || text->len > SERVER_BYTES) return false;
        str_add_bytes(text, block, n);
        return true;
    }
    return false;
}

static void send_all(Connection *c, const char *bytes, int64_t n) {
    while (n > 0 && !c->s->stop) {
        ssize_t sent = send(c->fd, bytes, (size_t)n, MSG_NOSIGNAL);
        if (sent <= 0) return;
        bytes += sent;
        n -= sent;
    }
}

static void pause_ms(Server *s, int ms) {
    for (; ms > 0 && !s->stop; ms -= 10) usleep(10000);
}

/* False: the connection is over. */
static bool reply_to(Connection *c, const ServerRequest *request) {
    Server *s = c->s;
    ServerReply reply = {.status = 200};
    Str head = {0};
    int now = ++s->at_once, most = s->most_at_once;
    while (now > most && !atomic_compare_exchange_weak(&s->most_at_once, &most, now)) continue;
    s->requests++;
    s->fn(s->user, request, &reply);
    pause_ms(s, reply.delay_ms);
    s->at_once--;
    str_addf(&head, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %lld\r\n", reply.status,
             (long long)reply.body.len);
    if (reply.retry_after) str_addf(&head, "Retry-After: %d\r\n", reply.retry_after);
    str_add(&head, "\r\n");
    str_add_bytes(&head, str_text(&reply.body), reply.half ? reply.body.len / 2 : reply.body.len);
    bool whole = reply.status != 0;
    if (whole) send_all(c, head.data, head.len);
    str_free(&head);
    str_free(&reply.body);
    return whole && !reply.half;
}

/* Takes one request out of the text; false: it is not whole yet. */
static bool take_request(Connection *c, Str *text, bool *alive) {
    char *end = text->len ? strstr(text->data, "\r\n\r\n") : NULL, method[16], path[200], key[200] = "";
    if (!end) return false;
    const char *length = strcasestr(text->data, "content-length:"),
               *bearer = strcasestr(text->data, "authorization: bearer ");
    int64_t body = length && length < end ? atoll(length + 15) : 0, head = end + 4 - text->data;
    if (text->len < head + body) return false;
    sscanf(text->data, "%15s %199s", method, path);
    if (bearer && bearer < end) sscanf(bearer + 22, "%199s", key);
    Str content = {0};
    str_add_bytes(&content, text->data + head, body);
    *alive = reply_to(c, &(ServerRequest){method, path, key, content.data});
    str_free(&content);
    memmove(text->data, text->data + head + body, (size_t)(text->len - head - body) + 1);
    text->len -= head + body;
    return true;
}

static void *serve(void *context) {
    Connection *c = context;
    Str text = {0};
    bool alive = true;
    while (alive && receive(c, &text))
        while (alive && take_request(c, &text, &alive)) continue;
    str_free(&text);
    shutdown(c->fd, SHUT_RDWR);
    free(c);
    return NULL;
}

static void *accept_all(void *context) {
    Server *s = context;
    while (!s->stop) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        if (poll(&p, 1, LOOK_MS) <= 0 || s->n == SERVER_CONNECTIONS) continue;
        int fd = accept(s->fd, NULL, NULL);
        if (fd < 0) continue;
        Connection *c = malloc(sizeof *c);
        *c = (Connection){s, fd};
        s->client[s->n] = fd;
        pthread_create(&s->connection[s->n++], NULL, serve, c);
    }
    return NULL;
}

/* On loopback; the port is told where 0 was given. */
static int bind_to(int *port) {
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)*port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || getsockname(fd, (struct sockaddr *)&at, &size)) {
        close(fd);
        return -1;
    }
    *port = ntohs(at.sin_port);
    return fd;
}

int server_hold(int *port) {
    *port = 0;
    return bind_to(port);
}

bool server_start(Server *s, int port, ServerFn *fn, void *user) {
    memset(s, 0, sizeof *s);
    s->fn = fn;
    s->user = user;
    s->port = port;
    s->fd = bind_to(&s->port);
    return s->fd >= 0 && listen(s->fd, SERVER_CONNECTIONS) == 0 &&
           pthread_create(&s->accepting, NULL, accept_all, s) == 0;
}

void server_stop(Server *s) {
    s->stop = true;
    pthread_join(s->accepting, NULL);
    for (int i = 0; i < s->n; i++) pthread_join(s->connection[i], NULL);
    for (int i = 0; i < s->n; i++) close(s->client[i]);
    close(s->fd);
}
