/* json.h - what jansson leaves to its callers: building JSON, and its text. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

json_t *json_number(double v); /* null where it is not finite; gives */
json_t *json_known(int64_t n); /* null below 0; gives */

json_t *json_ids(const int32_t *ids, int64_t n);   /* a list; gives */
json_t *json_floats(const float *x, int64_t n);    /* the same; as doubles, so that what is read back is the same */

void json_set_count(json_t *to, const char *name, int64_t n);
void json_set_number(json_t *to, const char *name, double v); /* json_number */
void json_set_hex(json_t *to, const char *name, uint64_t v);  /* a text of 16 digits */

/* Whole numbers by name: JSON_COUNTS({"blocks", n}, {"valid", valid}). Gives. */
typedef struct JsonCount {
    const char *name;
    int64_t n;
} JsonCount;
json_t *json_set_counts(json_t *to, const JsonCount *c, int n);
#define JSON_COUNTS(...) JSON_SET_COUNTS(json_object(), __VA_ARGS__)

/* The same into an object that is there; JSON_SET_NUMBERS: real ones. Both give it. */
typedef struct JsonNumber {
    const char *name;
    double v;
} JsonNumber;
json_t *json_set_numbers(json_t *to, const JsonNumber *x, int n);
#define JSON_SET_COUNTS(to, ...) \
    json_set_counts(to, (const JsonCount[]){__VA_ARGS__}, COUNT_OF(((const JsonCount[]){__VA_ARGS__})))
#define JSON_SET_NUMBERS(to, ...) \
    json_set_numbers(to, (const JsonNumber[]){__VA_ARGS__}, COUNT_OF(((const JsonNumber[]){__VA_ARGS__})))

enum { JSON_DIGITS = 9, JSON_ALL_DIGITS = 17 }; /* of real numbers, for people and for programs */

/* Adds it without white space; reals with so many digits. False: it is NULL, or not UTF-8, and nothing was added. */
bool json_add(Str *out, const json_t *root, int digits);
bool json_print(Str *out, const json_t *root, size_t jansson_flags); /* the same, laid out by jansson's flags */

#endif
