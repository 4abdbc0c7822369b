/* adapter.h - LoRA adapters as PEFT stores them: adapter_config.json and the names of the tensors. */
#ifndef STORE_ADAPTER_H
#define STORE_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "store/safetensors.h"

typedef enum AdapterTarget {
    ADAPTER_Q, ADAPTER_K, ADAPTER_V, ADAPTER_O, ADAPTER_GATE, ADAPTER_UP, ADAPTER_DOWN,
    /* of models of type gsa */
    ADAPTER_VALUE_GATE, ADAPTER_OUTPUT_GATE, ADAPTER_INDEX_QUERY, ADAPTER_INDEX_KEY, ADAPTER_INDEX_WEIGHT,
    ADAPTER_TARGET_COUNT
} AdapterTarget;

enum { ADAPTER_ALL_TARGETS = (1 << ADAPTER_VALUE_GATE) - 1 }; /* those that every model has */

typedef struct AdapterConfig {
    int rank;
    double alpha;
    double dropout;       /* in [0, 1) */
    uint32_t targets;     /* bit 1 << AdapterTarget for each adapted matrix */
    char base_model[512]; /* a folder or hub id; may be empty */
    bool use_rslora;      /* scale alpha / sqrt(rank) instead of alpha / rank */
} AdapterConfig;

const char *adapter_target_name(AdapterTarget t); /* "q_proj" */

/* What B A x is multiplied with. */
double adapter_scale(const AdapterConfig *c);

/* Refuses by name every setting of PEFT that would make the adapter mean something else than plain LoRA. */
bool adapter_config_read(AdapterConfig *c, const char *folder, Err *e);
bool adapter_config_write(const char *folder, const AdapterConfig *c, Err *e);
int64_t adapter_config_bytes(const AdapterConfig *c); /* of that file */

/* "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight": A is (rank, in), B is (out, rank). */
void adapter_key(char *out, size_t size, int layer, AdapterTarget t, bool b);

/* The file holds A and B of every target in every layer, of the configured rank, and nothing else. */
bool adapter_check_tensors(const StSet *s, const AdapterConfig *c, int n_layers, Err *e);

#endif
