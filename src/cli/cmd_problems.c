/* cmd_problems.c - snug problems: arithmetic word problems as JSON lines, to train on, to be asked, or for snug reason. */
#include <stdio.h>

#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/rng.h"
#include "cli/cmd.h"
#include "cli/peak.h"
#include "reason/arith_rows.h"

enum { WRITE_BYTES = 1 << 16 };

typedef struct Sink { /* lines on their way to a file or to standard output */
    FileOut file;
    bool to_file;
    Str text;
} Sink;

static bool pour(Sink *s, int64_t from_bytes, Err *e) {
    if (s->text.len < from_bytes) return true;
    bool ok = !s->to_file || file_write(s->file.fd, s->text.data, s->text.len, s->file.path, e);
    if (!s->to_file) fwrite(s->text.data, 1, (size_t)s->text.len, stdout);
    str_clear(&s->text);
    return ok;
}

static bool write_rows(Sink *s, const Options *o, const ArithRole *role, int n_roles, Err *e) {
    ArithPart part = opt_is(o, OPT_PART, "train") ? ARITH_TRAIN : ARITH_HELD_OUT;
    uint64_t seed = (uint64_t)opt_int(o, OPT_SEED);
    Arith a = {0};
    bool ok = true;
    for (int64_t i = 0; ok && !stop_signal && i < opt_int(o, OPT_N); i++) {
        uint64_t turn = (uint64_t)(i / n_roles), place = (uint64_t)(i % n_roles);
        uint64_t key = rng_fold(rng_fold(seed, place), turn);
        key = (key & ~(uint64_t)1) | (turn & 1); /* right and spoiled solutions take turns */
        json_t *row = arith_row(&a, role[place], key, part, opt_flag(o, OPT_WITHOUT_ANSWERS));
        char *line = json_dumps(row, JSON_COMPACT);
        str_add(&s->text, line);
        str_add_char(&s->text, '\n');
        mem_free(line);
        json_decref(row);
        ok = pour(s, WRITE_BYTES, e);
    }
    arith_free(&a);
    return ok && !(stop_signal && fail(e, ERR_FAIL, "interrupted: nothing was written to --out")) && pour(s, 1, e);
}

static bool read_roles(ArithRole *role, int *n, int room, const Options *o, Err *e) {
    static const char *const names[ARITH_ROLES] = {"solve", "judge", "improve", "none"};
    const char *const *given;
    *n = opt_list(o, OPT_ROLES, &given);
    if (*n > room) return fail(e, ERR_USAGE, "--roles: %d words; %d at most", *n, room);
    for (int i = 0; i < *n; i++) {
        int k = 0;
        while (k < ARITH_ROLES && !str_same_word(given[i], names[k])) k++;
        if (k == ARITH_ROLES) return fail(e, ERR_USAGE, "--roles: '%s' is none of solve, judge, improve, none", given[i]);
        role[i] = (ArithRole)k;
    }
    return true;
}

bool cmd_problems(const Options *o, Err *e) {
    ArithRole role[32] = {ARITH_SOLVE};
    int n;
    const char *out = opt_text(o, OPT_OUT);
    if (!read_roles(role, &n, COUNT_OF(role), o, e)) return false;
    if (out && !opt_flag(o, OPT_OVERWRITE) && file_exists(out))
        return fail(e, ERR_FAIL, "%s: is already there; give --overwrite to replace it", out);
    Sink s = {.to_file = out != NULL};
    if (out && !file_begin(&s.file, out, e)) return false;
    bool ok = write_rows(&s, o, role, n, e);
    if (out && ok) ok = file_commit(&s.file, e);
    else if (out) file_abort(&s.file);
    if (out && ok) log_line("%s: %lld rows", out, (long long)opt_int(o, OPT_N));
    str_free(&s.text);
    return ok &&
           peak_finish(json_pack("{s:I}", "rows", (json_int_t)opt_int(o, OPT_N)), process_runtime_bytes(1), o, e);
}
