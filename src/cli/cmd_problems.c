/* cmd_problems.c - snug problems: arithmetic word problems as JSON lines, to train on, to be asked, or for snug
 * reason. */
#include <string.h>

#include "base/log.h"
#include "base/process.h"
#include "base/rng.h"
#include "cli/cmd.h"
#include "cli/lines.h"
#include "cli/peak.h"
#include "reason/arith_rows.h"

static bool write_rows(Lines *s, const Options *o, const ArithRole *role, int n_roles, Err *e) {
    ArithPart part = opt_is(o, OPT_PART, "train") ? ARITH_TRAIN : ARITH_HELD_OUT;
    uint64_t seed = (uint64_t)opt_int(o, OPT_SEED);
    Arith a = {0};
    bool ok = true;
    for (int64_t i = 0; ok && !stop_signal && i < opt_int(o, OPT_N); i++) {
        uint64_t turn = (uint64_t)(i / n_roles), place = (uint64_t)(i % n_roles);
        uint64_t key = rng_fold(rng_fold(seed, place), turn);
        key = (key & ~(uint64_t)1) | (turn & 1); /* right and spoiled solutions take turns */
        ok = lines_json(s, arith_row(&a, role[place], key, part, opt_flag(o, OPT_WITHOUT_ANSWERS)), e);
    }
    arith_free(&a);
    return ok && !(stop_signal && fail(e, ERR_FAIL, "interrupted: nothing was written to --out"));
}

static bool read_roles(ArithRole *role, int *n, int room, const Options *o, Err *e) {
    static const char *const names[ARITH_ROLES] = {"solve", "judge", "improve", "none"};
    const char *const *given;
    *n = opt_list(o, OPT_ROLES, &given);
    if (*n > room) return fail(e, ERR_USAGE, "--roles: %d words; %d at most", *n, room);
    for (int i = 0; i < *n; i++) {
        int k = 0;
        while (k < ARITH_ROLES && !str_same_word(given[i], names[k])) k++;
        if (k == ARITH_ROLES)
            return fail(e, ERR_USAGE, "--roles: '%s' is none of solve, judge, improve, none", given[i]);
        role[i] = (ArithRole)k;
    }
    return true;
}

bool cmd_problems(const Options *o, Err *e) {
    ArithRole role[32] = {ARITH_SOLVE};
    int n;
    const char *out = opt_text(o, OPT_OUT);
    if (out && !strcmp(out, "-")) out = NULL; /* standard output */
    if (!read_roles(role, &n, COUNT_OF(role), o, e)) return false;
    Lines s;
    if (!lines_begin(&s, out, opt_flag(o, OPT_OVERWRITE), e)) return false;
    bool ok = lines_end(&s, write_rows(&s, o, role, n, e), e);
    if (out && ok) log_line("%s: %lld rows", out, (long long)opt_int(o, OPT_N));
    return ok &&
           peak_finish(json_pack("{s:I}", "rows", (json_int_t)opt_int(o, OPT_N)), process_runtime_bytes(1), o, e);
}
