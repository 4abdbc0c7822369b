/* dataset_chat.c - which part of a rendered conversation is an answer.
 *
 * A template says nothing about parts, so a conversation is rendered several times. For an assistant's turn i:
 *     before = turns 0 .. i-1 with the generation prompt        what the model sees when it is asked
 *     after  = turns 0 .. i                                     the same with the answer and its end of turn
 *     full   = all turns up to the last answer                  what is encoded
 * Where `before` begins `after` and `after` begins `full`, the answer is exactly the text between the first two,
 * and prompt and answer are encoded apart at that border. A template that renders an earlier answer differently
 * once the conversation goes on (one that leaves old thoughts out, say) breaks this for that answer: it is not
 * scored then. */
#include <string.h>

#include "data/dataset_int.h"

typedef struct Span {
    int64_t begin, end; /* bytes of the full text */
} Span;

/* ---- turns ---- */

static const struct {
    const char *from, *role;
} senders[] = {
    {"human", "user"},        {"user", "user"},        {"gpt", "assistant"},   {"assistant", "assistant"},
    {"chatgpt", "assistant"}, {"bot", "assistant"},    {"model", "assistant"}, {"system", "system"},
    {"tool", "tool"},         {"observation", "tool"},
};

json_t *dataset_turn(const char *role, const char *text, int64_t bytes) {
    json_t *turn = json_object();
    json_object_set_new(turn, "role", json_string(role));
    json_object_set_new(turn, "content", json_stringn(text, (size_t)bytes));
    return turn;
}

static const char *role_of(const json_t *turn) { return json_string_value(json_object_get(turn, "role")); }

static bool add_sharegpt(json_t *turns, const json_t *turn, const char *field, size_t i, Err *e) {
    const json_t *value = json_object_get(turn, "value");
    const char *from = json_string_value(json_object_get(turn, "from"));
    if (!from || !json_is_string(value))
        return fail(e, ERR_FAIL, "%s[%zu] needs text in 'role' and 'content', or in 'from' and 'value'", field, i);
    for (int k = 0; k < COUNT_OF(senders); k++)
        if (!strcmp(from, senders[k].from)) {
            json_array_append_new(turns, dataset_turn(senders[k].role, json_string_value(value),
                                                      (int64_t)json_string_length(value)));
            return true;
        }
    return fail(e, ERR_FAIL, "%s[%zu] is from '%.60s'. Known: human, gpt, system, tool", field, i, from);
}

/* Parts of text become one; pictures and sounds are not understood. Gives; NULL: refused. */
static json_t *join_parts(const json_t *parts, const char *field, size_t i, Err *e) {
    Str text = {0};
    size_t k;
    json_t *part;
    bool ok = true;
    json_array_foreach((json_t *)parts, k, part) {
        const json_t *words = json_is_string(part) ? part : json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!(ok = json_is_string(words) && (!type || !strcmp(type, "text")))) {
            fail(e, ERR_FAIL, "%s[%zu]: part %zu of its content is %s%s%s; only parts of text are understood",
                 field, i, k, type ? "of type '" : "not text", type ? type : "", type ? "'" : "");
            break;
        }
        str_add_bytes(&text, json_string_value(words), (int64_t)json_string_length(words));
    }
    json_t *joined = ok ? json_stringn_nocheck(str_text(&text), (size_t)text.len) : NULL;
    str_free(&text);
    return joined;
}

static bool add_turn(json_t *turns, json_t *turn, const char *field, size_t i, Err *e) {
    const json_t *content = json_object_get(turn, "content");
    bool empty = !content || json_is_null(content);
    if (empty && !json_object_get(turn, "tool_calls"))
        return fail(e, ERR_FAIL, "%s[%zu]: its content is %s; text was expected", field, i,
                    content ? "null" : "missing");
    if (empty || json_is_string(content)) {
        json_array_append(turns, turn);
        return true;
    }
    if (!json_is_array(content))
        return fail(e, ERR_FAIL, "%s[%zu]: its content is %s; text was expected, or a list of parts of text", field, i,
                    dataset_type_text(json_typeof(content)));
    json_t *joined = join_parts(content, field, i, e);
    if (!joined) return false;
    json_t *copy = json_copy(turn);
    json_object_set_new(copy, "content", joined);
    json_array_append_new(turns, copy);
    return true;
}

bool dataset_add_turns(json_t *turns, const json_t *list, const char *field, Err *e) {
    size_t i;
    json_t *turn;
    json_array_foreach((json_t *)list, i, turn) {
        if (!json_is_object(turn))
            return fail(e, ERR_FAIL, "%s[%zu] is not an object with a role and content", field, i);
        if (!(role_of(turn) ? add_turn(turns, turn, field, i, e) : add_sharegpt(turns, turn, field, i, e)))
            return false;
    }
    return true;
}

/* ---- rendering ---- */

static bool render(RowMaker *m, Str *out, json_t *turns, bool ask, Err *e) {
    str_clear(out);
    json_object_set(m->vars, "messages", turns);
    json_object_set_new(m->vars, "add_generation_prompt", json_boolean(ask));
    return template_render(m->o->chat, out, m->vars, e);
}

