/* tokenizer.h - text to ids and back, as the model's tokenizer.json says.
 *
 * Understood: byte-pair encodings of Hugging Face's tokenizer.json, over bytes (GPT-2, Llama 3, Qwen, SmolLM) or
 * over characters with byte fallback (Llama 2, Mistral). Anything in the file that would change the ids and is not
 * understood is refused by name when the file is opened.
 *
 * A Tokenizer never changes after tokenizer_open: any number of threads may encode and decode with one. */
#ifndef DATA_TOKENIZER_H
#define DATA_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct Tokenizer Tokenizer;

/* A growing list of ids. Zero-initialise to begin. */
typedef struct TokenIds {
    int32_t *ids; /* owns: token_ids_free */
    int64_t n, capacity;
    int64_t word_bytes; /* that merging the longest word took at most while these were made, by tokenizer_encode */
} TokenIds;

void token_ids_add(TokenIds *t, int32_t id);
void token_ids_free(TokenIds *t);

/* A folder holding tokenizer.json (and tokenizer_config.json), or the tokenizer.json itself.
 * Gives: tokenizer_close. */
bool tokenizer_open(Tokenizer **t, const char *folder_or_file, Err *e);
void tokenizer_close(Tokenizer *t); /* NULL is fine */

typedef enum TokenizeFlags {
    TOKENIZE_PLAIN = 0,
    TOKENIZE_ADD_SPECIAL = 1, /* what the post-processor adds: BOS for Llama */
    TOKENIZE_NO_SPECIAL_PARSE =
        2 /* "<|im_end|>" in the text is plain text (added tokens that are not special stay) */
} TokenizeFlags;

/* Appends the ids of text (UTF-8; each invalid sequence counts as U+FFFD). On refusal out is as it was. */
bool tokenizer_encode(const Tokenizer *t, TokenIds *out, const char *text, int64_t bytes, int flags, Err *e);
/* Host memory that encoding a text of so many bytes into these ids took at most: the text rendered, normalised and
 * growing, the ids, and the merging of the longest word. */
int64_t tokenizer_encoding_bytes(const TokenIds *ids, int64_t text_bytes);

/* Text that comes in pieces, or many texts one after another: the ids are those of tokenizer_encode, and the words met
 * are remembered from one text to the next. Of a text no more is kept than its last word, which letters to come could
 * still change; where the rules of a tokenizer do not let that be told (see token_stream_is_bounded), all of it until
 * its end. For one thread at a time. */
typedef struct TokenStream TokenStream;

/* flags: but for TOKENIZE_ADD_SPECIAL. Gives: token_stream_close; keeps t. */
TokenStream *token_stream_open(const Tokenizer *t, int flags);
void token_stream_close(TokenStream *s);                       /* NULL is fine */
bool token_stream_put(TokenStream *s, TokenIds *out, const char *text, int64_t bytes, Err *e);
bool token_stream_end(TokenStream *s, TokenIds *out, Err *e);  /* the text ends here; the next put begins another */
void token_stream_reset(TokenStream *s);                       /* forgets a text that was begun */
bool token_stream_is_bounded(const Tokenizer *t);

/* Merging a word takes memory by its length (letters without a break are one word). A word that would take more than
 * this is refused with ERR_BUDGET; 0: no limit. */
void token_stream_limit(TokenStream *s, int64_t bytes);
int64_t token_stream_bytes(const TokenStream *s); /* the most that it has held so far */

/* Appends the text of ids. Bytes that do not form UTF-8 (a character cut at the end, say) come out as U+FFFD.
 * An id that no piece has is refused; skip_special leaves special tokens out. */
bool tokenizer_decode(const Tokenizer *t, Str *out, const int32_t *ids, int64_t n, bool skip_special, Err *e);
bool tokenizer_is_special(const Tokenizer *t, int32_t id); /* an id below the vocabulary's size */

int64_t tokenizer_vocab_size(const Tokenizer *t);            /* highest id + 1, added tokens included */
int32_t tokenizer_id(const Tokenizer *t, const char *token); /* exact piece or added token; -1 when absent */
const char *tokenizer_piece(const Tokenizer *t, int32_t id); /* raw piece; NULL when absent; borrows */

/* bos_token, eos_token, pad_token of tokenizer_config.json; -1 when absent. */
int32_t tokenizer_bos(const Tokenizer *t);
int32_t tokenizer_eos(const Tokenizer *t);
int32_t tokenizer_pad(const Tokenizer *t);

int64_t tokenizer_bytes(const Tokenizer *t); /* memory it keeps */
/* Of its ids and what they spell: token shards tell by it whose they are. */
uint64_t tokenizer_identity(const Tokenizer *t);

/* Turns llama2.c's tokenizer .bin into tokenizer.json and tokenizer_config.json in out_folder (made if needed).
 * vocab_size 0: as many tokens as the file holds. out_folder NULL: it is read and checked, nothing is written. */
bool tokenizer_write_llama2c(const char *tok_bin, int64_t vocab_size, const char *out_folder, Err *e);

#endif
