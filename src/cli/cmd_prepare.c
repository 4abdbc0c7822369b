/* cmd_prepare.c - snug prepare: files of text into token shards, with progress and the time that is left. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/process.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/peak.h"
#include "cli/setup.h"
#include "cli/share.h"
#include "data/prepare.h"
#include "data/tokenizer.h"
#include "model/config.h"
#include "obs/sensors.h"
#include "store/lock.h"

typedef struct Told {
    double began, last;     /* began: with the first row; 0: not yet */
    int64_t bytes_at_start; /* of an earlier run */
} Told;

static void say(void *user, const PrepareCounts *now) {
    enum { EVERY_SECONDS = 5 };
    Told *t = user;
    double seconds = sensors_seconds();
    if (!t->began) {
        t->bytes_at_start = now->bytes_done;
        t->began = t->last = seconds;
    }
    if (seconds - t->last < EVERY_SECONDS) return;
    t->last = seconds;
    double done = (double)(now->bytes_done - t->bytes_at_start), left = (double)(now->bytes - now->bytes_done);
    log_line("%3.0f %%  %s tokens, %s documents, %s shards; %.1f MB/s of text, %s left",
             now->bytes ? 100.0 * (double)now->bytes_done / (double)now->bytes : 100.0, units_count(now->tokens).s,
             units_count(now->documents).s, units_count(now->shards).s,
             (double)now->text_bytes / 1e6 / (seconds - t->began),
             done > 0 ? units_seconds((seconds - t->began) * left / done).s : "not known what is");
}

static void print_result(const Options *o, const PrepareCounts *c, double seconds) {
    double speed = (double)c->text_bytes / 1e6 / MAX2(seconds, 1e-9);
    if (c->was_done)
        log_line("%s: was prepared before, nothing was left to do", opt_text(o, OPT_OUT));
    else
        log_line(
            "%s: %s tokens of %s documents in %s shards (%s rows, %s without a text) from %s files; %.1f MB/s of text",
            opt_text(o, OPT_OUT), units_count(c->tokens).s, units_count(c->documents).s, units_count(c->shards).s,
            units_count(c->rows).s, units_count(c->dropped).s, units_count(c->inputs).s, speed);
}

static json_t *result_json(const PrepareCounts *c, double seconds) {
    json_t *j = JSON_COUNTS({"tokens", c->tokens}, {"documents", c->documents}, {"dropped", c->dropped},
                            {"rows", c->rows}, {"shards", c->shards}, {"inputs", c->inputs},
                            {"text_bytes", c->text_bytes});
    json_object_set_new(j, "seconds", json_real(seconds));
    json_object_set_new(j, "resumed", json_boolean(c->resumed));
    json_object_set_new(j, "was_done", json_boolean(c->was_done));
    return j;
}

/* A name that is not there is refused before --out is made. */
static bool check_names(const Options *o, Err *e) {
    for (int i = 0; i < o->n_positional; i++) {
        int fd;
        if (file_is_dir(o->positional[i])) continue;
        if (!file_open_read(o->positional[i], &fd, e)) return false;
        file_close(fd);
    }
    return true;
}

/* As training finds it: the tokenizer's, else that of the model it lies with. */
static bool find_eos(int32_t *eos, const Tokenizer *t, const char *folder, Err *e) {
    ModelConfig config;
    *eos = tokenizer_eos(t);
    if (*eos < 0 && file_exists(file_in(folder, "config.json").s)) {
        if (!config_from_file(&config, folder, e)) return false;
        *eos = config.eos_id;
    }
    return *eos >= 0 || fail(e, ERR_FAIL,
                             "%s: names no end-of-text token, which stands behind every document: neither "
                             "tokenizer_config.json (eos_token) nor config.json (eos_token_id)",
                             folder);
}

/* The first folder on the way to `out` that is not there yet; "": all are. */
static void first_missing(char *to, size_t size, const char *out) {
    snprintf(to, size, "%s", out);
    for (char *slash = to; (slash = strchr(slash + 1, '/')); *slash = '/') {
        *slash = 0;
        if (!file_exists(to)) return;
    }
    if (file_exists(to)) to[0] = 0;
}

/* A preparation that ended before its first shard leaves nothing of the folders it made. */
static void leave_nothing(const char *out, const char *made) {
    char **names;
    int64_t n;
    if (!made[0] || !file_list(out, &names, &n, NULL)) return;
    bool only_lock = n == 0 || (n == 1 && !strcmp(names[0], ".lock"));
    file_list_free(names, n);
    if (only_lock) file_remove_tree(made, NULL);
}

bool cmd_prepare(const Options *o, Err *e) {
    const char *out = opt_text(o, OPT_OUT);
    char made[1200], own[SHARE_PATH];
    Tokenizer *t;
    RunLock lock = {.fd = -1};
    PrepareCounts counts = {0};
    Told told = {0};
    const char *words = share_find(own, "models", opt_text(o, OPT_TOKENIZER));
    if (!check_names(o, e) || !tokenizer_open(&t, words, e)) return false;
    first_missing(made, sizeof made, out);
    PrepareOptions options = {.tokenizer = t,
                              .threads = setup_threads(o),
                              .shard_tokens = opt_int(o, OPT_SHARD_TOKENS),
                              .max_document = opt_int(o, OPT_MAX_DOCUMENT),
                              .text_field = opt_text(o, OPT_TEXT_FIELD),
                              .pack_seq = opt_int(o, OPT_PACK_ROWS),
                              .overwrite = opt_flag(o, OPT_OVERWRITE)};
    bool ok = find_eos(&options.eos, t, words, e) && file_make_dirs(out, e) &&
              runlock_take(&lock, out, e) &&
              prepare_corpus(&counts, out, o->positional, o->n_positional, &options, say, &told, e);
    if (ok && counts.stopped)
        ok = fail(e, ERR_FAIL, "interrupted: %s shards are kept in %s, and the same command goes on behind them",
                  units_count(counts.shards).s, out);
    double seconds = told.began ? sensors_seconds() - told.began : 0;
    int64_t planned = process_runtime_bytes(options.threads) + 2 * tokenizer_bytes(t);
    planned += prepare_bytes(&options, &counts);
    if (ok) print_result(o, &counts, seconds);
    else leave_nothing(out, made);
    runlock_release(&lock);
    tokenizer_close(t);
    return ok && peak_finish(result_json(&counts, seconds), planned, o, e);
}
