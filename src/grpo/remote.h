/* remote.h - an evaluator behind HTTP: an OpenAI-compatible server or Ollama answers the prompts that a policy wrote.
 *
 * A prompt is asked once and its answer handed over once. A request that meets a server error, a closed connection,
 * a reply that makes no sense or its time limit is tried again, a little later each time (0.5, 1, 2, ... s, or when
 * the server says). When its attempts are used up and the server is well, the prompt has no answer: it costs that
 * sample, is counted and named. When the server is not well (its health check fails), the run pauses: one message,
 * a check every few seconds, and once the server is back everything that was under way is asked again, so that
 * nothing is lost. A server that refuses the key, the model or the address ends the run.
 *
 *   health check     GET /api/version (Ollama), GET /v1/models (OpenAI-compatible; one without such a list is well)
 *
 * One thread owns a Remote. Nothing here waits but remote_pump and remote_finish. Memory: what was submitted, and
 * reply_bytes for each request at a time. */
#ifndef GRPO_REMOTE_H
#define GRPO_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef enum RemoteApi {
    REMOTE_CHAT,       /* POST /v1/chat/completions */
    REMOTE_COMPLETION, /* POST /v1/completions: no chat template */
    REMOTE_OLLAMA      /* POST /api/generate */
} RemoteApi;
bool remote_api_find(RemoteApi *api, const char *name, Err *e); /* chat, openai, completion, ollama */

enum { REMOTE_CONCURRENCY = 8 }; /* requests at a time where nothing is said */

typedef struct RemoteSpec { /* texts: keeps until closed */
    RemoteApi api;
    const char *url; /* "http://localhost:8000", with or without /v1; NULL: http://localhost:11434 for Ollama */
    const char *model;
    const char *key;        /* of the API; NULL: none. Never written anywhere */
    const char *system;     /* a turn before the prompt; NULL: none */
    const char *proxy;      /* NULL: none */
    double temperature;     /* 0: the likeliest token each time */
    double top_p;           /* 0: not said */
    int64_t max_tokens;     /* 0: not said */
    int64_t seed;           /* -1: not said */
    int concurrency;        /* requests at a time; 0: REMOTE_CONCURRENCY */
    double seconds;         /* of one request; 0: 60 */
    int attempts;           /* 0: 4 */
    double backoff_seconds; /* before the second attempt, twice as long before each further one; 0: 0.5 */
    double check_seconds;   /* between health checks of a server that is away; 0: 2 */
    int64_t reply_bytes;    /* 0: 4 MiB */
} RemoteSpec;

typedef struct RemoteAnswer {
    int64_t id;
    const char *text; /* NULL: none, and why says the reason; borrows */
    int64_t tokens;   /* -1: not said */
    bool cut;         /* ended by its length */
    const char *why;
} RemoteAnswer;
typedef void RemoteFn(void *user, const RemoteAnswer *a);

typedef struct RemoteFacts {
    int64_t answered, lost, retries, pauses;
    double paused_seconds;
} RemoteFacts;

typedef struct Remote Remote;

/* The longest reply to a prompt of so many tokens that is taken for one, with its names, counts and, of Ollama, the
 * numbers of all tokens. A server that sends more has not kept to max_tokens, or sends something else. */
int64_t remote_reply_bytes(int64_t prompt_tokens, int64_t max_tokens);
int64_t remote_bytes(const RemoteSpec *s); /* at most, for replies that come and one that is read */

/* Checks the server's health first. fn is called from inside remote_pump. Gives: remote_close. */
bool remote_open(Remote **r, const RemoteSpec *spec, RemoteFn *fn, void *user, Err *e);
void remote_close(Remote *r); /* NULL is fine */

/* name: what messages call it. Copies. */
void remote_submit(Remote *r, int64_t id, const char *name, const char *prompt);
int64_t remote_pending(const Remote *r);
bool remote_paused(const Remote *r);

/* Moves what can be moved, waiting at most so long. False: the run cannot go on with this server. */
bool remote_pump(Remote *r, int milliseconds, Err *e);

/* Until nothing is pending. keep_going (may be NULL) is asked five times a second, also while the server is away;
 * once it says no, what is pending is dropped and the call is refused. */
bool remote_finish(Remote *r, bool (*keep_going)(void *user), void *user, Err *e);

RemoteFacts remote_facts(const Remote *r);

#endif
