/* cards.h - GPUs that need not be here: what a plan for one assumes. */
#ifndef IR_CARDS_H
#define IR_CARDS_H

#include "ir/machine.h"

typedef struct Card {
    const char *name;   /* for --gpu */
    const char *word;   /* in the name the driver gives; the first row that matches in word and memory counts */
    int64_t memory_mib; /* as the driver's tools show it */
    int label_gb;       /* as people say it */
    int capability;     /* 90: compute capability 9.0 */
    double matrix_tflops, vector_tflops, memory_gbps, copy_gbps;
    const char *source;
} Card;

int card_count(void);
const Card *card_at(int i);

/* By the driver's name of a card that is here. NULL: the catalogue does not have it. */
const Card *card_find(const char *driver_name, int64_t total_bytes);

/* By a person's word ("h100", "RTX 4060 Ti 16"): case, blanks, '-' and '_' do not matter. NULL: none. */
const Card *card_named(const char *word);

/* Its rates on the footing of those that were measured: a vendor's figures times what an H200 reaches of its own. */
void card_rates(const Card *c, Machine *m);
extern const char card_footing[]; /* the same in words, for a table */

/* The machine a plan for that card assumes: an empty card, a driver of today. */
Machine card_machine(const Card *c);
Machine card_machine_as(const Card *c, const Machine *asked); /* with what was asked of another machine's sums */

#endif
