/* arith_rows.h - arithmetic problems as rows: conversations of the three roles, to learn from or to be asked. */
#ifndef REASON_ARITH_ROWS_H
#define REASON_ARITH_ROWS_H

#include <jansson.h>

#include "reason/arith.h"

typedef enum ArithRole {
    ARITH_SOLVE,   /* problem -> solution */
    ARITH_JUDGE,   /* problem and a right or spoiled solution -> own working, verdict, scores */
    ARITH_IMPROVE, /* problem, spoiled solution and the feedback on it -> solution */
    ARITH_BARE,    /* {"question", "answer"} */
    ARITH_ROLES
} ArithRole;

/* {"messages": [user, assistant], "id": {"role", "steps", "answer", "right"}}; of judge rows, those with an even key
 * are about a right solution. prompt_only: without the assistant's message. Gives. */
json_t *arith_row(Arith *scratch, ArithRole role, uint64_t key, ArithPart part, bool prompt_only);

#endif
