/* judge_setup.c - how --save-best becomes a judge. */
#include "cli/judge_setup.h"

bool judge_setup(JudgeSetup *j, JobSetup *s, Err *e) {
    const Options *o = s->o;
    bool smatch = opt_is(o, OPT_SAVE_BEST, "smatch"), valid = opt_is(o, OPT_SAVE_BEST, "validity");
    if (!smatch && !valid) return true;
    graph_judge_close(&j->judge);
    if (!s->held_out)
        return fail(e, ERR_USAGE, "--save-best %s: there are no held-out sentences to parse",
                    opt_text(o, OPT_SAVE_BEST));
    if (!s->words.tokenizer)
        return fail(e, ERR_USAGE, "--save-best %s: graphs are text, and the model has no tokenizer",
                    opt_text(o, OPT_SAVE_BEST));
    if (!gen_setup_stop_ids(&j->stop, &s->model, &s->words, e)) return false;
    GraphJudgeOptions how = {.measure = smatch ? GRAPHS_SMATCH : GRAPHS_VALID,
                             .tokenizer = s->words.tokenizer,
                             .stop_id = j->stop.id,
                             .n_stop_ids = j->stop.n,
                             .most = opt_int(o, OPT_BEST_SAMPLES)};
    if (!graph_judge_read(&j->judge, s->held_out, &how, e)) return false;
    s->spec.task = &j->judge.task;
    return true;
}
