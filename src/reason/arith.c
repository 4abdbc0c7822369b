/* arith.c - how an arithmetic story is drawn, solved and solved wrongly; the sentences themselves are
 * arith_words.c's. */
#include "reason/arith.h"

#include <string.h>

#include "base/rng.h"
#include "reason/arith_int.h"

enum { EVENTS_MOST = 3, PIECES_MOST = EVENTS_MOST + 2, PARTS = 8, SPOILED_MOST = 999 };

typedef struct Range {
    int low, high; /* both 0: the sentence has no such number */
} Range;

/* What a sentence does to x: y is a, b, `by`, or (`pair`) a pair_op b; then x becomes y, or (`on_x`) x op y. */
typedef struct Rule {
    Range a, b;
    int by;
    bool pair, on_x;
    ArithOp pair_op, op;
} Rule;

static const Rule rules[PIECES] = {
    [START_HAS] = {.a = {2, 60}},
    [START_GROUPS] = {.a = {2, 12}, .b = {2, 9}, .pair = true, .pair_op = ARITH_MULTIPLY},
    [START_MORE] = {.a = {4, 60}, .b = {2, 40}, .pair = true, .pair_op = ARITH_ADD},
    [START_FEWER] = {.a = {4, 80}, .b = {2, 40}, .pair = true, .pair_op = ARITH_SUBTRACT},
    [START_TIMES] = {.a = {2, 30}, .b = {2, 5}, .pair = true, .pair_op = ARITH_MULTIPLY},
    [EVENT_GETS] = {.a = {2, 60}, .on_x = true, .op = ARITH_ADD},
    [EVENT_LOSES] = {.a = {2, 60}, .on_x = true, .op = ARITH_SUBTRACT},
    [EVENT_DOUBLES] = {.by = 2, .on_x = true, .op = ARITH_MULTIPLY},
    [EVENT_TRIPLES] = {.by = 3, .on_x = true, .op = ARITH_MULTIPLY},
    [EVENT_HALVES] = {.by = 2, .on_x = true, .op = ARITH_DIVIDE},
    [EVENT_GETS_GROUPS] = {.a = {2, 12}, .b = {2, 9}, .pair = true, .pair_op = ARITH_MULTIPLY,
                           .on_x = true, .op = ARITH_ADD},
    [EVENT_GIVES_GROUPS] = {.a = {2, 12}, .b = {2, 9}, .pair = true, .pair_op = ARITH_MULTIPLY,
                            .on_x = true, .op = ARITH_SUBTRACT},
    [ASK_NOW] = {.by = 0},
    [ASK_SHARED] = {.b = {2, 9}, .on_x = true, .op = ARITH_DIVIDE},
    [ASK_PACKED] = {.b = {2, 9}, .on_x = true, .op = ARITH_DIVIDE},
    [ASK_SOLD] = {.b = {2, 9}, .on_x = true, .op = ARITH_MULTIPLY},
};

typedef struct Draw { /* numbers one after another from one key */
    uint64_t key, index;
} Draw;

static int below(Draw *d, int n) {
    return (int)(((uint64_t)rng_u32(d->key, d->index++) * (uint64_t)n) >> 32);
}

static int within(Draw *d, Range r) { return r.high ? r.low + below(d, r.high - r.low + 1) : 0; }

/* False: not a whole number, or below 1. */
static bool compute(int64_t *out, ArithOp op, int64_t a, int64_t b) {
    switch (op) {
    case ARITH_ADD: *out = a + b; break;
    case ARITH_SUBTRACT: *out = a - b; break;
    case ARITH_MULTIPLY: *out = a * b; break;
    case ARITH_DIVIDE: *out = b && a % b == 0 ? a / b : 0; break;
    }
    return *out >= 1;
}

/* ---- a solution as it is written ---- */

/* The way there in small sums, which is how a person does it in the head: a number's tens, then its ones. */
static void write_between(Str *out, const ArithStep *s) {
    long long a = s->a.value, b = s->b.value, whole = s->op == ARITH_DIVIDE ? a / b : s->op == ARITH_MULTIPLY ? a : b;
    if (whole < 10 || whole % 10 == 0) return;
    long long ones = whole % 10, tens = whole - ones;
    switch (s->op) {
    case ARITH_ADD: str_addf(out, " = %lld + %lld", a + tens, ones); break;
    case ARITH_SUBTRACT: str_addf(out, " = %lld - %lld", a - tens, ones); break;
    case ARITH_MULTIPLY: str_addf(out, " = %lld + %lld", tens * b, ones * b); break;
    case ARITH_DIVIDE: str_addf(out, " = %lld + %lld", tens, ones); break;
    }
}

/* As a solution writes it: "47 + 85 = 127 + 5 = 132". */
static void write_step(Str *out, const ArithStep *s) {
    str_addf(out, "%lld %c %lld", (long long)s->a.value, "+-*/"[s->op], (long long)s->b.value);
    write_between(out, s);
    str_addf(out, " = %lld", (long long)s->result);
}

