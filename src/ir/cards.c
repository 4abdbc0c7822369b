/* cards.c - what is known about GPUs by their name.
 *
 * "vendor": dense bf16 products (fp16 where a card has no bf16 units) with fp32 sums and memory as the vendor
 * states them. "estimated": derived from the vendor's figures of the same chip family. "measured": timed at training
 * shapes, of which there is one, an H200: 700 of the vendor's 990 TFLOP/s, 60 of 67, 4300 of 4800 GB/s. Where cards are
 * compared, figures of vendors are brought down by the same shares (card_rates). Copies are what the host's bus gives
 * at best. Memory is what the driver's tools show for the whole card. */
#include "ir/cards.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/units.h"

/* clang-format off */
static const Card cards[] = {
    /* name           driver's word       MiB  label cap matrix vector memory copy source */
    {"B200",           "B200",          183359, 180, 100, 2250,  80,   8000,  50, "vendor"},
    {"GH200",          "GH200",          97871,  96, 90,  990,  67,   4000, 200, "vendor"},
    {"H200",           "H200",          143771, 141, 90,  700,  60,   4300,  50, "measured"},
    {"H100 PCIe",      "H100 PCIe",      81559,  80, 90,  756,  51,   2000,  50, "vendor"},
    {"H100 NVL",       "H100 NVL",       95830,  94, 90,  835,  60,   3900,  50, "vendor"},
    {"H100 96",        "H100",           97871,  96, 90,  990,  67,   3350,  50, "vendor"},
    {"H100",           "H100",           81559,  80, 90,  990,  67,   3350,  50, "vendor"},
    {"A100 40",        "A100",           40960,  40, 80,  312,  19.5, 1555,  24, "vendor"},
    {"A100 80",        "A100",           81920,  80, 80,  312,  19.5, 1935,  24, "vendor"},
    {"L40S",           "L40S",           46068,  48, 89,  362,  91,    864,  24, "vendor"},
    {"L4",             "L4",             23034,  24, 89,  121,  30,    300,  24, "vendor"},
    {"A10",            "A10",            23028,  24, 86,  125,  31,    600,  24, "vendor"},
    {"T4",             "T4",             15360,  16, 75,   65,   8,    320,  12, "vendor"},
    {"RTX PRO 6000",   "RTX PRO 6000",   97887,  96, 120,  500, 120,   1792,  50, "estimated"},
    {"RTX 5090",       "RTX 5090",       32607,  32, 120,  210, 105,   1792,  50, "vendor"},
    {"RTX 5060 Ti 8",  "RTX 5060 Ti",     8151,   8, 120,   47,  24,    448,  24, "estimated"},
    {"RTX 5060 Ti",    "RTX 5060 Ti",    16311,  16, 120,   47,  24,    448,  24, "estimated"},
    {"RTX 4090",       "RTX 4090",       24564,  24, 89,  165,  83,   1008,  24, "vendor"},
    {"RTX 4060 Ti 8",  "RTX 4060 Ti",     8188,   8, 89,   44,  22,    288,  12, "estimated"},
    {"RTX 4060 Ti",    "RTX 4060 Ti",    16380,  16, 89,   44,  22,    288,  12, "estimated"},
    {"RTX 3090",       "RTX 3090",       24576,  24, 86,   71,  36,    936,  24, "vendor"},
    {"RTX 3060",       "RTX 3060",       12288,  12, 86,   26,  13,    360,  24, "estimated"},
};
/* clang-format on */

int card_count(void) { return COUNT_OF(cards); }
const Card *card_at(int i) { return &cards[i]; }

/* The driver shows a little less than the label; a slice of a card shows much less and takes the row of its name. */
const Card *card_find(const char *driver_name, int64_t total_bytes) {
    const Card *by_name = NULL;
    for (int i = 0; i < COUNT_OF(cards); i++) {
        if (!strstr(driver_name, cards[i].word)) continue;
        double share = (double)total_bytes / ((double)cards[i].memory_mib * (double)MIB);
        if (share > 0.93 && share < 1.01) return &cards[i];
        if (!by_name) by_name = &cards[i];
    }
    return by_name;
}

