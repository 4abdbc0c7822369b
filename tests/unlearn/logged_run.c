/* logged_run.c - how tests look into a replay. */
#include "tests/unlearn/logged_run.h"

#include "base/log.h"
#include "tests/test.h"
#include "weights/weights.h"

static bool open_with(LoggedRun *l, const char *name, const char *hessian, const char *correction,
                      UnlearnVectors *vectors) {
    char out[600], kind[40], where[40];
    char *words[] = {"--run",     test_path(name), "--out",        out,  "--threads", "2", "--other-binary",
                     "--hessian", kind,            "--correction", where};
    Err e = {0};
    snprintf(out, sizeof out, "%s/unused", test_tmp());
    snprintf(kind, sizeof kind, "%s", hessian);
    snprintf(where, sizeof where, "%s", correction);
    *l = (LoggedRun){0};
    log_only_warnings();
    bool ok = options_parse(&l->o, CMD_UNLEARN, COUNT_OF(words), words, &e) &&
              unlearn_run_open(&l->run, &l->o, vectors, NULL, &e);
    if (!EXPECT(ok)) test_note("    %s", e.text);
    if (ok) l->walk = replay_walk(&l->run.replay);
    return ok;
}

bool logged_run_open(LoggedRun *l, const char *name, const char *hessian) {
    return open_with(l, name, hessian, "host", NULL);
}

static bool no_vectors(void *user, const UnlearnRun *r, int64_t *bytes, const char **why_host, Err *e) {
    *why_host = NULL;
    return true;
}

bool logged_run_open_on_ring(LoggedRun *l, const char *name) {
    return open_with(l, name, "fisher", "device", no_vectors);
}

void logged_run_close(LoggedRun *l) {
    unlearn_run_close(&l->run);
    options_free(&l->o);
}

float *logged_run_vector(LoggedRun *l, const char *folder) {
    Err e = {0};
    float *v = MEM_NEW(float, l->walk.n);
    EXPECT_OK(weights_load(&l->run.base.ring.x, NULL, ROLE_WEIGHT, folder, &e));
    params_get(&l->run.replay.params, &l->run.base.ring.x, PARAMS_THETA, v);
    return v;
}