static void write_solution(Str *out, const ArithStep *step, int n) {
    static const char *const name[] = {"add", "subtract", "multiply", "divide"};
    for (int i = 0; i < n; i++) {
        str_addf(out, "Step %d, %s: ", i + 1, name[step[i].op]);
        write_step(out, &step[i]);
        str_add(out, ".\n");
    }
    str_addf(out, "The answer is \\boxed{%lld}.", (long long)step[n - 1].result);
}

/* ---- a story ---- */

typedef struct Sentence {
    Piece piece;
    int a, b;
} Sentence;

typedef struct Story {
    Sentence sentence[PIECES_MOST];
    int n;
} Story;

static ArithTerm number(int64_t value) { return (ArithTerm){value, -1}; }

static bool add_step(Arith *out, ArithTerm *result, ArithOp op, ArithTerm a, ArithTerm b) {
    ArithStep s = {.op = op, .a = a, .b = b};
    if (out->n_steps == ARITH_STEPS_MOST || !compute(&s.result, op, a.value, b.value)) return false;
    if (s.result > ARITH_VALUE_MOST) return false;
    *result = (ArithTerm){s.result, out->n_steps};
    out->step[out->n_steps++] = s;
    return true;
}

static bool solve(Arith *out, const Story *s) {
    ArithTerm x = number(0);
    out->n_steps = 0;
    for (int i = 0; i < s->n; i++) {
        const Sentence *t = &s->sentence[i];
        const Rule *r = &rules[t->piece];
        ArithTerm y = number(t->a ? t->a : t->b ? t->b : r->by);
        if (t->piece == ASK_NOW) continue;
        if (r->pair && !add_step(out, &y, r->pair_op, number(t->a), number(t->b))) return false;
        if (!r->on_x) x = y;
        else if (!add_step(out, &x, r->op, x, y)) return false;
    }
    out->answer = x.value;
    return true;
}

/* Which part a story's numbers belong to, in whatever order they are told. */
static ArithPart part_of(const Story *s) {
    uint64_t sum = 0;
    for (const Sentence *t = s->sentence; t < s->sentence + s->n; t++)
        sum += rng_mix((uint64_t)t->a) + rng_mix((uint64_t)t->b); /* of 0: 0 */
    return rng_mix(sum) % PARTS ? ARITH_TRAIN : ARITH_HELD_OUT;
}

static void add_sentence(Story *s, Draw *d, Piece p) {
    s->sentence[s->n++] = (Sentence){p, within(d, rules[p].a), within(d, rules[p].b)};
}

static Piece between(Draw *d, Piece first, Piece last) { return (Piece)(first + below(d, last - first + 1)); }

/* Half of all stories begin with a plain number, half end with a plain question. */
static void draw_story(Story *s, Draw *d) {
    s->n = 0;
    add_sentence(s, d, below(d, 2) ? START_HAS : between(d, START_GROUPS, START_TIMES));
    for (int n = below(d, EVENTS_MOST + 1); n > 0; n--) {
        Piece next;
        do next = between(d, EVENT_GETS, EVENT_GIVES_GROUPS);
        while (next == s->sentence[s->n - 1].piece); /* the same twice in a row reads like a misprint */
        add_sentence(s, d, next);
    }
    add_sentence(s, d, below(d, 2) ? ASK_NOW : between(d, ASK_SHARED, ASK_SOLD));
}

/* ---- its words ---- */

typedef struct Cast {
    const char *hero, *other, *thing, *container, *people;
} Cast;

static const char *draw_word(Draw *d, WordKind kind) {
    int n;
    const char *const *words = arith_words(kind, &n);
    return words[below(d, n)];
}

static Cast draw_cast(Draw *d) {
    Cast c = {.hero = draw_word(d, WORD_NAME), .thing = draw_word(d, WORD_THING)};
    c.container = draw_word(d, WORD_CONTAINER);
    c.people = draw_word(d, WORD_PEOPLE);
    do c.other = draw_word(d, WORD_NAME);
    while (c.other == c.hero);
    return c;
}

static const char *draw_phrasing(Draw *d, Piece piece, ArithPart part) {
    int n, count = 0;
    const Phrasing *p = arith_phrasings(&n);
    for (int i = 0; i < n; i++) count += p[i].piece == piece && p[i].part == part;
    int chosen = below(d, count);
    for (int i = 0;; i++)
        if (p[i].piece == piece && p[i].part == part && chosen-- == 0) return p[i].text;
}

/* One of "[this|that]"; text stands at the bracket. Gives where it goes on. */
static const char *choose(Str *out, Draw *d, const char *text) {
    const char *end = strchr(text, ']');
    int n = 1;
    for (const char *c = text; c < end; c++) n += *c == '|';
    const char *from = text + 1;
    for (int chosen = below(d, n); chosen > 0; chosen--) from = strchr(from, '|') + 1;
    str_add_bytes(out, from, (int64_t)strcspn(from, "|]"));
    return end + 1;
}

