/* smatch_graph.c - which triples of a graph count, and when two texts are the same.
 *
 * As the Python package smatch 1.0.4 does it:
 *
 *   S1  Texts are compared in lower case and without underscores at their end.
 *   S2  A role that ends in -of is inverted, but for consist-of, prep-out-of and prep-on-behalf-of; `:mod` is the
 *       inverse of `:domain`.
 *   S3  The first node has the attribute TOP.
 *   S4  A string is compared without its quotes, by its first word alone ("New York" is "new"); as a concept by all
 *       its words. whole_strings switches the first word off.
 *   S5  A constant behind a role that S2 inverts is not counted.
 *
 * Where S4 or S5 changed something it is counted, and the report says so.
 *
 * Not as there: a triple that stands twice in both graphs is matched twice, not four times (which gives scores above
 * 1), and alignments are no part of a concept. */
#include <string.h>
#include <utf8proc.h>

#include "amr/chars.h"
#include "amr/smatch_int.h"

/* ---- texts (S1, S4) ---- */

static void add_lower(Str *out, const char *at, const char *end) {
    utf8proc_int32_t code;
    utf8proc_uint8_t bytes[4];
    for (utf8proc_ssize_t n; at < end; at += n) {
        n = utf8proc_iterate((const utf8proc_uint8_t *)at, end - at, &code);
        if (n < 1) return;
        str_add_bytes(out, (const char *)bytes, utf8proc_encode_char(utf8proc_tolower(code), bytes));
        if (code == 0x130) str_add(out, "\xcc\x87"); /* capital I with a dot: the dot stays, behind the i */
    }
}

/* A symbol or string as it is compared; without the quotes, which a closing underscore stands for. */
static int32_t text_word(AmrWords *w, const char *at, const char *end) {
    Str s = {0};
    add_lower(&s, at, end);
    while (s.len && s.data[s.len - 1] == '_') s.data[--s.len] = 0;
    int32_t word = amr_word(w, str_text(&s));
    str_free(&s);
    return word;
}

static int32_t concept_word(AmrWords *w, const char *concept) {
    const char *end = concept + strlen(concept);
    if (*concept != '"') return text_word(w, concept, end);
    Str joined = {0};
    for (const char *c = concept + 1; c < end - 1; c++)
        if (*c != ' ') str_add_char(&joined, *c);
    int32_t word = text_word(w, str_text(&joined), str_text(&joined) + joined.len);
    str_free(&joined);
    return word;
}

static int32_t value_word(SmatchGraph *g, AmrWords *w, const char *value, bool whole) {
    const char *end = value + strlen(value);
    if (*value != '"') return text_word(w, value, end);
    value++;
    end--;
    if (whole) return text_word(w, value, end);
    const char *from = value, *to;
    while (from < end && amr_is_blank(*from)) from++;
    for (to = from; to < end && !amr_is_blank(*to);) to++;
    g->first_words += to - from != end - value;
    return text_word(w, from, to);
}

/* ---- triples ---- */

static bool is_role(const char *role, int len, const char *name) {
    return (int)strlen(name) == len && !memcmp(role, name, (size_t)len);
}

/* A branch that is neither concept nor empty becomes an attribute, a relation, or nothing (S5). */
static void add_branch(SmatchGraph *g, const Penman *p, int32_t node, const PenmanBranch *b, AmrWords *w,
                       bool whole) {
    int32_t len = (int32_t)strlen(b->role), target = b->node >= 0 ? b->node : penman_find(p, b->atom);
    bool inverse = penman_is_inverse(b->role, len), mod = is_role(b->role, len, ":mod");
    const char *end = b->role + len - (inverse ? 3 : 0);
    if (target < 0 && (inverse || mod)) {
        g->dropped++;
        return;
    }
    int32_t role = mod ? amr_word(w, "domain") : text_word(w, b->role + 1, MAX2(end, b->role + 1));
    if (target < 0) {
        g->attribute[g->n_attributes++] = (SmatchAttribute){role, node, value_word(g, w, b->atom, whole)};
        return;
    }
    bool turned = inverse || mod;
    g->relation[g->n_relations++] = (SmatchRelation){role, turned ? target : node, turned ? node : target};
}

