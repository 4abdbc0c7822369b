/* adapters.c - LoRA before the base layer: the adapter's product writes the result, and the layer's GEMM adds to it.
 *
 * linear y0 = x w^T, lora y = y0 + scale u b^T reads y0 and writes y: two passes over memory that nothing hides. As
 *     lora y0 = scale u b^T,   linear y = y0 + x w^T
 * the first writes only, and the second reads beside arithmetic that takes longer. Both steps, y0, y and their
 * gradients stay what they are; what backward reads (x, u) does not change.
 *
 *   A1  the two steps follow each other, and nothing else reads y0;
 *   A2  the adapter's groups cover y: else the layer would add to columns that no step wrote;
 *   A3  there are more rows than a layer has a kernel of its own for (LINEAR_DIRECT_ROWS): that one adds to nothing. */
#include "plan/plan_int.h"

static bool covers(const Program *p, const Step *lora) {
    const AttrLora *l = &lora->attr.lora;
    int64_t cols = 0;
    for (int g = 0; g < l->groups; g++) cols += l->rows[g];
    return cols == prog_cols(p, lora->lora.out.y);
}

static bool is_pair(const Program *p, const Step *linear, const Step *lora) {
    if (linear->op != OP_LINEAR || lora->op != OP_LORA || lora->lora.in.y0 != linear->linear.out.y) return false;
    if (linear->linear.in.so_far || linear->attr.linear.direct) return false;
    return covers(p, lora) && prog_rows(p, linear->linear.in.x) > LINEAR_DIRECT_ROWS;
}

void plan_adapters_first(Program *p) {
    int *readers = MEM_NEW(int, p->n_t);
    for (int64_t i = 0; i < p->n_s; i++)
        for (int k = 0; k < MAX_IN; k++)
            if (p->s[i].in[k]) readers[prog_base(p, p->s[i].in[k])]++;
    for (int64_t i = 0; i + 1 < p->n_s; i++) {
        Step linear = p->s[i], lora = p->s[i + 1];
        if (!is_pair(p, &linear, &lora)) continue;
        Tid y0 = linear.linear.out.y, y = lora.lora.out.y;
        if (readers[y0] != 1) continue;
        lora.lora.in.y0 = NONE;
        lora.lora.out.y = linear.linear.in.so_far = y0;
        linear.linear.out.y = y;
        p->s[i] = lora;
        p->s[i + 1] = linear;
    }
    mem_free(readers);
}
