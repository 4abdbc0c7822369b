/* judge_setup.c - how --save-best becomes a judge. */
#include "cli/judge_setup.h"

#include <string.h>

#include "cli/gen_setup.h"

bool judge_setup(JudgeSetup *j, JobSpec *s, const Options *o, const Words *w, const ModelFiles *m,
                 const Dataset *held_out, Err *e) {
    bool smatch = opt_is(o, OPT_SAVE_BEST, "smatch"), valid = opt_is(o, OPT_SAVE_BEST, "validity");
    if (!smatch && !valid) return true;
    graph_judge_close(&j->judge);
    if (!held_out)
        return fail(e, ERR_USAGE, "--save-best %s: there are no held-out sentences to parse",
                    opt_text(o, OPT_SAVE_BEST));
    if (!w->tokenizer)
        return fail(e, ERR_USAGE, "--save-best %s: graphs are text, and the model has no tokenizer",
                    opt_text(o, OPT_SAVE_BEST));
    StopIds stop;
    if (!gen_setup_stop_ids(&stop, m, w, e)) return false;
    _Static_assert(sizeof j->stop_id == sizeof stop.id, "all of them are kept");
    memcpy(j->stop_id, stop.id, sizeof stop.id);
    GraphJudgeOptions how = {.measure = smatch ? GRAPHS_SMATCH : GRAPHS_VALID,
                             .tokenizer = w->tokenizer,
                             .stop_id = j->stop_id,
                             .n_stop_ids = stop.n,
                             .most = opt_int(o, OPT_BEST_SAMPLES)};
    if (!graph_judge_read(&j->judge, held_out, &how, e)) return false;
    s->task = &j->judge.task;
    return true;
}
