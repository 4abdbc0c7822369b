/* tokenizer_split.c - the pre-tokenizers: how text is cut into words.
 *
 * Steps are run depth first: each hands every span it cuts to the next step, the last one to merging, so no list
 * of spans is ever kept. A step that changes text writes it to a buffer of its own. */
#include "data/tokenizer_int.h"

#include <string.h>

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char metaspace[] = "\xe2\x96\x81"; /* U+2581, what SentencePiece writes for a space */

/* ---- reading tokenizer.json ---- */

static bool read_behavior(const json_t *component, TokBehavior *behavior, Err *e) {
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                        "Contiguous"};
    const char *name;
    if (!tok_json_text(component, "behavior", &name, e)) return false;
    for (int i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(name, names[i])) return *behavior = (TokBehavior)i, true;
    return fail(e, ERR_FAIL, "split behavior \"%s\" is not supported", name);
}

static bool add_regex(Tokenizer *t, const char *regex, TokBehavior behavior, Err *e) {
    TokStep *s = tok_steps_add(&t->split, SPLIT_PATTERN, e);
    if (!s) return false;
    s->behavior = behavior;
    return tok_pattern_compile(&s->pattern, regex, e);
}

static bool load_split(Tokenizer *t, const json_t *component, Err *e) {
    TokStep *s = tok_steps_add(&t->split, SPLIT_PATTERN, e);
    return s && read_behavior(component, &s->behavior, e) &&
           tok_json_bool(component, "invert", false, &s->invert, e) &&
           tok_pattern_load(&s->pattern, &t->arena, json_object_get(component, "pattern"), e);
}

static bool load_byte_level(Tokenizer *t, const json_t *component, Err *e) {
    bool prefix, regex;
    if (!tok_json_bool(component, "add_prefix_space", true, &prefix, e)) return false;
    if (!tok_json_bool(component, "use_regex", true, &regex, e)) return false;
    if (prefix && !tok_steps_add(&t->split, SPLIT_PREFIX_SPACE, e)) return false;
    t->byte_level = true;
    return !regex || add_regex(t, gpt2_pattern, SPLIT_ISOLATED, e);
}

static bool load_digits(Tokenizer *t, const json_t *component, Err *e) {
    bool individual;
    return tok_json_bool(component, "individual_digits", false, &individual, e) &&
           add_regex(t, "\\p{N}", individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, e);
}

bool tok_metaspace_load(Tokenizer *t, TokStep *s, const json_t *component, Err *e) {
    static const char *const names[] = {"always", "first", "never"};
    bool prefix;
    const char *scheme = json_string_value(json_object_get(component, "prepend_scheme"));
    if (!tok_step_text(t, s, component, "replacement", e)) return false;
    if (!tok_json_bool(component, "add_prefix_space", true, &prefix, e)) return false;
    if (!s->text_bytes) return fail(e, ERR_FAIL, "Metaspace with an empty replacement");
    if (!scheme) scheme = prefix ? "always" : "never"; /* older files have add_prefix_space alone */
    for (int i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(scheme, names[i])) return s->prepend = (TokPrepend)i, true;
    return fail(e, ERR_FAIL, "Metaspace prepend_scheme \"%s\" is not supported", scheme);
}

static bool load_metaspace(Tokenizer *t, const json_t *component, Err *e) {
    bool split;
    TokStep *s = tok_steps_add(&t->split, SPLIT_MARK_SPACES, e);
    if (!s || !tok_metaspace_load(t, s, component, e) || !tok_json_bool(component, "split", true, &split, e))
        return false;
    if (!split) return true;
    const char *mark = s->text;
    s = tok_steps_add(&t->split, SPLIT_PATTERN, e);
    if (!s) return false;
    s->behavior = SPLIT_MERGED_WITH_NEXT;
    tok_pattern_literal(&s->pattern, &t->arena, mark);
    return true;
}

bool tok_split_load(Tokenizer *t, const json_t *component, Err *e) {
    const char *type = tok_json_type(component);
    if (t->byte_level) return fail(e, ERR_FAIL, "pre-tokenizer \"%s\" behind ByteLevel is not supported", type);
    if (!strcmp(type, "Split")) return load_split(t, component, e);
    if (!strcmp(type, "ByteLevel")) return load_byte_level(t, component, e);
    if (!strcmp(type, "Digits")) return load_digits(t, component, e);
    if (!strcmp(type, "Metaspace")) return load_metaspace(t, component, e);
    return fail(e, ERR_FAIL, "pre-tokenizer \"%s\" is not supported", type);
}