/* Letters and digits only, small; a trailing "gb" and a leading maker's name are dropped. */
static void plain_word(char *to, int room, const char *from) {
    int n = 0;
    for (; *from && n < room - 1; from++)
        if (isalnum((unsigned char)*from)) to[n++] = (char)tolower((unsigned char)*from);
    if (n > 2 && (!strncmp(to + n - 2, "gb", 2))) n -= 2;
    to[n] = 0;
    static const char *const makers[] = {"nvidia", "geforce", "tesla"};
    for (int i = 0; i < COUNT_OF(makers); i++) {
        size_t k = strlen(makers[i]);
        if (!strncmp(to, makers[i], k)) memmove(to, to + k, strlen(to + k) + 1);
    }
}

const Card *card_named(const char *word) {
    char want[64], have[64], with_memory[80];
    plain_word(want, sizeof want, word);
    for (int i = 0; i < COUNT_OF(cards); i++) {
        plain_word(have, sizeof have, cards[i].name);
        if (!strcmp(want, have)) return &cards[i];
        plain_word(have, sizeof have, cards[i].word);
        snprintf(with_memory, sizeof with_memory, "%s%d", have, cards[i].label_gb);
        if (!strcmp(want, with_memory)) return &cards[i];
    }
    for (int i = COUNT_OF(cards) - 1; i >= 0; i--) { /* without memory: the larger, which stands last */
        plain_word(have, sizeof have, cards[i].word);
        if (!strcmp(want, have)) return &cards[i];
    }
    return NULL;
}

#define MATRIX_REACHED (700.0 / 990)
#define VECTOR_REACHED (60.0 / 67)
#define MEMORY_REACHED (4300.0 / 4800)
/* Products in fp32 run on the vector units: 0.5B, 4 x 1024, on an H200 at 39 to 51 TFLOP/s. */
#define F32_SHARE 0.8

const char card_footing[] = "tokens/s by rates measured on an H200; of other cards by the vendor's, times what an H200 "
                            "reaches of its own (71 % of products, 90 % of memory)";

void card_rates(const Card *c, Machine *m) {
    bool measured = !strcmp(c->source, "measured");
    m->matrix_flops = c->matrix_tflops * 1e12 * (measured ? 1 : MATRIX_REACHED);
    m->vector_flops = c->vector_tflops * 1e12 * (measured ? 1 : VECTOR_REACHED);
    m->f32_flops = m->vector_flops * F32_SHARE;
    m->memory_bytes_per_s = c->memory_gbps * 1e9 * (measured ? 1 : MEMORY_REACHED);
    m->copy_bytes_per_s = c->copy_gbps * 1e9;
    m->step_seconds = 4e-6;
    m->source = c->source;
}

/* What a driver keeps for itself, and what a process takes beside its arena: as seen on an H200 with driver 580 and
 * CUDA 13 (context 526 MiB, code and graphs below 64 MiB). */
Machine card_machine(const Card *c) {
    Machine m = {.kind = MACHINE_CUDA, .threads = 1, .align_bytes = 256, .page_bytes = 2 * MIB,
                 .capability = c->capability};
    snprintf(m.name, sizeof m.name, "%s, not here", c->name);
    m.total_bytes[POOL_DEVICE] = c->memory_mib * MIB - 640 * MIB;
    m.context_bytes = 544 * MIB;
    m.code_bytes = 64 * MIB;
    m.mapping_share = 1.0 / 512;
    m.free_bytes[POOL_DEVICE] = m.total_bytes[POOL_DEVICE] - m.context_bytes;
    m.runtime_bytes = 512 * MIB;
    card_rates(c, &m);
    return m;
}

Machine card_machine_as(const Card *c, const Machine *asked) {
    Machine m = card_machine(c);
    m.tf32 = asked->tf32;
    m.deterministic = asked->deterministic;
    return m;
}
