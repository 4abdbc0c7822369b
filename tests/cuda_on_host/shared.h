/* shared.h - a block's shared memory (H1): variables from the front, what the launch asked for at the end, where the
 * next byte cannot be touched. */
#ifndef TESTS_CUDA_ON_HOST_SHARED_H
#define TESTS_CUDA_ON_HOST_SHARED_H

#include <stddef.h>

void shared_begin(size_t dynamic_bytes); /* of a block: all is poison, and there are no variables */
const char *shared_end(void);            /* what is wrong with it; NULL: nothing */

#endif
