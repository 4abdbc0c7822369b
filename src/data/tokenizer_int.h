/* tokenizer_int.h - what the files of the tokenizer share with each other, and with nobody else.
 *
 * Words. A *piece* is an entry of the vocabulary. A *word* is what the pre-tokenizer cuts out and byte-pair
 * merging never crosses. A *step* is one component of tokenizer.json (a normalizer, a pre-tokenizer or a decoder);
 * nested Sequences are flattened into one list of steps. A *call* is the scratch of one tokenizer_encode.
 *
 *   text -> added tokens found -> steps of `normal` -> added tokens found -> steps of `split` -> words -> ids */
#ifndef DATA_TOKENIZER_INT_H
#define DATA_TOKENIZER_INT_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/mem.h"
#include "data/tokenizer.h"

enum { TOK_STEPS_MAX = 24 };

/* ---- tokenizer_unicode.c: UTF-8, and what the Unicode tables of our libraries say otherwise ---- */

int tok_utf8_check(const char *s, int64_t n, bool *valid); /* bytes of the first character or invalid run */
void tok_utf8_repair(Str *out, const char *s, int64_t n);  /* invalid runs become U+FFFD */
int32_t tok_utf8_decode(const char *s, int *bytes);        /* s is valid */
int tok_utf8_encode(int32_t c, char *to);                  /* 1 to 4 bytes */
bool tok_utf8_valid(const char *s, int64_t n);
bool tok_is_space(int32_t c);                              /* White_Space */
bool tok_is_word(int32_t c);                               /* what a regex calls \w */
bool tok_is_unnormalized(int32_t c);                       /* normalisation must leave it alone */
bool tok_has_newer(const char *s, int64_t n);              /* characters that PCRE2 may not know */
void tok_add_newer_ranges(Str *out, const char *category); /* "\x{a}-\x{b}..." for a class in a pattern */

static inline int64_t tok_skip_ascii(const char *s, int64_t i, int64_t n) { /* from i, past whole eights of ASCII */
    uint64_t eight;
    while (i + 8 <= n && (memcpy(&eight, s + i, 8), !(eight & 0x8080808080808080u))) i += 8;
    return i;
}

/* ---- tokenizer_json.c: tokenizer.json as a tree, but for its two long lists ---- */

typedef struct TokList { /* a list of the file: where reading stands, and its end; at NULL: absent */
    const char *at, *end;
    bool broken; /* neither an entry nor the end was found */
} TokList;

/* Gives root (json_decref), vocabulary and merges emptied; these are read from the two lists, which borrow. */
bool tok_json_read(json_t **root, TokList *vocab, TokList *merges, const Str *file, Err *e);
bool tok_list_open(TokList *l, char bracket);
bool tok_list_more(TokList *l, char bracket, bool first); /* false at the closing bracket, or broken */
bool tok_list_string(TokList *l, Str *out);               /* appends; false: there is none, or it is malformed */
bool tok_list_colon(TokList *l);
bool tok_list_integer(TokList *l, int64_t *value);

const char *tok_json_type(const json_t *component);                              /* "?" when absent */
bool tok_json_text(const json_t *o, const char *key, const char **text, Err *e); /* a string, required */
bool tok_json_bool(const json_t *o, const char *key, bool otherwise, bool *value, Err *e);
bool tok_json_count(const json_t *o, const char *key, int64_t *value, Err *e); /* required, >= 0 */

/* ---- tokenizer_regex.c: a literal or a regular expression ---- */

typedef struct TokPattern {
    const char *literal; /* or NULL: then code; in the tokenizer's arena */
    int64_t literal_bytes;
    pcre2_code *code, *newer_code; /* owns: tok_pattern_free; the second for texts with newer characters */
    bool jit;
    bool looks_back; /* a match may depend on what stands before it */
} TokPattern;

typedef struct TokMatch { /* scratch of the calling thread, and what was found */
    pcre2_match_data *data;
    bool newer;     /* the text may have newer characters */
    bool more;      /* asked: more text may follow; a match that looked at the end of this one is not found */
    bool found;
    int64_t start, end;
} TokMatch;

pcre2_match_data *tok_match_data_new(void); /* gives: pcre2_match_data_free */
bool tok_pattern_compile(TokPattern *p, const char *regex, Err *e);
void tok_pattern_literal(TokPattern *p, Arena *a, const char *text);
bool tok_pattern_load(TokPattern *p, Arena *a, const json_t *pattern, Err *e); /* {"String":..} or {"Regex":..} */
void tok_pattern_free(TokPattern *p);
int64_t tok_pattern_bytes(const TokPattern *p);

