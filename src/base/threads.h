/* threads.h - a fixed team of threads that shares out the tiles of a loop.
 *
 * A tile's result must depend on its number alone, never on who runs it: that is what makes 1 and N threads
 * give the same bits. The team is made once; threads_for allocates nothing and may not be nested. */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct Threads Threads;
typedef void TileFn(void *context, int64_t tile, int worker); /* worker: 0..n-1, for per-thread scratch */

bool threads_open(Threads **t, int n, Err *e); /* n >= 1; the caller is worker 0 */
void threads_close(Threads *t);
int threads_count(const Threads *t);
/* Returns when all tiles are done. t NULL: the caller does them alone. */
void threads_for(Threads *t, int64_t tiles, TileFn *fn, void *context);

void threads_copy(Threads *t, void *to, const void *from, int64_t bytes); /* memcpy by the team */

int threads_available(void); /* cores this process may use */

/* A thread of a stack that can be planned, which no signal interrupts: those are for the thread that began the
 * program. Gives 0, or the system's reason (errno's numbers) when it is refused; what: for the fault flavour. */
enum { THREAD_STACK_BYTES = 1 << 20 /* of a worker of a team */ };
int thread_start(pthread_t *id, int64_t stack_bytes, void *(*fn)(void *), void *context, const char *what);

#endif