/* Whether some merge makes a piece with the mark behind another character. */
static bool mark_stays_in_front(const TokVocab *v) {
    int64_t mark_bytes = (int64_t)sizeof metaspace - 1;
    for (uint64_t i = 0; i <= v->merge_mask; i++) {
        if (v->merges[i].left < 0) continue;
        const char *s = tok_vocab_piece(v, v->merges[i].piece);
        while (str_starts(s, metaspace)) s += mark_bytes;
        if (strstr(s, metaspace)) return false;
    }
    return true;
}

/* Without a pre-tokenizer a whole document is one word. Where no merge crosses from a character to the mark of a
 * space, cutting there changes no id, and turns the document into words that repeat. */
bool tok_split_finish(Tokenizer *t, Err *e) {
    bool wanted = !t->byte_level && !t->ignore_merges;
    if (!wanted || tok_vocab_find(&t->vocab, metaspace, (int64_t)sizeof metaspace - 1) < 0) return true;
    return !mark_stays_in_front(&t->vocab) || tok_steps_add(&t->split, SPLIT_WORD_STARTS, e);
}

/* ---- cutting ---- */

static bool run_from(TokCall *c, int step, const char *text, int64_t n, bool at_start);

/* Spans arrive one by one, matching and not in turn; a behavior may hold one back to join it with the next. */
typedef struct Cutter {
    TokCall *c;
    const char *text;
    int next_step;
    TokBehavior behavior;
    bool at_start;
    bool holds, last_match; /* last_match: of the span that came last */
    int64_t held_from, held_to;
} Cutter;

static bool hand_on(const Cutter *k, int64_t from, int64_t to) {
    return from == to || run_from(k->c, k->next_step, k->text + from, to - from, k->at_start && from == 0);
}

static bool cut_end(Cutter *k) {
    bool ok = !k->holds || hand_on(k, k->held_from, k->held_to);
    k->holds = false;
    return ok;
}

static bool cut_span(Cutter *k, int64_t from, int64_t to, bool match) {
    bool joins = false;
    switch (k->behavior) {
        case SPLIT_ISOLATED:
            return hand_on(k, from, to);
        case SPLIT_REMOVED:
            return match || hand_on(k, from, to);
        case SPLIT_CONTIGUOUS:
            joins = match == k->last_match;
            break;
        case SPLIT_MERGED_WITH_PREVIOUS:
            joins = match && !k->last_match;
            break;
        case SPLIT_MERGED_WITH_NEXT:
            joins = !match && k->last_match;
            break;
    }
    k->last_match = match;
    if (k->holds && joins) {
        k->held_to = to;
        return true;
    }
    bool ok = cut_end(k);
    k->holds = true;
    k->held_from = from;
    k->held_to = to;
    return ok;
}

/* Whether this is the end of a text that goes on: then the step keeps back what more text could change. */
static bool is_open(const TokCall *c, int step, const char *text, int64_t n) {
    return c->split_end && step == c->t->stream_step && text + n == c->split_end;
}

static bool leave(TokCall *c, const char *text, int64_t n) {
    c->left = text;
    c->left_bytes = n;
    c->left_open = true;
    return true;
}

static bool run_pattern(TokCall *c, int step, const char *text, int64_t n, bool at_start) {
    const TokStep *s = &c->t->split.step[step];
    Cutter k = {.c = c, .text = text, .next_step = step + 1, .behavior = s->behavior, .at_start = at_start};
    int64_t done = 0;
    bool open = is_open(c, step, text, n);
    for (int64_t at = 0; at < n;) {
        c->match.more = open;
        if (!tok_pattern_find(&s->pattern, &c->match, text, n, at, c->e)) return false;
        if (!c->match.found) break;
        int64_t start = c->match.start, end = c->match.end; /* the steps below use c->match too */
        if (start > done && !cut_span(&k, done, start, s->invert)) return false;
        if (!cut_span(&k, start, end, !s->invert)) return false;
        done = at = end;
        if (start < end) continue;
        int bytes = 1; /* an empty match: go past a character */
        if (at < n) tok_utf8_decode(text + at, &bytes);
        at += bytes;
    }
    if (open && k.holds) done = k.held_from;
    if (open) return leave(c, text + done, n - done);
    if (done < n && !cut_span(&k, done, n, s->invert)) return false;
    return cut_end(&k);
}

