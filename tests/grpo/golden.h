/* golden.h - the cases that tools/make_grpo_golden.py made, one at a time. */
#ifndef TESTS_GRPO_GOLDEN_H
#define TESTS_GRPO_GOLDEN_H

#include <jansson.h>
#include <stdint.h>

typedef void GoldenFn(const json_t *row);
int golden_each(const char *name, GoldenFn *fn); /* tests/grpo/golden/NAME.jsonl; gives how many there were */

int64_t golden_whole(const json_t *row, const char *key);
const char *golden_text(const json_t *row, const char *key);
double golden_number(const json_t *v);                  /* null: NAN */
int64_t golden_numbers(double *to, const json_t *list); /* gives how many */
int64_t golden_wholes(int64_t *to, const json_t *list);

#endif