/* The next match at or after `from`. */
bool tok_pattern_find(const TokPattern *p, TokMatch *m, const char *text, int64_t n, int64_t from, Err *e);

/* ---- steps ---- */

typedef enum TokStepKind {
    NORMAL_NFC,
    NORMAL_NFD,
    NORMAL_NFKC,
    NORMAL_NFKD,
    NORMAL_LOWERCASE,
    NORMAL_REPLACE,
    NORMAL_PREPEND,
    NORMAL_STRIP,
    SPLIT_PATTERN,
    SPLIT_PREFIX_SPACE,
    SPLIT_MARK_SPACES,
    SPLIT_WORD_STARTS,
    DECODE_BYTE_LEVEL,
    DECODE_REPLACE,
    DECODE_BYTE_FALLBACK,
    DECODE_FUSE,
    DECODE_STRIP,
    DECODE_METASPACE
} TokStepKind;

typedef enum TokBehavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS
} TokBehavior;

typedef enum TokPrepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } TokPrepend;

typedef struct TokStep {
    TokStepKind kind;
    TokPattern pattern;   /* SPLIT_PATTERN, *_REPLACE */
    TokBehavior behavior; /* SPLIT_PATTERN */
    bool invert;          /* SPLIT_PATTERN: what does not match is the delimiter */
    const char *text;     /* what to put in, prepend or strip; the mark of Metaspace */
    int64_t text_bytes;
    TokPrepend prepend;              /* SPLIT_MARK_SPACES, DECODE_METASPACE */
    int64_t strip_left, strip_right; /* how many at most */
} TokStep;

typedef struct TokSteps {
    TokStep step[TOK_STEPS_MAX];
    int n;
} TokSteps;

/* Appends text with the step's own text in place of every match of its pattern. */
bool tok_pattern_replace(const TokStep *step, TokMatch *m, Str *out, const char *text, int64_t n, Err *e);

/* ---- tokenizer_vocab.c: pieces and merges ---- */

typedef struct TokMerge {
    int32_t left, right; /* -1: empty slot */
    int32_t rank;        /* the lowest goes first */
    int32_t piece;       /* what the two become */
} TokMerge;

typedef struct TokSlot {
    uint32_t tag; /* of the piece's hash */
    int32_t id;   /* -1: empty slot */
} TokSlot;

typedef struct TokVocab {
    const char *text; /* all pieces, each NUL-terminated */
    uint32_t *at;     /* [n] where in text the piece of an id starts; UINT32_MAX: there is none */
    int32_t n;        /* highest id + 1 */
    int64_t longest;  /* bytes of the longest piece */
    TokSlot *slots;   /* hash table of the model's own pieces */
    uint64_t slot_mask;
    TokMerge *merges; /* hash table */
    uint64_t merge_mask;
    atomic_uchar *settled; /* [n] whether merging the piece's text gives the piece: see tokenizer_bpe.c */
} TokVocab;

typedef struct TokAdded {
    const char *text, *sought; /* as the file has it; as it stands in normalised text, when it is normalized */
    int64_t bytes, sought_bytes;
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
} TokAdded;

bool tok_vocab_load(Tokenizer *t, const json_t *root, TokList vocab, TokList merges, int64_t file_bytes, Err *e);
int32_t tok_vocab_find(const TokVocab *v, const char *s, int64_t n); /* the model's own pieces; -1 when absent */
const char *tok_vocab_piece(const TokVocab *v, int32_t id);          /* NULL when absent */

/* NULL when the two never merge. */
const TokMerge *tok_vocab_merge(const TokVocab *v, int32_t left, int32_t right);
uint64_t tok_hash(const char *s, int64_t n);

/* ---- tokenizer_added.c: finding added tokens in text ---- */

typedef struct TokTrieNode {
    uint8_t byte;
    int32_t child, sibling; /* -1: none */
    int32_t added;          /* index of the added token that ends here, or -1 */
} TokTrieNode;

typedef struct TokTrie {
    TokTrieNode *node;
    int32_t n;
    int32_t root[256]; /* first node by first byte, -1: none */
} TokTrie;

/* ---- the tokenizer ---- */