static void reserve(SmatchGraph *g, int32_t nodes, int64_t attributes, int64_t relations) {
    *g = (SmatchGraph){.n = nodes};
    g->concept = MEM_NEW(int32_t, nodes + 1);
    g->attribute = MEM_NEW(SmatchAttribute, attributes + 1);
    g->relation = MEM_NEW(SmatchRelation, relations + 1);
}

void smatch_graph_make(SmatchGraph *g, const Penman *p, AmrWords *w, const SmatchOptions *o) {
    *g = (SmatchGraph){0};
    if (!p) return;
    reserve(g, (int32_t)p->n_nodes, p->n_branches, p->n_branches);
    for (int32_t i = 0; i < g->n; i++) {
        g->concept[i] = concept_word(w, penman_concept(p, i));
        for (int32_t b = p->node[i].first; b >= 0; b = p->branch[b].next) {
            const PenmanBranch *br = &p->branch[b];
            if (strcmp(br->role, "/")) add_branch(g, p, i, br, w, o->whole_strings);
        }
    }
    g->attribute[g->n_attributes++] = (SmatchAttribute){amr_word(w, "top"), 0, amr_word(w, "top")}; /* S3 */
}

void smatch_graph_free(SmatchGraph *g) {
    mem_free(g->concept);
    mem_free(g->attribute);
    mem_free(g->relation);
    *g = (SmatchGraph){0};
}

int64_t smatch_graph_triples(const SmatchGraph *g) {
    int64_t n = g->n_attributes + g->n_relations;
    for (int32_t i = 0; i < g->n; i++) n += g->concept[i] >= 0;
    return n;
}

/* ---- variants ---- */

/* want-01 -> want: a number of two digits or more behind the last '-'. */
static int32_t without_sense(AmrWords *w, int32_t word) {
    const char *text = w->text[word], *dash = strrchr(text, '-');
    size_t digits = dash ? strspn(dash + 1, "0123456789") : 0;
    return dash && dash > text && digits >= 2 && !dash[1 + digits] ? text_word(w, text, dash) : word;
}

static void keep_reentrant(SmatchGraph *out, const SmatchGraph *g) {
    int32_t *into = MEM_NEW(int32_t, g->n + 1);
    for (int32_t i = 0; i < g->n; i++) out->concept[i] = -1;
    for (int32_t i = 0; i < g->n_relations; i++) into[g->relation[i].to]++;
    for (int32_t i = 0; i < g->n_relations; i++) {
        SmatchRelation r = g->relation[i];
        if (into[r.to] < 2) continue;
        out->relation[out->n_relations++] = r;
        out->concept[r.from] = g->concept[r.from];
        out->concept[r.to] = g->concept[r.to];
    }
    mem_free(into);
}

void smatch_graph_view(SmatchGraph *out, const SmatchGraph *g, SmatchMetric m, AmrWords *w) {
    bool concepts = m != SMATCH_ATTRIBUTES && m != SMATCH_RELATIONS;
    bool attributes = m != SMATCH_RELATIONS && m != SMATCH_REENTRANCY;
    bool relations = m != SMATCH_ATTRIBUTES && m != SMATCH_REENTRANCY;
    reserve(out, g->n, g->n_attributes, g->n_relations);
    for (int32_t i = 0; i < g->n; i++) out->concept[i] = concepts ? g->concept[i] : -1;
    for (int32_t i = 0; attributes && i < g->n_attributes; i++)
        out->attribute[out->n_attributes++] = g->attribute[i];
    for (int32_t i = 0; relations && i < g->n_relations; i++) out->relation[out->n_relations++] = g->relation[i];
    if (m == SMATCH_REENTRANCY) keep_reentrant(out, g);
    for (int32_t i = 0; m == SMATCH_NO_SENSE && i < g->n; i++) out->concept[i] = without_sense(w, g->concept[i]);
    if (m != SMATCH_UNLABELLED) return;
    for (int32_t i = 0; i < out->n_relations; i++) out->relation[i].role = 0;
    for (int32_t i = 0; i + 1 < out->n_attributes; i++) out->attribute[i].role = 0; /* TOP, the last, stays */
}
