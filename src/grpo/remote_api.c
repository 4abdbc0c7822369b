/* remote_api.c - the JSON of three APIs: what a request holds, where a reply has its answer, what a refusal means. */
#include <string.h>

#include "base/choose.h"
#include "base/json.h"
#include "grpo/clean.h"
#include "grpo/remote_int.h"

enum { EXCERPT = 120 };

bool remote_api_find(RemoteApi *api, const char *name, Err *e) {
    static const char *const names[] = {"chat", "completion", "ollama", "openai"};
    int which;
    bool ok = choose_name(&which, name, names, COUNT_OF(names), "kind of server", e);
    *api = which == 3 ? REMOTE_CHAT : (RemoteApi)which;
    return ok;
}

/* ---- requests ---- */

/* The address without what our paths begin with. */
static void add_root(Str *out, const RemoteSpec *s) {
    const char *url = s->url ? s->url : "http://localhost:11434";
    str_add(out, url);
    while (out->len && out->data[out->len - 1] == '/') out->data[--out->len] = 0;
    const char *own = s->api == REMOTE_OLLAMA ? "/api" : "/v1";
    if (str_ends(out->data, own)) out->data[out->len -= (int64_t)strlen(own)] = 0;
}

void remote_health_url(Str *out, const RemoteSpec *s) {
    add_root(out, s);
    str_add(out, s->api == REMOTE_OLLAMA ? "/api/version" : "/v1/models");
}

void remote_answer_url(Str *out, const RemoteSpec *s) {
    static const char *const path[] = {"/v1/chat/completions", "/v1/completions", "/api/generate"};
    add_root(out, s);
    str_add(out, path[s->api]);
}

static void set_sampling(json_t *to, const RemoteSpec *s, const char *limit) {
    json_object_set_new(to, "temperature", json_real(s->temperature));
    if (s->top_p > 0) json_object_set_new(to, "top_p", json_real(s->top_p));
    if (s->max_tokens > 0) json_object_set_new(to, limit, json_integer(s->max_tokens));
    if (s->seed >= 0) json_object_set_new(to, "seed", json_integer(s->seed));
}

static void add_turn(json_t *messages, const char *role, const char *text) {
    json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", clean_json(text)));
}

void remote_body(Str *out, const RemoteSpec *s, const char *prompt) {
    json_t *body = json_object();
    json_object_set_new(body, "model", clean_json(s->model));
    json_object_set_new(body, "stream", json_false());
    if (s->api == REMOTE_CHAT) {
        json_t *messages = json_array();
        if (s->system) add_turn(messages, "system", s->system);
        add_turn(messages, "user", prompt);
        json_object_set_new(body, "messages", messages);
    } else {
        json_object_set_new(body, "prompt", clean_json(prompt));
    }
    if (s->api == REMOTE_OLLAMA) {
        json_t *options = json_object();
        set_sampling(options, s, "num_predict");
        json_object_set_new(body, "options", options);
        if (s->system) json_object_set_new(body, "system", clean_json(s->system));
    } else {
        set_sampling(body, s, "max_tokens");
    }
    CHECK(json_add(out, body, JSON_ALL_DIGITS));
    json_decref(body);
}

/* ---- replies ---- */

/* What the server says about an error, or the beginning of whatever it sent. */
static void add_reason(Str *why, const HttpReply *r) {
    json_t *body = json_loadb(r->body, (size_t)r->bytes, 0, NULL);
    const json_t *error = json_object_get(body, "error");
    const char *text = json_string_value(json_is_object(error) ? json_object_get(error, "message") : error);
    if (!text) text = json_string_value(json_object_get(body, "message"));
    if (!text) text = r->body;
    if (*text) {
        str_add(why, ": ");
        clean_excerpt(why, text, (int64_t)strlen(text), EXCERPT);
    }
    json_decref(body);
}

static ReplyKind kind_of_status(int status) {
    if (status >= 200 && status < 300) return REPLY_ANSWER;
    if (status == 0 || status == 408 || status == 425 || status == 429 || status >= 500) return REPLY_AGAIN;
    return status == 400 || status == 413 || status == 422 ? REPLY_LOST : REPLY_FATAL;
}

static void read_status(Reply *out, const HttpReply *r) {
    *out = (Reply){.kind = kind_of_status(r->status), .tokens = -1};
    if (out->kind == REPLY_ANSWER) return;
    if (!r->status) {
        str_add(&out->why, r->error);
        return;
    }
    str_addf(&out->why, "HTTP status %d", r->status);
    add_reason(&out->why, r);
    if (r->status == 401 || r->status == 403) str_add(&out->why, " (does it need a key?)");
    if (r->status == 404) str_add(&out->why, " (is the model's name right, and the address?)");
}

/* The text of a reply; NULL: it has none where it should be. An answer of null is an empty one. */
static const char *find_text(Reply *out, const RemoteSpec *s, const json_t *body) {
    const json_t *choice = json_array_get(json_object_get(body, "choices"), 0), *text, *tokens, *end;
    if (s->api == REMOTE_OLLAMA) {
        text = json_object_get(body, "response");
        tokens = json_object_get(body, "eval_count");
        end = json_object_get(body, "done_reason");
    } else {
        const json_t *message = json_object_get(choice, "message");
        text = s->api == REMOTE_CHAT ? json_object_get(message, "content") : json_object_get(choice, "text");
        tokens = json_object_get(json_object_get(body, "usage"), "completion_tokens");
        end = json_object_get(choice, "finish_reason");
    }
    if (json_is_integer(tokens)) out->tokens = json_integer_value(tokens);
    out->cut = json_is_string(end) && !strcmp(json_string_value(end), "length");
    return json_is_null(text) ? "" : json_string_value(text);
}

void remote_read(Reply *out, const RemoteSpec *s, const HttpReply *r) {
    read_status(out, r);
    if (out->kind != REPLY_ANSWER) return;
    json_t *body = json_loadb(r->body, (size_t)r->bytes, 0, NULL);
    const char *text = find_text(out, s, body);
    if (text) {
        str_add(&out->text, text);
    } else {
        out->kind = REPLY_AGAIN;
        str_add(&out->why, body ? "the reply has no answer in it: " : "the reply is not JSON: ");
        clean_excerpt(&out->why, r->body, r->bytes, EXCERPT);
    }
    json_decref(body);
}

void remote_read_health(Reply *out, const RemoteSpec *s, const HttpReply *r) {
    read_status(out, r);
    bool no_list = s->api != REMOTE_OLLAMA && (r->status == 404 || r->status == 405);
    if (no_list) out->kind = REPLY_ANSWER;
}

void remote_reply_free(Reply *r) {
    str_free(&r->text);
    str_free(&r->why);
}