struct Tokenizer {
    Arena arena; /* owns everything below but the compiled patterns */
    TokVocab vocab;
    TokAdded *added;
    int32_t n_added, n_renamed;    /* renamed: sought is not text */
    uint8_t *special_bits;         /* one bit per id */
    TokTrie raw_trie, normal_trie; /* added tokens looked for before and after normalisation */
    TokSteps normal, split, decode;
    bool has_decoder;
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    bool unk_named; /* the file names an unknown token; unk -1 then means that the vocabulary lacks it */
    int32_t unk;
    int32_t byte_id[256];    /* piece a byte starts as: byte level, else byte fallback; -1 none */
    int32_t ascii_id[128];   /* piece an ASCII character starts as, when not byte level */
    TokenIds prefix, suffix; /* what the post-processor adds */
    int32_t bos, eos, pad;
    int stream_step;         /* the split step that tells which words no longer change; -1: none does */
};

/* ---- tokenizer.c: lists of steps ---- */

/* Adds the steps of a component, or of all components in a Sequence (its list is called list_key). */
typedef bool TokStepLoader(Tokenizer *t, const json_t *component, Err *e);
bool tok_steps_load(Tokenizer *t, const json_t *component, const char *list_key, TokStepLoader *load, Err *e);
TokStep *tok_steps_add(TokSteps *s, TokStepKind kind, Err *e); /* NULL (and e filled): too many */
bool tok_step_text(Tokenizer *t, TokStep *s, const json_t *component, const char *key, Err *e); /* s->text */
bool tok_replace_load(Tokenizer *t, TokStep *s, const json_t *component, Err *e); /* s->pattern and s->text */

/* ---- one encode ---- */

typedef struct TokBpe TokBpe; /* merging's scratch: symbols, queue, cache of words */

typedef struct TokCall {
    const Tokenizer *t;
    TokenIds *out;
    int flags;
    TokMatch match;
    Str repaired, normal[2];       /* text after repair and after each other normal step */
    Str split_text[TOK_STEPS_MAX]; /* text changed by a split step */
    Str code_points;               /* scratch of normalisation */
    TokBpe *bpe;
    int64_t word_limit;            /* bytes that merging a word may take; 0: any */
    int64_t largest_word;          /* met so far */
    /* a text in pieces: tokenizer_stream.c */
    const char *open_end;          /* where the text so far ends; NULL: it is complete */
    const char *split_end;         /* the same once it is normalised */
    int64_t settled;               /* bytes at its beginning in which added tokens were looked for already */
    bool continues;                /* its first gap goes on from text whose words are out */
    bool left_open;                /* the last gap goes on */
    const char *left;              /* of that gap: what is not cut into words yet */
    int64_t left_bytes;
    Err *e;
} TokCall;

bool tok_encode_gaps(TokCall *c, const char *text, int64_t n, bool at_start); /* valid UTF-8 -> ids */
void tok_call_begin(TokCall *c, const Tokenizer *t, TokenIds *out, int64_t bytes, int flags, Err *e);
void tok_call_end(TokCall *c);

typedef bool TokGapFn(TokCall *c, const char *text, int64_t n, bool at_start); /* text between added tokens */
bool tok_added_build(Tokenizer *t, Err *e);
/* skip: no added token begins before that byte. */
bool tok_added_scan(TokCall *c, const TokTrie *trie, const char *text, int64_t n, int64_t skip, bool at_start,
                    TokGapFn *gap);

bool tok_normal_load(Tokenizer *t, const json_t *component, Err *e);
bool tok_normal_run(TokCall *c, const char **text, int64_t *n); /* in: borrows; out: the same or scratch of c */
/* text may be normalised in two parts, the second beginning with c */
bool tok_normal_cuts(const Tokenizer *t, int32_t c);
bool tok_normal_streams(const Tokenizer *t);         /* and a part again, in front of more, without changing */

bool tok_split_load(Tokenizer *t, const json_t *component, Err *e);
bool tok_metaspace_load(Tokenizer *t, TokStep *s, const json_t *component, Err *e); /* mark and prepend of s */
bool tok_split_finish(Tokenizer *t, Err *e); /* last: adds cuts that merging never crosses */
bool tok_split_run(TokCall *c, const char *text, int64_t n, bool at_start);
int tok_split_stream_step(const Tokenizer *t);

enum { TOK_WORD_COST = 64 }; /* bytes that merging takes for each byte of a word, at most */

TokBpe *tok_bpe_new(const Tokenizer *t, int64_t text_bytes);
void tok_bpe_free(TokBpe *b);
void tok_bpe_prepare(Tokenizer *t);
bool tok_bpe_word(TokCall *c, const char *word, int64_t n);

void tok_stream_prepare(Tokenizer *t); /* last */

bool tok_decode_load(Tokenizer *t, const json_t *component, Err *e);

int32_t tok_byte_char(int byte); /* the character that stands for a byte in byte-level pieces */
int tok_char_byte(int32_t c);    /* and back; -1: stands for none */

#endif
