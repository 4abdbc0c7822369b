/* remote_int.h - what is said to a server and what it replies, without how: between remote.c and remote_api.c. */
#ifndef GRPO_REMOTE_INT_H
#define GRPO_REMOTE_INT_H

#include "base/http.h"
#include "base/str.h"
#include "grpo/remote.h"

void remote_health_url(Str *out, const RemoteSpec *s);
void remote_answer_url(Str *out, const RemoteSpec *s);
void remote_body(Str *out, const RemoteSpec *s, const char *prompt);

typedef enum ReplyKind {
    REPLY_ANSWER,
    REPLY_AGAIN, /* may work another time */
    REPLY_LOST,  /* this prompt never will */
    REPLY_FATAL  /* none will */
} ReplyKind;

typedef struct Reply {
    ReplyKind kind;
    Str text, why; /* owns */
    int64_t tokens;
    bool cut;
} Reply;

void remote_read(Reply *out, const RemoteSpec *s, const HttpReply *r);
/* REPLY_ANSWER: it is well. */
void remote_read_health(Reply *out, const RemoteSpec *s, const HttpReply *r);
void remote_reply_free(Reply *r);

#endif
