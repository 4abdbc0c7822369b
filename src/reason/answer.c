/* answer.c - where in a solution its final answer stands. Every search is one pass: solutions can be megabytes
 * of anything. */
#include "reason/answer.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

typedef struct Span {
    const char *begin, *end; /* borrows the solution; begin NULL: nothing */
} Span;

static bool is_blank(char c) { return c && strchr(" \t\r\n\v\f", c); }

static bool at(const char *p, const char *end, const char *word) {
    size_t n = strlen(word);
    return (size_t)(end - p) >= n && !strncasecmp(p, word, n);
}

/* Without the last backslash of an odd number: what it escaped was cut off. "\ " and "\," are spaces, too. */
static Span without_escape(Span s) {
    bool odd = false;
    for (const char *p = s.end; p > s.begin && p[-1] == '\\'; p--) odd = !odd;
    if (odd) s.end--;
    return s;
}

/* Without what stands around an answer and is none of it: white space, markdown, a full stop, a colon. */
static Span trim(Span s) {
    while (s.begin < s.end && strchr(" \t\r\n\v\f*`:,", *s.begin)) s.begin++;
    while (s.end > s.begin && strchr(" \t\r\n\v\f*`:,.;", s.end[-1])) s.end--;
    return without_escape(s);
}

static bool has_content(Span s) {
    for (; s.begin < s.end; s.begin++)
        if (isalnum((unsigned char)*s.begin) || (unsigned char)*s.begin >= 128) return true;
    return false;
}

/* ---- thoughts ---- */

static const char think_open[] = "<think>", think_close[] = "</think>";

void answer_strip_marks(Str *out, const char *solution) {
    const char *end = solution + strlen(solution);
    int64_t before = out->len;
    for (const char *p = solution; p < end;) {
        if (at(p, end, think_open)) p += sizeof think_open - 1;
        else if (at(p, end, think_close)) p += sizeof think_close - 1;
        else if (out->len == before && is_blank(*p)) p++;
        else str_add_char(out, *p++);
    }
    while (out->len > before && is_blank(out->data[out->len - 1])) out->data[--out->len] = 0;
}

void answer_strip_thoughts(Str *out, const char *text) {
    const char *end = text + strlen(text);
    int64_t before = out->len;
    bool inside = false;
    for (const char *p = text; p < end;) {
        if (at(p, end, think_open)) {
            inside = true;
            p += sizeof think_open - 1;
        } else if (at(p, end, think_close)) {
            if (!inside && out->data) out->data[out->len = before] = 0; /* its opening was in the prompt */
            inside = false;
            p += sizeof think_close - 1;
        } else if (inside) {
            p++;
        } else {
            str_add_char(out, *p++);
        }
    }
}

static bool ends_thought(const char *p, const char *end) { return *p == '<' && at(p, end, think_close); }

/* What follows the last </think>; everything where nothing does. */
static Span after_thoughts(const char *solution) {
    Span all = {solution, solution + strlen(solution)};
    for (const char *p = all.end; p-- > all.begin;)
        if (ends_thought(p, all.end)) {
            Span rest = {p + sizeof think_close - 1, all.end};
            return has_content(rest) ? rest : all;
        }
    return all;
}

/* ---- boxes ---- */

enum { BARE_MOST = 256 }; /* bytes of a box without braces */

typedef struct Open {
    const char *begin; /* of what is in the box */
    int64_t depth;     /* of braces around it */
} Open;

typedef struct Boxes {
    Open *open;        /* owns: boxes that have not ended, outermost first */
    int64_t n, capacity, depth;
    Span last;
} Boxes;

/* The length of "\boxed" or "\fbox" at p, or 0. */
static int box_word(const char *p, const char *end) {
    int n = at(p, end, "\\boxed") ? 6 : at(p, end, "\\fbox") ? 5 : 0;
    return n && p + n < end && isalpha((unsigned char)p[n]) ? 0 : n;
}

