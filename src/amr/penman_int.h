/* penman_int.h - what the PENMAN files share among themselves. */
#ifndef AMR_PENMAN_INT_H
#define AMR_PENMAN_INT_H

#include "amr/penman.h"

/* Room for one more node or branch, filled with nothing; gives its number. */
int32_t penman_add_node(Penman *p, int32_t parent, int32_t line);
int32_t penman_add_branch(Penman *p, int32_t node, const char *role, int32_t line);

void penman_index(Penman *p); /* makes the table of variables, once all nodes are there */

#endif
