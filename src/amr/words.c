/* words.c - the table behind the numbers. */
#include "amr/words.h"

#include <string.h>

void amr_words_init(AmrWords *w) {
    *w = (AmrWords){.n_slots = 256};
    arena_init(&w->arena, "words");
    w->slot = MEM_NEW(int32_t, w->n_slots);
}

void amr_words_free(AmrWords *w) {
    mem_free(w->text);
    mem_free(w->slot);
    arena_free(&w->arena);
    *w = (AmrWords){0};
}

static int64_t slot_of(const AmrWords *w, const char *text) {
    int64_t i = (int64_t)(amr_hash(text) & (uint64_t)(w->n_slots - 1));
    while (w->slot[i] && strcmp(w->text[w->slot[i] - 1], text)) i = (i + 1) & (w->n_slots - 1);
    return i;
}

static void grow(AmrWords *w) {
    mem_free(w->slot);
    w->n_slots *= 2;
    w->slot = MEM_NEW(int32_t, w->n_slots);
    for (int64_t i = 0; i < w->n; i++) w->slot[slot_of(w, w->text[i])] = (int32_t)i + 1;
}

int32_t amr_word(AmrWords *w, const char *text) {
    int64_t s = slot_of(w, text);
    if (w->slot[s]) return w->slot[s] - 1;
    w->text = mem_grow(w->text, &w->room, w->n + 1, sizeof *w->text);
    w->text[w->n++] = arena_strdup(&w->arena, text);
    w->slot[s] = (int32_t)w->n;
    if (2 * w->n > w->n_slots) grow(w);
    return (int32_t)w->n - 1;
}
