/* presets.c - models that can be planned by name, without a file: the values of their published config.json. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/str.h"
#include "model/config_int.h"

typedef struct Preset {
    const char *name;
    ModelType type;
    int layers, heads, kv_heads, head_dim;
    int64_t hidden, ffn, vocab, max_positions;
    double rms_eps, rope_theta;
    bool tied;
    double llama3_factor; /* 0: plain rotary positions */
    int bos_id, eos_id;
    double init_std;
} Preset;

#define QWEN2 TYPE_QWEN2
#define QWEN3 TYPE_QWEN3
#define LLAMA TYPE_LLAMA
#define GSA TYPE_GSA
static const Preset presets[] = {
    /* name, family, layers, heads, kv, dim, hidden, ffn, vocab, positions, eps, theta, tied, llama3, bos, eos, std */
    {"qwen2.5-0.5b", QWEN2, 24, 14, 2, 64, 896, 4864, 151936, 32768, 1e-6, 1e6, true, 0, 151643, 151643, 0.02},
    {"qwen2.5-1.5b", QWEN2, 28, 12, 2, 128, 1536, 8960, 151936, 131072, 1e-6, 1e6, true, 0, 151643, 151643, 0.02},
    {"qwen2.5-3b", QWEN2, 36, 16, 2, 128, 2048, 11008, 151936, 32768, 1e-6, 1e6, true, 0, 151643, 151643, 0.02},
    {"qwen2.5-7b", QWEN2, 28, 28, 4, 128, 3584, 18944, 152064, 32768, 1e-6, 1e6, false, 0, 151643, 151645, 0.02},
    {"qwen2.5-14b", QWEN2, 48, 40, 8, 128, 5120, 13824, 152064, 32768, 1e-6, 1e6, false, 0, 151643, 151645, 0.02},
    {"qwen2.5-32b", QWEN2, 64, 40, 8, 128, 5120, 27648, 152064, 32768, 1e-6, 1e6, false, 0, 151643, 151645, 0.02},
    {"qwen2.5-72b", QWEN2, 80, 64, 8, 128, 8192, 29568, 152064, 32768, 1e-6, 1e6, false, 0, 151643, 151645, 0.02},
    {"deepseek-r1-distill-qwen-7b", QWEN2, 28, 28, 4, 128, 3584, 18944, 152064, 131072, 1e-6, 1e4, false, 0,
     151643, 151643, 0.02},
    {"qwen3-0.6b", QWEN3, 28, 16, 8, 128, 1024, 3072, 151936, 40960, 1e-6, 1e6, true, 0, 151643, 151645, 0.02},
    {"qwen3-1.7b", QWEN3, 28, 16, 8, 128, 2048, 6144, 151936, 40960, 1e-6, 1e6, true, 0, 151643, 151645, 0.02},
    {"qwen3-4b", QWEN3, 36, 32, 8, 128, 2560, 9728, 151936, 40960, 1e-6, 1e6, true, 0, 151643, 151645, 0.02},
    {"qwen3-8b", QWEN3, 36, 32, 8, 128, 4096, 12288, 151936, 40960, 1e-6, 1e6, false, 0, 151643, 151645, 0.02},
    {"llama-3.2-1b", LLAMA, 16, 32, 8, 64, 2048, 8192, 128256, 131072, 1e-5, 5e5, true, 32, 128000, 128001, 0.02},
    {"llama-3.2-3b", LLAMA, 28, 24, 8, 128, 3072, 8192, 128256, 131072, 1e-5, 5e5, true, 32, 128000, 128001, 0.02},
    {"llama-3.1-8b", LLAMA, 32, 32, 8, 128, 4096, 14336, 128256, 131072, 1e-5, 5e5, false, 8, 128000, 128001,
     0.02},
    {"llama-3.1-70b", LLAMA, 80, 64, 8, 128, 8192, 28672, 128256, 131072, 1e-5, 5e5, false, 8, 128000, 128001,
     0.02},
    {"llama-2-7b", LLAMA, 32, 32, 32, 128, 4096, 11008, 32000, 4096, 1e-5, 1e4, false, 0, 1, 2, 0.02},
    {"mistral-7b-v0.3", TYPE_MISTRAL, 32, 32, 8, 128, 4096, 14336, 32768, 32768, 1e-5, 1e6, false, 0, 1, 2, 0.02},
    {"gsa-512m", GSA, 8, 8, 2, 64, 512, 1536, 151936, 8192, 1e-5, 1e4, false, 0, 151643, 151643, 0.02},
    {"gsa-512m-768", GSA, 12, 8, 2, 96, 768, 2048, 151936, 8192, 1e-5, 1e4, false, 0, 151643, 151643, 0.02},
    {"gsa-1b", GSA, 14, 8, 2, 112, 896, 2304, 151936, 8192, 1e-5, 1e4, false, 0, 151643, 151643, 0.02},
    {"gsa-1.7b", GSA, 24, 16, 4, 128, 2048, 5504, 128256, 131072, 1e-5, 1e4, false, 0, 128000, 128001, 0.02},
    {"smollm2-135m", LLAMA, 30, 9, 3, 64, 576, 1536, 49152, 8192, 1e-5, 1e5, true, 0, 0, 0, 1.0 / 24},
    {"smollm2-360m", LLAMA, 32, 15, 5, 64, 960, 2560, 49152, 8192, 1e-5, 1e5, true, 0, 0, 0, 0.02},
    {"smollm2-1.7b", LLAMA, 24, 32, 32, 64, 2048, 8192, 49152, 8192, 1e-5, 1.3e5, true, 0, 0, 0, 0.02},
    {"stories-15m", LLAMA, 6, 6, 6, 48, 288, 768, 32000, 256, 1e-5, 1e4, true, 0, 1, 2, 0.02},
};