/* "\boxed 5", "\boxed \frac{1}{2}": up to a blank outside braces. Empty where braces do not close. */
static Span bare_box(const char *p, const char *end) {
    const char *q = p;
    int depth = 0;
    if (end - p > BARE_MOST) end = p + BARE_MOST;
    for (; q < end && !ends_thought(q, end) && !(depth == 0 && (is_blank(*q) || *q == '$' || *q == '}')); q++) {
        if (*q == '\\' && q + 1 < end) q++;
        else depth += (*q == '{') - (*q == '}');
    }
    return (Span){p, depth == 0 ? q : p};
}

/* A box has begun at p, behind its word. Returns where to go on. */
static const char *begin_box(Boxes *b, const char *p, const char *end) {
    const char *q = p;
    while (q < end && (*q == ' ' || *q == '\t')) q++;
    if (q < end && *q == '{') {
        b->open = mem_grow(b->open, &b->capacity, b->n + 1, sizeof *b->open);
        b->open[b->n++] = (Open){q + 1, ++b->depth};
        return q + 1;
    }
    if (q == p) return p;
    Span bare = bare_box(q, end);
    if (has_content(trim(bare))) b->last = trim(bare);
    return bare.end;
}

/* The box that ends last: the outermost of nested ones. Empty ones do not count; none reaches over the end of a
 * thought. */
static Span last_box(Span s) {
    Boxes b = {0};
    for (const char *p = s.begin; p < s.end;) {
        int word = *p == '\\' ? box_word(p, s.end) : 0;
        if (word) {
            p = begin_box(&b, p + word, s.end);
        } else if (*p == '\\') {
            p += p + 1 < s.end ? 2 : 1; /* "\{" is no brace */
        } else if (ends_thought(p, s.end)) {
            b.n = b.depth = 0;
            p += sizeof think_close - 1;
        } else {
            b.depth += *p == '{';
            if (*p == '}' && b.depth > 0) {
                bool ends = b.n && b.open[b.n - 1].depth == b.depth--;
                Span in = ends ? (Span){b.open[--b.n].begin, p} : (Span){0};
                while (in.begin < in.end && is_blank(*in.begin)) in.begin++;
                while (in.end > in.begin && is_blank(in.end[-1])) in.end--;
                in = without_escape(in);
                if (in.begin < in.end) b.last = in;
            }
            p++;
        }
    }
    mem_free(b.open);
    return b.last;
}

/* A box around nothing but a box is one box. */
static Span innermost(Span s) {
    for (int i = 0; i < 8 && box_word(s.begin, s.end); i++) {
        Span in = last_box(s);
        if (!in.begin || in.begin - s.begin > 8 || s.end - in.end != 1) break;
        s = in;
    }
    return s;
}

/* ---- "#### 18" ---- */

static Span last_hashes(Span s) {
    const char *stop = s.end;
    for (const char *p = s.end; p-- > s.begin;) {
        if (*p == '\n') stop = p;
        if (!at(p, stop, "####")) continue;
        Span line = trim((Span){p + 4, stop});
        if (has_content(line)) return line;
    }
    return (Span){0};
}

/* ---- sentences ---- */

static bool ends_sentence(const char *p, const char *end) {
    if (*p == '\n') return true;
    return strchr(".!?", *p) && *p && (p + 1 == end || is_blank(p[1]));
}

/* Where the last of a phrase begins in a sentence, as a word of its own; NULL: nowhere. */
static const char *last_phrase(Span s, const char *phrase) {
    for (const char *p = s.end; p-- > s.begin;)
        if (at(p, s.end, phrase) && (p == s.begin || !isalpha((unsigned char)p[-1]))) return p;
    return NULL;
}

/* What follows "answer is" and the like; when that is nothing, the next line of the solution. */
static Span told(Span sentence, const char *end) {
    static const char *const phrases[] = {"answer is", "answer:", "answer**:", "answer =", "result is", "solution is"};
    const char *from = NULL;
    for (int i = 0; i < COUNT_OF(phrases); i++) {
        const char *p = last_phrase(sentence, phrases[i]);
        if (p && (!from || p + strlen(phrases[i]) > from)) from = p + strlen(phrases[i]);
    }
    if (!from) return (Span){0};
    Span rest = trim((Span){from, sentence.end});
    if (has_content(rest)) return rest;
    for (const char *p = sentence.end; p < end; p = rest.end + 1) {
        rest = (Span){p, p};
        while (rest.end < end && *rest.end != '\n') rest.end++;
        if (has_content(rest)) return trim(rest);
    }
    return (Span){0};
}

