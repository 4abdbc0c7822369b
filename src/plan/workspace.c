/* workspace.c - a step's scratch is an ordinary tensor that lives for one step, as large as the op's row asks. */
#include "plan/plan_int.h"

enum { WORD = 4 }; /* scratch is counted in 32-bit words: the smallest format without scales */

void plan_workspaces(Program *p, const Machine *m) {
    int layer = p->layer;
    for (int64_t i = 0; i < p->n_s; i++) {
        WorkspaceRule *rule = op_row(p->s[i].op)->workspace;
        int64_t bytes = rule ? rule(p, &p->s[i], m) : 0, words = (bytes + WORD - 1) / WORD;
        CHECK(bytes >= 0);
        Tid had = p->s[i].workspace;
        if (had && words) {
            p->t[had].dim[0] = words; /* planned before, perhaps for another machine */
        } else if (words) {
            p->layer = p->s[i].layer;
            p->s[i].workspace = prog_tensor(p, "scratch", ROLE_SCRATCH, FMT_I32, 1, DIMS(words));
        } else {
            p->s[i].workspace = NONE;
        }
    }
    p->layer = layer;
}
