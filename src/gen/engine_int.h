/* engine_int.h - what the files of the engine share. */
#ifndef GEN_ENGINE_INT_H
#define GEN_ENGINE_INT_H

#include "gen/engine.h"

struct Ticket { /* with a copy of everything its request points to, in one block */
    Request r;
    int64_t id;
    int begun;    /* samples that have or had a slot */
    int open;     /* of those, how many have not ended */
    Ticket *next; /* in the queue */
};

/* engine_slot.c: an answer in its slot. */
void slot_enter(Engine *n, int slot, Ticket *t); /* the ticket's next sample takes that free slot */
void slot_take_token(Engine *n, int slot, Drawn drawn);
void slot_end(Engine *n, int slot, GenEnd end);

/* engine.c: drops the slot's token that is drawn but not read yet, so that another answer can take the slot. */
void pending_forget(Engine *n, int slot);

/* engine_event.c: events. */
void event_push(Engine *n, EventKind kind, int slot, const char *error);
void event_push_cancelled(Engine *n, Ticket *t, int sample); /* of a request without a slot */
void events_clear(Engine *n);                    /* after they were taken; frees tickets that are over */

#endif