const char *config_preset_names(void) {
    static char text[1024];
    if (text[0]) return text;
    for (int i = 0, at = 0; i < COUNT_OF(presets); i++)
        at += snprintf(text + at, sizeof text - (size_t)at, i ? ", %s" : "%s", presets[i].name);
    return text;
}

static const Preset *find_preset(const char *name) { /* NULL: none */
    const char *slash = strrchr(name, '/');
    char word[128];
    snprintf(word, sizeof word, "%s", slash ? slash + 1 : name);
    for (char *w = word; *w; w++) *w = (char)tolower((unsigned char)*w);
    if (str_ends(word, "-instruct")) word[strlen(word) - 9] = 0;
    for (int i = 0; i < COUNT_OF(presets); i++)
        if (str_same_word(word, presets[i].name)) return &presets[i];
    return NULL;
}

bool config_preset_hub(char *to, size_t size, const char *name) {
    static const struct {
        const char *prefix, *id; /* what is left of the name follows in upper case: 0.5B */
    } published[] = {{"qwen2.5-", "Qwen/Qwen2.5-"},
                     {"qwen3-", "Qwen/Qwen3-"},
                     {"llama-3.", "meta-llama/Llama-3."},
                     {"llama-2-7b", "meta-llama/Llama-2-7b-hf"},
                     {"smollm2-", "HuggingFaceTB/SmolLM2-"},
                     {"mistral-7b-v0.3", "mistralai/Mistral-7B-v0.3"},
                     {"deepseek-r1-distill-qwen-", "deepseek-ai/DeepSeek-R1-Distill-Qwen-"}};
    const Preset *s = find_preset(name);
    bool is_id = s && strchr(name, '/');
    if (is_id) snprintf(to, size, "%s", name);
    for (int i = 0; i < COUNT_OF(published) && s && !is_id; i++) {
        if (!str_starts(s->name, published[i].prefix)) continue;
        int at = snprintf(to, size, "%s%s", published[i].id, s->name + strlen(published[i].prefix));
        for (char *c = to + strlen(published[i].id); c < to + at; c++) *c = (char)toupper((unsigned char)*c);
        return true;
    }
    return is_id;
}

bool config_from_preset(ModelConfig *c, const char *name) {
    const Preset *s = find_preset(name);
    if (!s) return false;
    *c = (ModelConfig){.type = s->type, .layers = s->layers, .heads = s->heads, .kv_heads = s->kv_heads,
                       .head_dim = s->head_dim, .hidden = s->hidden, .ffn = s->ffn, .vocab = s->vocab,
                       .max_positions = s->max_positions, .rms_eps = s->rms_eps, .rope_theta = s->rope_theta,
                       .init_std = s->init_std, .tied = s->tied, .qkv_bias = s->type == TYPE_QWEN2,
                       .qk_norm = s->type == TYPE_QWEN3, .dtype = FMT_BF16, .bos_id = s->bos_id,
                       .eos_id = s->eos_id};
    c->rope = (RopeScaling){.factor = 1, .low_freq = 1, .high_freq = 4, .beta_fast = 32, .beta_slow = 1};
    if (s->llama3_factor > 0) {
        c->rope.kind = ROPE_LLAMA3;
        c->rope.factor = s->llama3_factor;
        c->rope.original_positions = 8192;
    }
    if (s->type == TYPE_GSA) gsa_preset(c);
    snprintf(c->name, sizeof c->name, "%s", s->name);
    return true;
}