/* Goes on with the text that a step has changed; it ended at `end` before. */
static bool run_changed(TokCall *c, int step, const char *end, bool at_start) {
    const Str *changed = &c->split_text[step];
    if (c->split_end && end == c->split_end) c->split_end = changed->data + changed->len;
    return run_from(c, step + 1, changed->data, changed->len, at_start);
}

/* The beginning of this text was changed by the step already: it is what an earlier piece left. */
static bool goes_on(const TokCall *c, int step) { return c->continues && step < c->t->stream_step; }

static bool run_prefix_space(TokCall *c, int step, const char *text, int64_t n, bool at_start) {
    Str *changed = &c->split_text[step];
    if (text[0] == ' ' || goes_on(c, step)) return run_from(c, step + 1, text, n, at_start);
    str_clear(changed);
    str_add_char(changed, ' ');
    str_add_bytes(changed, text, n);
    return run_changed(c, step, text + n, at_start);
}

static bool run_mark_spaces(TokCall *c, int step, const char *text, int64_t n, bool at_start) {
    const TokStep *s = &c->t->split.step[step];
    Str *changed = &c->split_text[step];
    bool marked = text[0] == ' ' || (n >= s->text_bytes && !memcmp(text, s->text, (size_t)s->text_bytes));
    str_clear(changed);
    if (!marked && !goes_on(c, step) && (s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && at_start)))
        str_add_bytes(changed, s->text, s->text_bytes);
    for (int64_t i = 0; i < n;) {
        const char *space = memchr(text + i, ' ', (size_t)(n - i));
        int64_t to = space ? space - text : n;
        str_add_bytes(changed, text + i, to - i);
        if (space) str_add_bytes(changed, s->text, s->text_bytes);
        i = space ? to + 1 : n;
    }
    return run_changed(c, step, text + n, at_start);
}

static bool run_word_starts(TokCall *c, int step, const char *text, int64_t n, bool at_start) {
    int64_t mark_bytes = (int64_t)sizeof metaspace - 1, from = 0, behind_mark = -1;
    for (int64_t at = 0; at < n;) {
        const char *mark = memmem(text + at, (size_t)(n - at), metaspace, (size_t)mark_bytes);
        if (!mark) break;
        int64_t start = mark - text;
        at = start + mark_bytes;
        if (start > from && start != behind_mark) {
            if (!run_from(c, step + 1, text + from, start - from, at_start && from == 0)) return false;
            from = start;
        }
        behind_mark = at;
    }
    if (is_open(c, step, text, n)) return leave(c, text + from, n - from);
    return run_from(c, step + 1, text + from, n - from, at_start && from == 0);
}

static bool run_from(TokCall *c, int step, const char *text, int64_t n, bool at_start) {
    if (step == c->t->split.n) return tok_bpe_word(c, text, n);
    switch (c->t->split.step[step].kind) {
        case SPLIT_PATTERN:
            return run_pattern(c, step, text, n, at_start);
        case SPLIT_PREFIX_SPACE:
            return run_prefix_space(c, step, text, n, at_start);
        case SPLIT_MARK_SPACES:
            return run_mark_spaces(c, step, text, n, at_start);
        case SPLIT_WORD_STARTS:
            return run_word_starts(c, step, text, n, at_start);
        default:
            CHECK_MSG(false, "step %d is no pre-tokenizer", (int)c->t->split.step[step].kind);
            return false;
    }
}

bool tok_split_run(TokCall *c, const char *text, int64_t n, bool at_start) {
    bool ok = n == 0 || run_from(c, 0, text, n, at_start);
    c->continues = false;
    return ok;
}

/* A word is out for good once a match that saw what follows it has ended it, where nothing looks back. Spaces that
 * steps before it put in or mark stay as they are when these run again. */
int tok_split_stream_step(const Tokenizer *t) {
    const TokSteps *s = &t->split;
    int at = 0;
    while (at < s->n && (s->step[at].kind == SPLIT_PREFIX_SPACE || s->step[at].kind == SPLIT_MARK_SPACES)) at++;
    if (at == s->n) return -1;
    const TokStep *step = &s->step[at];
    bool words = step->kind == SPLIT_WORD_STARTS, pattern = step->kind == SPLIT_PATTERN;
    bool regex = pattern && step->behavior == SPLIT_ISOLATED && step->pattern.code && !step->pattern.looks_back;
    bool marks = pattern && step->behavior == SPLIT_MERGED_WITH_NEXT && step->pattern.literal && !step->invert &&
                 !strcmp(step->pattern.literal, metaspace); /* one character: no piece ends inside it */
    return words || regex || marks ? at : -1;
}
