/* draw.c - the grammar: how a meaning is generated, and how it reads as a sentence and as a graph. */
#include "amr/draw.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "amr/draw_int.h"
#include "amr/penman.h"
#include "base/rng.h"

enum { NODES_MOST = 40, BRANCHES_MOST = 8, ATTEMPTS_MOST = 10000 };
enum { VERB_ACT = 0, VERB_SEE = 100, VERB_GIVE = 200, VERB_WANT = 300, NOUN_THING = 100, NOUN_NAME = -1 };

typedef struct Branch {
    const char *role;
    char atom[24]; /* "": a node */
    int node;
} Branch;

typedef struct Node {
    const char *concept;
    Branch branch[BRANCHES_MOST];
    int n;
    char variable[16]; /* "": not written yet */
} Node;

typedef struct Draw {
    const DrawWords *w;
    AmrLanguage language;
    uint64_t key, drawn;
    Node node[NODES_MOST];
    int n;
    int held_out;
} Draw;

typedef struct Phrase { /* who or what: its node, and what the rest of the sentence must know of it */
    Str text;
    int node, noun; /* noun: for pairs; NOUN_NAME: none */
    bool plural;
    const char *owner; /* "his"; NULL: it owns nothing */
} Phrase;

static int draw(Draw *d, int n) {
    return (int)(rng_fold(d->key, d->drawn++) % (uint64_t)n);
}
static bool chance(Draw *d, int percent) {
    return draw(d, 100) < percent;
}

/* ---- graphs ---- */

static int new_node(Draw *d, const char *concept) {
    CHECK(d->n < NODES_MOST);
    d->node[d->n] = (Node){.concept = concept};
    return d->n++;
}

static Branch *new_branch(Draw *d, int node, const char *role) {
    Node *n = &d->node[node];
    CHECK(n->n < BRANCHES_MOST);
    n->branch[n->n] = (Branch){.role = role};
    return &n->branch[n->n++];
}

static void hang(Draw *d, int node, const char *role, int target) {
    new_branch(d, node, role)->node = target;
}

static void hang_atom(Draw *d, int node, const char *role, const char *format, const char *text) {
    Branch *b = new_branch(d, node, role);
    snprintf(b->atom, sizeof b->atom, format, text);
}

/* The concept's first letter, with a number where it is taken. */
static void name_variable(Draw *d, Node *n) {
    utf8proc_int32_t code;
    utf8proc_ssize_t len = utf8proc_iterate((const utf8proc_uint8_t *)n->concept, -1, &code);
    bool taken = true;
    char name[16];
    for (int number = 1; taken; number++) {
        if (number == 1)
            snprintf(name, sizeof name, "%.*s", (int)len, n->concept);
        else
            snprintf(name, sizeof name, "%.*s%d", (int)len, n->concept, number);
        taken = false;
        for (int i = 0; i < d->n; i++) taken |= !strcmp(d->node[i].variable, name);
    }
    memcpy(n->variable, name, sizeof name);
}

static void write_node(Str *out, Draw *d, int node) {
    Node *n = &d->node[node];
    if (n->variable[0]) {
        str_add(out, n->variable);
        return;
    }
    name_variable(d, n);
    str_addf(out, "(%s / %s", n->variable, n->concept);
    for (int i = 0; i < n->n; i++) {
        str_addf(out, " %s ", n->branch[i].role);
        if (n->branch[i].atom[0])
            str_add(out, n->branch[i].atom);
        else
            write_node(out, d, n->branch[i].node);
    }
    str_add_char(out, ')');
}

/* ---- who and what ---- */

static void say(Str *out, const char *word) {
    if (out->len && *word) str_add_char(out, ' ');
    str_add(out, word);
}

static int named_node(Draw *d, const char *concept, const char *name) {
    static const char *const ops[] = {":op1", ":op2", ":op3"};
    int node = new_node(d, concept), name_node = new_node(d, d->w->name);
    hang(d, node, ":name", name_node);
    for (int i = 0; *name && i < COUNT_OF(ops); i++) {
        char word[20];
        int len = (int)strcspn(name, " ");
        snprintf(word, sizeof word, "%.*s", len, name);
        hang_atom(d, name_node, ops[i], "\"%s\"", word);
        name += len + (name[len] == ' ');
    }
    return node;
}

static Phrase person_phrase(Draw *d) {
    const DrawName *name = &d->w->people[draw(d, d->w->n_people)];
    Phrase p = {.noun = NOUN_NAME, .owner = name->owner};
    say(&p.text, name->text);
    p.node = named_node(d, d->w->person, name->text);
    return p;
}

static void relative_clause(Draw *d, Phrase *p);

/* "the three red dogs", "her dog", "ba con chó đỏ", "con chó của mình". owner: the phrase it belongs to; NULL:
 * nobody. */