static bool begins(const Str *text, const Str *with) {
    return with->len <= text->len && !memcmp(str_text(text), str_text(with), (size_t)with->len);
}

/* Some templates ask for an answer with words that the finished answer does not carry (an opened thought). The
 * answer then begins where the two part, stepped back to the end of a mark: common letters mean nothing. */
static bool find_parting(RowMaker *m, json_t *before, int64_t *begin, bool *found, Err *e) {
    int64_t n = 0, most = MIN2(m->part.len, m->full.len);
    while (n < most && m->part.data[n] == m->full.data[n]) n++;
    while (n > 0 && !strchr(">\n: ]", m->full.data[n - 1])) n--;
    if (!render(m, &m->part, before, false, e)) return false;
    *found = begins(&m->full, &m->part) && n >= m->part.len;
    *begin = n;
    return true;
}

/* The answer that turn `turn` gives to the turns `before`. */
static bool find_answer(RowMaker *m, Span *at, bool *found, json_t *before, const json_t *turn, bool last,
                        Err *e) {
    Err unused;
    *found = false;
    if (!render(m, &m->part, before, true, last ? e : &unused)) return !last;
    at->begin = m->part.len;
    at->end = m->full.len;
    *found = begins(&m->full, &m->part);
    if (last) return *found || find_parting(m, before, &at->begin, found, e);
    if (!*found) return true;
    json_array_append(before, (json_t *)turn);
    *found = render(m, &m->part, before, false, &unused) && begins(&m->full, &m->part);
    at->end = m->part.len;
    json_array_remove(before, json_array_size(before) - 1);
    return true;
}

/* ---- scoring ---- */

/* The answer ends with EOS or else with its last special token: what the template writes behind that (the line end
 * of ChatML) the model is not asked for. Without either, all of it is the answer. */
static void end_answer(const RowMaker *m, Sample *s, int64_t first) {
    int64_t end = first;
    uint32_t eos = (uint32_t)m->o->eos_id | SCORED;
    while (end < s->n && (m->o->eos_id < 0 || s->token[end] != eos)) end++;
    bool special = end < s->n;
    for (int64_t i = s->n - 1; !special && i >= first; i--) {
        special = tokenizer_is_special(m->o->tokenizer, (int32_t)(s->token[i] & ~SCORED));
        end = i;
    }
    s->end_id = special ? (int32_t)(s->token[end] & ~SCORED) : m->o->eos_id;
    for (int64_t i = end + 1; special && i < s->n; i++) s->token[i] &= ~SCORED;
}

static bool encode_answer(RowMaker *m, Sample *s, int64_t *done, Span at, Err *e) {
    const char *text = str_text(&m->full);
    if (!dataset_encode(m, s, text + *done, at.begin - *done, *done > 0, false, e)) return false;
    int64_t first = s->n;
    *done = at.end;
    if (!dataset_encode(m, s, text + at.begin, at.end - at.begin, at.begin > 0, true, e)) return false;
    end_answer(m, s, first);
    return true;
}

static bool encode_turns(RowMaker *m, Sample *s, json_t *before, const json_t *turns, int64_t score_from, Err *e) {
    int64_t last = (int64_t)json_array_size(turns) - 1, done = 0;
    for (int64_t i = 0; i <= last; i++) {
        json_t *turn = json_array_get(turns, (size_t)i);
        bool scored =
            i == last || (m->o->score == SCORE_ALL && i >= score_from && !strcmp(role_of(turn), "assistant"));
        if (scored) {
            Span at;
            bool found;
            if (!find_answer(m, &at, &found, before, turn, i == last, e)) return false;
            found = found && at.begin >= done && at.end > at.begin;
            if (!found && i == last)
                return fail(
                    e, ERR_FAIL,
                    "the chat template changes the conversation when the last answer is added: the "
                    "answer cannot be told from the rest%s",
                    m->kind == DATA_PROMPT || m->kind == DATA_ALPACA ? ". --template none does without it" : "");
            if (!found) s->last_only = true;
            if (found && !encode_answer(m, s, &done, at, e)) return false;
        }
        json_array_append(before, turn);
    }
    return true;
}

bool dataset_make_chat(RowMaker *m, Sample *s, json_t *turns, const json_t *tools, int64_t score_from, Err *e) {
    int64_t n = (int64_t)json_array_size(turns);
    while (n > score_from && strcmp(role_of(json_array_get(turns, (size_t)n - 1)), "assistant")) n--;
    s->unanswered = n <= score_from;
    if (s->unanswered) return true; /* nothing to learn */
    while ((int64_t)json_array_size(turns) > n) json_array_remove(turns, (size_t)n);
    json_object_set_new(m->vars, "tools", tools ? json_incref((json_t *)tools) : json_null());
    json_t *before = json_array();
    bool ok = render(m, &m->full, turns, false, e) && encode_turns(m, s, before, turns, score_from, e);
    json_object_del(m->vars, "messages");
    json_decref(before);
    return ok;
}
