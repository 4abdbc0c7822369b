/* config_int.h - readers of single keys of a config.json, and what the families add to it. */
#ifndef MODEL_CONFIG_INT_H
#define MODEL_CONFIG_INT_H

#include "model/config.h"

/* Absent or null: the value stays, unless it is required. */
bool config_get_int(const json_t *j, const char *key, int64_t *value, bool required, const char *where, Err *e);
bool config_get_int32(const json_t *j, const char *key, int *value, bool required, const char *where, Err *e);
bool config_get_real(const json_t *j, const char *key, double *value, const char *where, Err *e);
bool config_get_bool(const json_t *j, const char *key, bool *value, const char *where, Err *e);

/* gsa_config.c: the fields of gated sparse attention. */
void gsa_defaults(ModelConfig *c);
void gsa_preset(ModelConfig *c);
json_t *gsa_common_names(const json_t *j); /* its own names of what other models have too, as theirs; gives */
bool gsa_read(ModelConfig *c, const json_t *j, const char *where, Err *e);
bool gsa_check(const ModelConfig *c, const char *where, Err *e);
void gsa_write(const ModelConfig *c, json_t *j);
void gsa_warn(const ModelConfig *c, const json_t *j, const char *where); /* names keys that are not understood */
int64_t gsa_parameters(const ModelConfig *c);                            /* beside those of dense layers */

#endif
