/* tiny_engine.h - an engine over a small model of made-up weights on the CPU, for tests of the engine itself. */
#ifndef TESTS_GEN_TINY_ENGINE_H
#define TESTS_GEN_TINY_ENGINE_H

#include "gen/engine.h"

enum { TINY_TOKENS = 90, TINY_CONTEXT = 64 };

typedef struct TinyEngine {
    Backend *b;
    Ring ring;
    Gen g;
    Engine n;
} TinyEngine;

/* Slots (4) of TINY_CONTEXT tokens in fp32, chunks of 16. poisoned: the embedding of that token is not a number; -1: of
 * none. */
typedef struct TinySpec {
    int64_t slots, chunk;
    bool invariant, late;
    int32_t poisoned;
    EngineOptions options;
    const Tokenizer *tokenizer;
} TinySpec;
bool tiny_engine_open(TinyEngine *t, TinySpec spec);
void tiny_engine_close(TinyEngine *t);

#endif