static void fill(Str *out, char slot, const Sentence *s, const Cast *c) {
    switch (slot) {
    case 'n': str_add(out, c->hero); break;
    case 'm': str_add(out, c->other); break;
    case 't': str_add(out, c->thing); break;
    case 'c': str_add(out, c->container); break;
    case 'f': str_add(out, c->people); break;
    case 'a': str_addf(out, "%d", s->a); break;
    case 'b': str_addf(out, "%d", s->b); break;
    default: CHECK_MSG(false, "a phrasing has the slot {%c}", slot);
    }
}

static void tell(Str *out, Draw *d, const Story *s, ArithPart part) {
    Cast cast = draw_cast(d);
    for (int i = 0; i < s->n; i++) {
        const char *t = draw_phrasing(d, s->sentence[i].piece, part);
        if (i) str_add_char(out, ' ');
        while (*t) {
            if (*t == '[') {
                t = choose(out, d, t);
            } else if (*t == '{') {
                fill(out, t[1], &s->sentence[i], &cast);
                t += 3;
            } else {
                str_add_char(out, *t++);
            }
        }
    }
}

void arith_draw(Arith *out, uint64_t key, ArithPart part) {
    Draw d = {.key = rng_fold(key, (uint64_t)part)};
    Story s;
    int n_steps = 1 + below(&d, ARITH_STEPS_MOST); /* each number of steps is as likely as the others */
    do draw_story(&s, &d);
    while (!solve(out, &s) || out->n_steps != n_steps || part_of(&s) != part);
    str_clear(&out->problem);
    str_clear(&out->solution);
    tell(&out->problem, &d, &s, part);
    write_solution(&out->solution, out->step, out->n_steps);
}

void arith_free(Arith *a) {
    str_free(&a->problem);
    str_free(&a->solution);
    *a = (Arith){0};
}

/* ---- and its mistakes ---- */

static int64_t misread(Draw *d, int64_t value) {
    int64_t turned = value % 10 * 10 + value / 10;
    if (value >= 10 && value < 100 && turned >= 10 && turned != value && below(d, 2)) return turned;
    return value + (below(d, 2) ? 1 : -1) * (1 + below(d, value < 20 ? 3 : 10));
}

static void leave_out(Arith *a, int gone) {
    ArithTerm instead = a->step[gone].a;
    a->n_steps--;
    for (int i = gone; i < a->n_steps; i++) {
        ArithStep *s = &a->step[i];
        *s = a->step[i + 1];
        for (ArithTerm *t = &s->a;; t = &s->b) {
            if (t->from == gone) *t = instead;
            else if (t->from > gone) t->from--;
            if (t == &s->b) break;
        }
    }
}

/* Carries values on; the result of step `slipped` stays as it is. False: the mistake led to no whole number. */
static bool carry_on(Arith *a, int slipped) {
    for (int i = 0; i < a->n_steps; i++) {
        ArithStep *s = &a->step[i];
        int64_t result = 0;
        if (s->a.from >= 0) s->a.value = a->step[s->a.from].result;
        if (s->b.from >= 0) s->b.value = a->step[s->b.from].result;
        if (!compute(&result, s->op, s->a.value, s->b.value)) return false;
        if (i != slipped) s->result = result;
        if (s->result < 1 || s->result > SPOILED_MOST || s->a.value < 1 || s->b.value < 1) return false;
    }
    return true;
}

static bool spoil(Arith *a, Draw *d, ArithFault f) {
    static const ArithOp mistaken[] = {ARITH_SUBTRACT, ARITH_ADD, ARITH_ADD, ARITH_SUBTRACT};
    static const int slips[] = {-10, -2, -1, 1, 2, 10};
    ArithStep *s = &a->step[f.step];
    int64_t right = a->step[a->n_steps - 1].result;
    switch (f.mistake) {
    case ARITH_SLIP: s->result += slips[below(d, COUNT_OF(slips))]; break;
    case ARITH_WRONG_OP: s->op = mistaken[s->op]; break;
    case ARITH_LEFT_OUT:
        if (a->n_steps < 2) return false;
        leave_out(a, f.step);
        break;
    case ARITH_MISREAD: {
        ArithTerm *t = below(d, 2) ? &s->a : &s->b;
        if (t->from >= 0) return false;
        t->value = misread(d, t->value);
        break;
    }
    case ARITH_MISTAKES: return false;
    }
    return carry_on(a, f.mistake == ARITH_SLIP ? f.step : -1) && a->step[a->n_steps - 1].result != right;
}

ArithFault arith_spoil(Str *solution, const Arith *a, uint64_t key) {
    Draw d = {.key = rng_fold(key, ARITH_HELD_OUT + 1)};
    Arith wrong;
    ArithFault f;
    do { /* a slip upwards in the last step is always possible, so this ends */
        wrong = *a;
        f = (ArithFault){(ArithMistake)below(&d, ARITH_MISTAKES), below(&d, a->n_steps)};
    } while (!spoil(&wrong, &d, f));
    write_solution(solution, wrong.step, wrong.n_steps);
    return f;
}
