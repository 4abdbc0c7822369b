/* tiny_data.h - tokenizers whose ids can be read by eye, small files, and rows printed as text. */
#ifndef TESTS_DATA_TINY_DATA_H
#define TESTS_DATA_TINY_DATA_H

#include "data/dataset.h"

/* Bytes are their own ids; special tokens follow. */
enum { TINY_IM_START = 256, TINY_IM_END, TINY_BOS, TINY_EOS, TINY_VOCAB };

extern const char tiny_chatml[]; /* a template in the manner of ChatML, without a system text of its own */

/* One message of a conversation, inside a C string. */
#define TURN(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"

Tokenizer *tiny_tokenizer(bool adds_bos);    /* gives: tokenizer_close */
Tokenizer *tiny_spaced_tokenizer(void);      /* of the SentencePiece family: puts a space before a text */
Template *tiny_template(const char *source); /* gives: template_free */
const char *tiny_file(const char *name, const char *text); /* in the test's folder; borrows until the next call */
DataOptions tiny_options(const Tokenizer *t, int64_t seq);

/* The row's ids: bytes as they are, others as <id>, padding as '_'; then '|' and the labels, '.' where there is
 * none; then '|' and the digits of doc_begin when a row holds several documents. Borrows until the next call. */
const char *tiny_row(const Dataset *d, int64_t row);

#endif