/* The last number of a sentence, with its sign, separators and fraction line. */
static Span last_number(Span s) {
    const char *end = s.end;
    while (end > s.begin && !isdigit((unsigned char)end[-1])) end--;
    if (end == s.begin) return (Span){0};
    Span n = {end, end < s.end && *end == '%' ? end + 1 : end};
    while (n.begin > s.begin && (isdigit((unsigned char)n.begin[-1]) || strchr(".,/", n.begin[-1]))) n.begin--;
    while (n.begin < end && !isdigit((unsigned char)*n.begin) && *n.begin != '.') n.begin++;
    if (n.begin > s.begin && n.begin[-1] == '-') n.begin--;
    return n;
}

/* A formula that began before the span ends inside it: cut there. */
static Span cut_formula(Span s) {
    int dollars = 0;
    for (const char *p = s.begin; p < s.end; p++) dollars += *p == '$' && (p == s.begin || p[-1] != '\\');
    for (const char *p = s.begin; p < s.end; p++)
        if ((dollars % 2 && *p == '$' && p > s.begin && p[-1] != '\\') || at(p, s.end, "\\)") || at(p, s.end, "\\]"))
            return trim((Span){s.begin, p});
    return trim(s);
}

/* What a sentence with "therefore", "thus" or "so" concludes: what follows its last "=", its last formula, its last
 * number. */
static Span concluded(Span sentence) {
    const char *word = last_phrase(sentence, "therefore"), *formula = NULL, *closing = NULL;
    if (!word) word = last_phrase(sentence, "thus");
    bool so = !word && (word = last_phrase(sentence, "so "));
    if (!word) return (Span){0};
    Span rest = {word, sentence.end};
    for (const char *p = rest.end; p-- > rest.begin;) {
        if (*p == '=') return cut_formula((Span){p + 1, rest.end});
        if (*p != '$' || (p > rest.begin && p[-1] == '\\')) continue;
        if (!closing) closing = p;
        else if (!formula) formula = p;
    }
    if (so) return (Span){0};
    if (formula && has_content((Span){formula + 1, closing})) return trim((Span){formula + 1, closing});
    return last_number(rest);
}

static Span last_sentence_that_tells(Span s) {
    for (const char *end = s.end, *p = s.end; p-- > s.begin;) {
        if (p > s.begin && !(p + 1 < end && ends_sentence(p, s.end))) continue;
        Span sentence = {ends_sentence(p, s.end) ? p + 1 : p, end}, found = told(sentence, s.end);
        if (!found.begin) found = concluded(sentence);
        if (found.begin && has_content(found)) return found;
        end = p + 1;
    }
    return (Span){0};
}

static Span last_line(Span s) {
    for (const char *end = s.end, *p = s.end; p-- > s.begin;) {
        if (p > s.begin && *p != '\n') continue;
        Span line = trim((Span){p, end});
        if (has_content(line)) return line;
        end = p;
    }
    return (Span){0};
}

AnswerFrom answer_find(Str *out, const char *solution) {
    Span s = after_thoughts(solution), found = last_box(s);
    AnswerFrom from = ANSWER_BOX;
    if (found.begin) found = innermost(found);
    if (!found.begin && (found = last_hashes(s)).begin) from = ANSWER_HASHES;
    if (!found.begin && (found = last_sentence_that_tells(s)).begin) from = ANSWER_PHRASE;
    if (!found.begin && (found = last_line(s)).begin) from = ANSWER_LINE;
    if (!found.begin) return ANSWER_NONE;
    str_add_bytes(out, found.begin, found.end - found.begin);
    return from;
}

void answer_final(Str *out, const char *reference) {
    Str found = {0};
    AnswerFrom from = answer_find(&found, reference);
    bool marked = from == ANSWER_BOX || from == ANSWER_HASHES;
    if (marked || strchr(reference, '\n'))
        str_add(out, str_text(&found));
    else
        str_add_trimmed(out, reference);
    str_free(&found);
}
