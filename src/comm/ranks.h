/* ranks.h - which of several processes this one is, as a launcher says it: mpirun, in a build with MPI=1. */
#ifndef COMM_RANKS_H
#define COMM_RANKS_H

typedef struct Ranks {
    int rank, ranks; /* 0 of 1: alone */
} Ranks;

Ranks ranks_begin(void); /* asks once; ranks_end before the process ends */
void ranks_end(void);

#endif
