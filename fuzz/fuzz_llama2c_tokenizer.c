/* fuzz_llama2c_tokenizer.c - a llama2.c tokenizer.bin: what is accepted becomes a tokenizer.json that opens. */
#include <stdio.h>
#include <string.h>

#include "data/tokenizer.h"
#include "fuzz/fuzz.h"

/* A piece of n bytes may have n - 1 merges of n bytes each: LONGEST_PIECE and max_len bound the square. */
FUZZ(llama2c_tokenizer, 16 * MIB, 1024) {
    Tokenizer *t;
    TokenIds ids = {0};
    Err e;
    char bin[300];
    snprintf(bin, sizeof bin, "%s", fuzz_write("tokenizer.bin", data, size));
    if (!tokenizer_write_llama2c(bin, 0, fuzz_folder(), &e)) return;
    CHECK_MSG(tokenizer_open(&t, fuzz_folder(), &e), "%s", e.text);
    static const char text[] = "Once upon a time \xc3\xa9";
    CHECK_MSG(tokenizer_encode(t, &ids, text, (int64_t)strlen(text), TOKENIZE_ADD_SPECIAL, &e), "%s", e.text);
    token_ids_free(&ids);
    tokenizer_close(t);
}