static Phrase noun_phrase(Draw *d, bool being, const Phrase *owner) {
    const DrawWords *w = d->w;
    int i = draw(d, being ? w->n_beings : w->n_things);
    const DrawNoun *noun = being ? &w->being[i] : &w->thing[i];
    Phrase p = {.node = new_node(d, noun->concept), .noun = being ? i : NOUN_THING + i, .owner = noun->owner};
    int number = !owner && chance(d, 15) ? 2 + draw(d, 8) : 1;
    const DrawWord *adjective = chance(d, 35) ? &w->adjective[draw(d, w->n_adjectives)] : NULL;
    p.plural = number > 1;
    if (p.plural && w->inflects && p.owner) p.owner = "their";
    if (w->inflects) say(&p.text, owner ? owner->owner : p.plural ? "" : "the");
    if (p.plural) say(&p.text, w->number[number - 2]);
    if (adjective && w->inflects) say(&p.text, adjective->text);
    say(&p.text, p.plural ? noun->many : noun->one);
    if (adjective && !w->inflects) say(&p.text, adjective->text);
    if (owner && !w->inflects) say(&p.text, w->of_own);
    char digits[16];
    snprintf(digits, sizeof digits, "%d", number);
    if (p.plural) hang_atom(d, p.node, ":quant", "%s", digits);
    if (adjective) hang(d, p.node, ":mod", new_node(d, adjective->concept));
    if (owner) hang(d, p.node, ":poss", owner->node);
    return p;
}

static Phrase subject_phrase(Draw *d) {
    if (chance(d, 25)) return person_phrase(d);
    Phrase p = noun_phrase(d, true, NULL);
    if (chance(d, 18)) relative_clause(d, &p);
    return p;
}

/* What is seen: a thing, a being, a person; sometimes the subject's own. */
static Phrase object_phrase(Draw *d, const Phrase *subject) {
    bool own = subject->owner && chance(d, 20);
    if (!own && chance(d, 12)) return person_phrase(d);
    return noun_phrase(d, !own && chance(d, 35), own ? subject : NULL);
}

/* ---- who does what ---- */

/* A fifth of all pairs of a verb and a noun is never in AMR_TRAIN. */
static void note_pair(Draw *d, int verb, int noun, bool object) {
    if (noun == NOUN_NAME) return;
    uint64_t pair = rng_fold(rng_fold((uint64_t)d->language, (uint64_t)verb), (uint64_t)(2 * noun + object));
    d->held_out += pair % 5 == 0;
}

typedef enum Form { FORM_FINITE, FORM_NOT, FORM_BASE, FORM_PAST } Form;

static void say_verb(Draw *d, Str *out, const DrawVerb *v, Form form, bool plural) {
    if (form == FORM_NOT && d->w->inflects) say(out, plural ? "do" : "does");
    if (form == FORM_NOT) say(out, d->w->not_word);
    say(out, form == FORM_PAST ? v->past : form == FORM_FINITE && !plural ? v->third : v->base);
}

/* The verb with all behind it: "sees the red dog", "gives the ball to Ada"; the subject is hung in front of the
 * rest. */
static int predicate(Draw *d, Str *out, const Phrase *subject, Form form) {
    const DrawWords *w = d->w;
    int kind = draw(d, 10);
    bool give = kind == 0, act = kind >= 7;
    int i = draw(d, act ? w->n_acts : give ? w->n_gives : w->n_sees);
    const DrawVerb *verb = act ? &w->act[i] : give ? &w->give[i] : &w->see[i];
    int id = i + (act ? VERB_ACT : give ? VERB_GIVE : VERB_SEE), event = new_node(d, verb->concept);
    say_verb(d, out, verb, form, subject->plural);
    if (form == FORM_NOT) hang_atom(d, event, ":polarity", "%s", "-");
    hang(d, event, w->agent, subject->node);
    note_pair(d, id, subject->noun, false);
    if (act) return event;
    Phrase object = give ? noun_phrase(d, false, NULL) : object_phrase(d, subject);
    say(out, str_text(&object.text));
    hang(d, event, w->theme, object.node);
    note_pair(d, id, object.noun, true);
    str_free(&object.text);
    if (!give) return event;
    Phrase to = chance(d, 40) ? person_phrase(d) : noun_phrase(d, true, NULL);
    say(out, w->recipient_word);
    say(out, str_text(&to.text));
    hang(d, event, w->recipient, to.node);
    str_free(&to.text);
    return event;
}

/* "the boy who sang": the noun is the agent of another event. */
static void relative_clause(Draw *d, Phrase *p) {
    int i = draw(d, d->w->n_acts);
    const DrawVerb *verb = &d->w->act[i];
    const char *role = d->language == AMR_ENGLISH ? ":ARG0-of" : ":agent-of";
    say(&p->text, d->w->who);
    say_verb(d, &p->text, verb, FORM_PAST, p->plural);
    hang(d, p->node, role, new_node(d, verb->concept));
    note_pair(d, VERB_ACT + i, p->noun, false);
}

