/* courier.h - a background thread for slow reads and writes: it runs errands (blocks of bytes to move) in the order
 * they were given, while its owner goes on.
 *
 * The owner's function does the work of an errand. The first error is kept and later errands are not run; whoever waits
 * gets that error. Sending allocates nothing; it blocks while COURIER_ROOM errands are queued. */
#ifndef BASE_COURIER_H
#define BASE_COURIER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { COURIER_ROOM = 256 };

typedef struct Courier Courier;
typedef struct Errand {
    void *to;
    const void *from;
    int64_t bytes;
} Errand;
typedef bool ErrandFn(void *context, const Errand *errand, Err *e);

bool courier_open(Courier **c, ErrandFn *fn, void *context, Err *e); /* gives: courier_close */
void courier_close(Courier *c);                                      /* what was sent is done first; NULL is fine */

int64_t courier_send(Courier *c, Errand errand);              /* gives its number: 1, 2, ... */
/* it and all before it are over; the first failure so far */
bool courier_await(Courier *c, int64_t number, Err *e);

#endif
