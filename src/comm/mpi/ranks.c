/* ranks.c - the only file that knows MPI. Processes share files, not messages: all that is asked is who this one is. */
#include "comm/ranks.h"

#ifdef HAVE_MPI
#include <mpi.h>
#include <stddef.h>

Ranks ranks_begin(void) {
    Ranks r;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r.ranks);
    return r;
}

void ranks_end(void) { MPI_Finalize(); }
#else
Ranks ranks_begin(void) { return (Ranks){0, 1}; }
void ranks_end(void) {}
#endif
