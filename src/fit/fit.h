/* fit.h - the fastest configuration inside memory limits, found with few trials (branch and bound).
 *
 * Words
 *   point    one configuration: a setting on every axis, a rung of the ladder, a rung of the disk ladder. All zeros: as
 *            asked
 *   axis     one way of trading time for memory, in settings 0, 1, ...: a smaller micro-batch, more recomputation
 *   ladder   what can be offloaded piece by piece to the host's memory: rung n has the first n pieces there
 *   disk     of the offloaded pieces, so many on disk instead
 *   trial    the exact cost of one point: here, a plan
 *
 * Assumptions
 *   F1  further along an axis, or up a ladder, time does not shrink (FitSpace.unordered: along that axis it may).
 *   F2  a rung takes at most relief(n) - relief(n-1) bytes off the device (off the host: disk_relief); it may take
 *       less, because offloaded pieces need staging buffers there.
 *   F3  further along the last axis no more bytes are taken.
 * Under these the answer is the fastest of all points that fit, and a larger limit or one more choice never gives a
 * slower one: every skipped point is slower than one that fits (F1), or cannot fit (F2). Where a real plan violates
 * them by a little, the answer is off by as little: tests/fit tries everything on small cases, and draws thousands.
 *
 * The last axis may be fine: its *stops* are tried with the ladder, and what lies between two stops only without it.
 * That is the whole set of points then. */
#ifndef FIT_FIT_H
#define FIT_FIT_H

#include <stdbool.h>
#include <stdint.h>

enum { FIT_AXES = 6 };

typedef struct FitPoint {
    int64_t at[FIT_AXES];
    int64_t rung, disk;
} FitPoint;

typedef struct FitCost {
    int64_t device_bytes, host_bytes, disk_bytes;
    double seconds;
} FitCost;

typedef struct FitLimits { /* 0: no limit is known */
    int64_t device_bytes, host_bytes, disk_bytes;
} FitLimits;

typedef struct FitTrial {
    FitPoint p;
    FitCost c;
    bool fits;
} FitTrial;

typedef struct FitSpace {
    int axes;
    /* of each axis, at least 1; outermost first: visited last, so what costs least stands last */
    int64_t settings[FIT_AXES];
    bool unordered[FIT_AXES];   /* every setting of it is searched for itself; not the last axis */
    const int64_t *stops;       /* of the last axis, ascending from 0 to its last setting; NULL: all of them */
    int n_stops;
    int64_t rungs;              /* of the ladder; 0: nothing may leave the device */
    bool disk;                  /* what has left may lie on disk */
    void *user;
    bool (*cost)(void *user, const FitPoint *p, FitCost *out);                    /* false: there is no such point */
    int64_t (*relief)(void *user, const FitPoint *p, int64_t rung);               /* F2; grows with rung, 0 at 0 */
    int64_t (*disk_rungs)(void *user, const FitPoint *p);                         /* at p's rung */
    int64_t (*disk_relief)(void *user, const FitPoint *p, int64_t disk);          /* F2 of the host */
} FitSpace;

typedef struct Fit {
    FitTrial *trial; /* owns; in order, the first: as asked */
    int64_t n, cap;
    int64_t best;    /* -1: nothing fits */
} Fit;

#define FIT_SAME_TIME 1e-3 /* two times so near to each other are the same: the cost model knows no better */

/* Tries until the fastest is known. Gives false when nothing fits. Then, either way: fit_free. */
bool fit_search(Fit *f, const FitSpace *s, FitLimits limits);
void fit_free(Fit *f);

bool fit_holds(const FitLimits *l, const FitCost *c);

#endif
