/* tokenizer_vocab.c - the pieces and merges of a tokenizer, packed: one text, two hash tables, no JSON kept. */
#include "data/tokenizer_int.h"

#include <string.h>

enum { ID_LIMIT_FLOOR = 1 << 20 }; /* a small file may leave holes, up to here */

static uint64_t hash_mix(uint64_t h, uint64_t word) {
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    return h ^ h >> 32;
}

uint64_t tok_hash(const char *s, int64_t n) {
    uint64_t h = (uint64_t)n * 0x9e3779b97f4a7c15u, word = 0;
    uint32_t half;
    for (; n > 8; s += 8, n -= 8) {
        memcpy(&word, s, 8);
        h = hash_mix(h, word);
    }
    word = 0;
    if (n >= 4) { /* two halves, which may overlap */
        memcpy(&half, s, 4);
        word = half;
        memcpy(&half, s + n - 4, 4);
        word |= (uint64_t)half << 32;
    } else if (n > 0) {
        word = (uint64_t)(unsigned char)s[0] | (uint64_t)(unsigned char)s[n / 2] << 8 |
               (uint64_t)(unsigned char)s[n - 1] << 16;
    }
    return hash_mix(h, word);
}

static uint64_t pair_hash(int32_t left, int32_t right) {
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

/* A power of two that n entries fill to two thirds at most. */
static int64_t table_size(int64_t n) {
    int64_t size = 16;
    while (size * 2 < n * 3) size *= 2;
    return size;
}

const char *tok_vocab_piece(const TokVocab *v, int32_t id) {
    return id >= 0 && id < v->n && v->at[id] != UINT32_MAX ? v->text + v->at[id] : NULL;
}

static bool is_piece(const TokVocab *v, int32_t id, const char *s, int64_t n) {
    const char *piece = v->text + v->at[id];
    return !strncmp(piece, s, (size_t)n) && strlen(piece) == (size_t)n;
}

static TokSlot *find_slot(const TokVocab *v, const char *s, int64_t n, uint64_t hash) {
    for (uint64_t i = hash & v->slot_mask;; i = (i + 1) & v->slot_mask) {
        TokSlot *slot = &v->slots[i];
        if (slot->id < 0 || (slot->tag == hash >> 32 && is_piece(v, slot->id, s, n))) return slot;
    }
}

int32_t tok_vocab_find(const TokVocab *v, const char *s, int64_t n) {
    return find_slot(v, s, n, tok_hash(s, n))->id;
}

static TokMerge *find_merge(const TokVocab *v, int32_t left, int32_t right) {
    for (uint64_t i = pair_hash(left, right) & v->merge_mask;; i = (i + 1) & v->merge_mask) {
        TokMerge *m = &v->merges[i];
        if (m->left < 0 || (m->left == left && m->right == right)) return m;
    }
}

const TokMerge *tok_vocab_merge(const TokVocab *v, int32_t left, int32_t right) {
    const TokMerge *m = find_merge(v, left, right);
    return m->left < 0 ? NULL : m;
}

/* An id beyond this is refused: no honest file of this size needs it. */
static bool check_id(const char *piece, int64_t id, int64_t file_bytes, Err *e) {
    int64_t limit = MIN2(MAX2(file_bytes, ID_LIMIT_FLOOR), INT32_MAX);
    return id < limit || fail(e, ERR_FAIL, "token \"%.60s\" has id %lld, more than %lld", piece, (long long)id,
                              (long long)limit - 1);
}

/* While loading: the pieces of the vocabulary in the order of the file. */
typedef struct Pieces {
    Str text;    /* each with its zero */
    int32_t *id; /* owns */
    int64_t n, capacity;
} Pieces;

static bool read_pieces(Pieces *p, TokList list, int64_t file_bytes, int64_t *highest, Err *e) {
    if (!tok_list_open(&list, '{')) return fail(e, ERR_FAIL, "model.vocab is not an object of pieces and ids");
    while (tok_list_more(&list, '}', p->n == 0)) {
        int64_t from = p->text.len, id;
        if (!tok_list_string(&list, &p->text) || !tok_list_colon(&list) || !tok_list_integer(&list, &id))
            return fail(e, ERR_FAIL, "model.vocab: entry %lld is not a piece and its id", (long long)p->n);
        str_add_bytes(&p->text, "", 1);
        if (!check_id(p->text.data + from, id, file_bytes, e)) return false;
        p->id = mem_grow(p->id, &p->capacity, p->n + 1, (int64_t)sizeof *p->id);
        p->id[p->n++] = (int32_t)id;
        *highest = MAX2(*highest, id);
    }
    return !list.broken || fail(e, ERR_FAIL, "model.vocab: no comma behind entry %lld", (long long)p->n - 1);
}

static bool read_added(TokAdded *a, const json_t *entry, int64_t file_bytes, Err *e) {
    int64_t id;
    if (!tok_json_text(entry, "content", &a->text, e) || !tok_json_count(entry, "id", &id, e)) return false;
    if (!check_id(a->text, id, file_bytes, e)) return false;
    a->bytes = (int64_t)strlen(a->text);
    a->id = (int32_t)id;
    return tok_json_bool(entry, "special", false, &a->special, e) &&
           tok_json_bool(entry, "single_word", false, &a->single_word, e) &&
           tok_json_bool(entry, "lstrip", false, &a->lstrip, e) &&
           tok_json_bool(entry, "rstrip", false, &a->rstrip, e) &&
           tok_json_bool(entry, "normalized", !a->special, &a->normalized, e);
}

/* The texts still belong to the JSON. Of two alike the first counts. */
static bool read_added_list(Tokenizer *t, const json_t *list, int64_t file_bytes, int64_t *highest, Err *e) {
    if (!list || json_is_null(list)) return true;
    if (!json_is_array(list)) return fail(e, ERR_FAIL, "added_tokens is not a list");
    json_t *seen = json_object();
    bool ok = true;
    t->added = ARENA_NEW(&t->arena, TokAdded, (int64_t)json_array_size(list));
    for (size_t i = 0; i < json_array_size(list) && ok; i++) {
        TokAdded *a = &t->added[t->n_added];
        ok = read_added(a, json_array_get(list, i), file_bytes, e) ||
             fail_within(e, "added_tokens, entry %d", (int)i);
        if (!ok || !a->bytes || json_object_get(seen, a->text)) continue;
        json_object_set_new(seen, a->text, json_true());
        *highest = MAX2(*highest, a->id);
        t->n_added++;
    }
    json_decref(seen);
    return ok;
}

static bool place(TokVocab *v, int32_t id, int64_t at, Err *e) {
    if (v->at[id] != UINT32_MAX)
        return fail(e, ERR_FAIL, "tokens \"%.60s\" and \"%.60s\" have the same id %d", v->text + v->at[id],
                    v->text + at, (int)id);
    v->at[id] = (uint32_t)at;
    return true;
}

static bool index_pieces(Tokenizer *t, const Pieces *p, Err *e) {
    TokVocab *v = &t->vocab;
    int64_t size = table_size(p->n), at = 0;
    v->slot_mask = (uint64_t)size - 1;
    v->slots = ARENA_NEW(&t->arena, TokSlot, size);
    memset(v->slots, 0xff, (size_t)size * sizeof *v->slots);
    for (int64_t i = 0; i < p->n; i++) {
        int64_t n = (int64_t)strlen(v->text + at);
        uint64_t hash = tok_hash(v->text + at, n);
        TokSlot *slot = find_slot(v, v->text + at, n, hash);
        if (slot->id >= 0) return fail(e, ERR_FAIL, "the piece \"%.60s\" is in model.vocab twice", v->text + at);
        if (!place(v, p->id[i], at, e)) return false;
        *slot = (TokSlot){(uint32_t)(hash >> 32), p->id[i]};
        v->longest = MAX2(v->longest, n);
        at += n + 1;
    }
    return true;
}

/* Added tokens that the vocabulary has already take the vocabulary's id; the others bring text and id. */
static bool place_added(Tokenizer *t, Pieces *p, Err *e) {
    for (int32_t i = 0; i < t->n_added; i++) {
        TokAdded *a = &t->added[i];
        int32_t known = tok_vocab_find(&t->vocab, a->text, a->bytes);
        if (known >= 0) {
            a->id = known;
            continue;
        }
        int64_t at = p->text.len;
        str_add_bytes(&p->text, a->text, a->bytes + 1);
        t->vocab.text = p->text.data;
        if (!place(&t->vocab, a->id, at, e)) return false;
    }
    return true;
}

static bool load_pieces(Tokenizer *t, Pieces *p, const json_t *added, TokList list, int64_t file_bytes, Err *e) {
    TokVocab *v = &t->vocab;
    int64_t highest = -1;
    if (!read_pieces(p, list, file_bytes, &highest, e) || !read_added_list(t, added, file_bytes, &highest, e))
        return false;
    v->n = (int32_t)highest + 1;
    v->at = ARENA_NEW(&t->arena, uint32_t, v->n);
    memset(v->at, 0xff, (size_t)v->n * sizeof *v->at);
    v->settled = ARENA_NEW(&t->arena, atomic_uchar, v->n);
    v->text = str_text(&p->text);
    if (!index_pieces(t, p, e) || !place_added(t, p, e)) return false;
    char *text = ARENA_NEW(&t->arena, char, p->text.len);
    if (p->text.len) memcpy(text, p->text.data, (size_t)p->text.len);
    v->text = text;
    for (int32_t i = 0; i < t->n_added; i++) t->added[i].text = text + v->at[t->added[i].id];
    return true;
}

/* A merge is "left right" or ["left", "right"]; joined gets both texts, one behind the other. */
static bool read_merge_texts(TokList *list, Str *joined, int64_t *left_bytes) {
    str_clear(joined);
    if (tok_list_string(list, joined)) {
        char *space = memchr(joined->data, ' ', (size_t)joined->len);
        if (!space || strchr(space + 1, ' ')) return false;
        *left_bytes = space - joined->data;
        memmove(space, space + 1, (size_t)(joined->len - *left_bytes)); /* with the zero */
        joined->len--;
        return true;
    }
    if (!tok_list_open(list, '[') || !tok_list_string(list, joined)) return false;
    *left_bytes = joined->len;
    return tok_list_more(list, ']', false) && tok_list_string(list, joined) && !tok_list_more(list, ']', false) &&
           !list->broken;
}

static bool look_up_merge(const TokVocab *v, TokMerge *m, const Str *joined, int64_t left_bytes, Err *e) {
    m->left = tok_vocab_find(v, joined->data, left_bytes);
    m->right = tok_vocab_find(v, joined->data + left_bytes, joined->len - left_bytes);
    m->piece = tok_vocab_find(v, joined->data, joined->len);
    return (m->left >= 0 && m->right >= 0 && m->piece >= 0) ||
           fail(e, ERR_FAIL, "merge %d, \"%.*s\" and \"%.60s\", names a piece that the vocabulary lacks",
                (int)m->rank, (int)MIN2(left_bytes, 60), joined->data, joined->data + left_bytes);
}

/* While loading: merges in the order of the file, which is their rank. */
typedef struct Merges {
    TokMerge *merge; /* owns */
    int64_t n, capacity;
} Merges;

static bool read_merges(const TokVocab *v, Merges *to, Str *joined, TokList list, Err *e) {
    if (!tok_list_open(&list, '[')) return fail(e, ERR_FAIL, "model.merges is not a list");
    for (int32_t rank = 0; tok_list_more(&list, ']', rank == 0); rank++) {
        int64_t left_bytes;
        TokMerge m = {.rank = rank};
        if (!read_merge_texts(&list, joined, &left_bytes)) {
            if (str_starts(str_text(joined), "#version")) continue; /* the head of an old merges.txt */
            return fail(e, ERR_FAIL, "merge %d is not two pieces: \"a b\" or [\"a\", \"b\"]", (int)rank);
        }
        if (!look_up_merge(v, &m, joined, left_bytes, e)) return false;
        to->merge = mem_grow(to->merge, &to->capacity, to->n + 1, (int64_t)sizeof m);
        to->merge[to->n++] = m;
    }
    return !list.broken || fail(e, ERR_FAIL, "model.merges: no comma behind merge %lld", (long long)to->n - 1);
}

static void index_merges(Tokenizer *t, const Merges *from) {
    TokVocab *v = &t->vocab;
    int64_t size = table_size(from->n);
    v->merge_mask = (uint64_t)size - 1;
    v->merges = ARENA_NEW(&t->arena, TokMerge, size);
    memset(v->merges, 0xff, (size_t)size * sizeof *v->merges);
    for (int64_t i = 0; i < from->n; i++)
        *find_merge(v, from->merge[i].left, from->merge[i].right) = from->merge[i];
}

bool tok_vocab_load(Tokenizer *t, const json_t *root, TokList vocab, TokList merges, int64_t file_bytes, Err *e) {
    Pieces pieces = {0};
    Merges list = {0};
    Str joined = {0};
    bool ok = load_pieces(t, &pieces, json_object_get(root, "added_tokens"), vocab, file_bytes, e);
    str_free(&pieces.text);
    mem_free(pieces.id);
    ok = ok && read_merges(&t->vocab, &list, &joined, merges, e);
    if (ok) index_merges(t, &list);
    mem_free(list.merge);
    str_free(&joined);
    return ok;
}