/* "wants to see the dog": the one who wants and the one who sees are one node. */
static int wish(Draw *d, Str *out, const Phrase *subject, Form form) {
    int i = draw(d, d->w->n_wants);
    const DrawVerb *verb = &d->w->want[i];
    int event = new_node(d, verb->concept);
    say_verb(d, out, verb, form, subject->plural);
    if (d->w->to) say(out, d->w->to);
    if (form == FORM_NOT) hang_atom(d, event, ":polarity", "%s", "-");
    hang(d, event, d->w->agent, subject->node);
    note_pair(d, VERB_WANT + i, subject->noun, false);
    hang(d, event, d->w->theme, predicate(d, out, subject, FORM_BASE));
    return event;
}

static void circumstances(Draw *d, Str *out, int event) {
    const DrawWords *w = d->w;
    if (chance(d, 22)) {
        const DrawName *city = &w->cities[draw(d, w->n_cities)];
        say(out, w->in);
        say(out, city->text);
        hang(d, event, ":location", named_node(d, w->city, city->text));
    }
    if (!chance(d, 22)) return;
    const DrawWord *time = &w->time[draw(d, w->n_times)];
    say(out, time->text);
    hang(d, event, ":time", new_node(d, time->concept));
}

/* ---- sentences ---- */

static int join(Draw *d, int first, int second) {
    int both = new_node(d, d->w->and_concept);
    hang(d, both, ":op1", first);
    hang(d, both, ":op2", second);
    return both;
}

/* "Does the boy see the dog?", "Cậu bé có thấy con chó không?" */
static int question(Draw *d, Str *out) {
    Phrase subject = subject_phrase(d);
    if (d->w->inflects) say(out, subject.plural ? "do" : "does");
    say(out, str_text(&subject.text));
    if (!d->w->inflects) say(out, "có");
    int event = chance(d, 30) ? wish(d, out, &subject, FORM_BASE) : predicate(d, out, &subject, FORM_BASE);
    circumstances(d, out, event);
    if (!d->w->inflects) say(out, d->w->not_word);
    hang_atom(d, event, ":mode", "%s", "interrogative");
    str_free(&subject.text);
    return event;
}

static int statement(Draw *d, Str *out) {
    Phrase subject = subject_phrase(d);
    Form form = chance(d, 15) ? FORM_NOT : FORM_FINITE;
    say(out, str_text(&subject.text));
    int event = chance(d, 30) ? wish(d, out, &subject, form) : predicate(d, out, &subject, form);
    circumstances(d, out, event);
    if (chance(d, 12)) { /* the same subject does another thing */
        say(out, d->w->and_word);
        event = join(d, event, predicate(d, out, &subject, FORM_FINITE));
    }
    str_free(&subject.text);
    return event;
}

static int sentence(Draw *d, Str *out) {
    if (chance(d, 12)) return question(d, out);
    int event = statement(d, out);
    if (!chance(d, 10)) return event;
    say(out, d->w->and_word);
    return join(d, event, statement(d, out));
}

/* The first letter as a capital, and the mark at the end. */
static void finish(Str *out, const char *text, bool asks) {
    utf8proc_int32_t code;
    utf8proc_uint8_t capital[4];
    utf8proc_ssize_t len = utf8proc_iterate((const utf8proc_uint8_t *)text, -1, &code);
    str_add_bytes(out, (const char *)capital, utf8proc_encode_char(utf8proc_toupper(code), capital));
    str_addf(out, "%s%s", text + len, asks ? "?" : ".");
}

static void write_graph(AmrDrawn *out, Draw *d, int top) {
    Str text = {0};
    Penman graph;
    Err e;
    write_node(&text, d, top);
    PenmanText from = {text.data, text.data + text.len, 1};
    bool ok = penman_read(&graph, &from, &e) && penman_check(&graph, &e);
    CHECK_MSG(ok, "%s", e.text);
    penman_print(&out->graph, &graph, PENMAN_INDENTED);
    penman_free(&graph);
    str_free(&text);
}

static bool draw_once(AmrDrawn *out, uint64_t key, AmrLanguage language, AmrPart part) {
    Draw d = {.w = draw_words(language), .language = language, .key = key};
    Str text = {0};
    int top = sentence(&d, &text);
    bool wanted = (d.held_out > 0) == (part == AMR_HELD_OUT);
    if (wanted) {
        const Node *n = &d.node[top];
        bool asks = !strcmp(n->branch[n->n - 1].role, ":mode");
        finish(&out->sentence, text.data, asks);
        write_graph(out, &d, top);
        out->held_out = d.held_out;
    }
    str_free(&text);
    return wanted;
}

void amr_draw(AmrDrawn *out, uint64_t key, AmrLanguage language, AmrPart part) {
    str_clear(&out->sentence);
    str_clear(&out->graph);
    uint64_t attempt = 0;
    while (!draw_once(out, rng_fold(key, attempt), language, part)) CHECK(++attempt < ATTEMPTS_MOST);
}

void amr_drawn_free(AmrDrawn *d) {
    str_free(&d->sentence);
    str_free(&d->graph);
}
