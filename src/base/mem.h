/* mem.h - the only interface to the heap: counted, zeroed, never NULL.
 *
 * Words: an *arena* is memory that is freed as a whole; *sealing* it makes every later request a bug.
 * Everything that is planned to the byte (weights, activations, ...) is NOT here: it lives in a backend's pool.
 *
 * When the system has no memory left, the handler set by the command line is called. It does not return: it says how
 * many bytes were refused, and by which limit, and ends the process at once (exit 3 under a limit, else 1). Nothing is
 * unwound. Files on disk are as after a kill, which every writer allows for (folder.h), and the next run cleans up. So
 * callers do not check for NULL, and libraries allocate through here where they allow it (jansson, pcre2; not libyaml,
 * not stdio). */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

void *mem_alloc(int64_t bytes);               /* zeroed; gives: mem_free */
void *mem_alloc_wide(int64_t bytes);          /* the same, in huge pages if there are any: for what is used whole */
void *mem_resize(void *p, int64_t bytes);     /* like realloc; new bytes are not zeroed */
void mem_free(void *p);                       /* NULL is fine */
char *mem_strdup(const char *s);              /* gives: mem_free */

/* Grows an array of elements of size `each` so that it holds at least `need`; doubles the capacity. */
void *mem_grow(void *p, int64_t *capacity, int64_t need, int64_t each);

/* Arithmetic on sizes that a file or a person gave. A negative operand, or a result beyond 63 bits, gives -1, and -1
 * goes through: a chain of them needs one check, at its end. mem_alloc and arena_alloc take -1 for a bug. */
int64_t mem_mul(int64_t n, int64_t each);
int64_t mem_add(int64_t a, int64_t b);
int64_t mem_round_up(int64_t n, int64_t to); /* to a multiple of `to`, which is above 0 */

/* Call first, before any thread is made: one heap for all threads, which gives large blocks back when they are
 * freed, so that what the process holds is what it asked for and a little. */
void mem_open(void);

typedef void MemHandler(int64_t bytes);
void mem_on_exhausted(MemHandler *handler);

typedef struct MemStats {
    int64_t requests; /* calls that asked for memory since the process began */
} MemStats;
MemStats mem_stats(void);
void mem_count_no_more(void); /* this thread's: it works beside what is counted */

/* Gives pages that the heap no longer uses back to the system. */
void mem_trim(void);

typedef struct ArenaChunk ArenaChunk;
typedef struct Arena {
    const char *name;  /* for messages */
    ArenaChunk *head;  /* newest chunk; owns the chain */
    int64_t used_bytes;
    bool sealed;
} Arena;

void arena_init(Arena *a, const char *name);
void arena_free(Arena *a);                              /* frees everything; usable again afterwards */
void *arena_alloc(Arena *a, int64_t bytes);             /* zeroed, aligned to 64 bytes for >= 64, else 16 */
char *arena_strdup(Arena *a, const char *s);
char *arena_printf(Arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
void arena_seal(Arena *a);                              /* from here on arena_alloc is a CHECK failure */

#define ARENA_NEW(a, type, n) ((type *)arena_alloc((a), mem_mul((n), (int64_t)sizeof(type))))
#define MEM_NEW(type, n) ((type *)mem_alloc(mem_mul((n), (int64_t)sizeof(type))))

#endif
