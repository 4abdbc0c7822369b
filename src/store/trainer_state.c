/* trainer_state.c - which fields a run's state has in JSON, and what must agree for a run to go on. */
#include "store/trainer_state.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/jsonfile.h"

enum { STATE_FORMAT = 1, STATE_LIMIT_BYTES = 1 << 28 };
enum { ROW_BYTES = 256, COUNTERS_BYTES = 2048 }; /* one row of log_history as text; how much the rest may grow */
static const int64_t count_limit = (int64_t)1 << 53; /* steps, rows, tokens: more cannot be added to safely */

void trainer_state_init(TrainerState *s) {
    *s = (TrainerState){.best_step = -1, .scaling.scale = 1, .warmup_steps = -1, .schedule_steps = -1};
}

void trainer_state_free(TrainerState *s) {
    for (int64_t i = 0; i < s->n_settings; i++) {
        mem_free(s->setting[i].name);
        mem_free(s->setting[i].value);
    }
    mem_free(s->setting);
    mem_free(s->log);
    trainer_state_init(s);
}

void trainer_state_copy(TrainerState *to, const TrainerState *from) {
    *to = *from;
    to->log = NULL;
    to->setting = NULL;
    to->log_capacity = to->settings_capacity = to->n_settings = 0;
    trainer_state_reserve_log(to, from->n_log);
    for (int64_t i = 0; i < from->n_log; i++) to->log[i] = from->log[i];
    for (int64_t i = 0; i < from->n_settings; i++)
        trainer_state_set(to, from->setting[i].name, from->setting[i].value);
}

void trainer_state_reserve_log(TrainerState *s, int64_t rows) {
    s->log = mem_grow(s->log, &s->log_capacity, rows, sizeof *s->log);
}

void trainer_state_log(TrainerState *s, const TrainerLog *row) {
    trainer_state_reserve_log(s, s->n_log + 1);
    s->log[s->n_log++] = *row;
}

static const char *setting_find(const TrainerState *s, const char *name) {
    for (int64_t i = 0; i < s->n_settings; i++)
        if (!strcmp(s->setting[i].name, name)) return s->setting[i].value;
    return NULL;
}

void trainer_state_set(TrainerState *s, const char *name, const char *value) {
    for (int64_t i = 0; i < s->n_settings; i++) {
        if (strcmp(s->setting[i].name, name)) continue;
        char *copy = mem_strdup(value);
        mem_free(s->setting[i].value);
        s->setting[i].value = copy;
        return;
    }
    s->setting = mem_grow(s->setting, &s->settings_capacity, s->n_settings + 1, sizeof *s->setting);
    s->setting[s->n_settings++] = (TrainerSetting){mem_strdup(name), mem_strdup(value)};
}

void trainer_state_set_all(TrainerState *s, const json_t *texts) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)texts, name, value) {
        if (json_is_string(value)) trainer_state_set(s, name, json_string_value(value));
    }
}

static void add_difference(Str *text, const char *name, const char *saved, const char *now) {
    bool rows = !strcmp(name, "data") && saved && now; /* fingerprints */
    str_addf(text, "%s%s was %s and is %s%s", text->len ? "; " : "", name, saved ? saved : "not set",
             now ? now : "not set", rows ? " (other rows, or in another order)" : "");
}

/* Older checkpoints keep the run's length among the settings. */
static bool is_length(const char *name) {
    return !strcmp(name, "steps") || !strcmp(name, "epochs");
}

/* The same text, or the same number in two short spellings (10 and 1e+01); a fingerprint is longer than any of
 * them. */
static bool is_same_value(const char *a, const char *b) {
    enum { LONGEST_NUMBER = 12 };
    char *end_a, *end_b;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    bool numbers =
        end_a > a && end_b > b && !*end_a && !*end_b && strlen(a) <= LONGEST_NUMBER && strlen(b) <= LONGEST_NUMBER;
    return !strcmp(a, b) || (numbers && x == y);
}

bool trainer_state_check_settings(const TrainerState *saved, const TrainerState *now, Err *e) {
    Str text = {0};
    for (int64_t i = 0; i < saved->n_settings; i++) {
        const char *name = saved->setting[i].name, *was = saved->setting[i].value, *is = setting_find(now, name);
        if (is_length(name)) continue;
        if (!is || !is_same_value(was, is)) add_difference(&text, name, was, is);
    }
    for (int64_t i = 0; i < now->n_settings; i++)
        if (!setting_find(saved, now->setting[i].name))
            add_difference(&text, now->setting[i].name, NULL, now->setting[i].value);
    bool same = text.len == 0;
    if (!same)
        fail(e, ERR_FAIL,
             "the checkpoint belongs to another configuration: %s. The run's own config.yaml (--config) repeats what "
             "it was made with",
             text.data);
    str_free(&text);
    return same;
}

static json_t *log_row(const TrainerLog *r) {
    json_t *row = json_object();
    jsonfile_set(&row, "epoch", json_number(r->epoch));
    if (!r->is_eval) jsonfile_set(&row, "grad_norm", json_number(r->grad_norm));
    if (!r->is_eval) jsonfile_set(&row, "learning_rate", json_number(r->learning_rate));
    jsonfile_set(&row, r->is_eval ? "eval_loss" : "loss", json_number(r->loss));
    jsonfile_set(&row, "step", json_integer(r->step));
    return row;
}

/* jansson's integers are signed; seeds use all 64 bits. */
static json_t *word64(uint64_t x) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)x);
    return json_string(text);
}

static json_t *mean_object(const RunningMean *m) {
    json_t *o = json_object();
    jsonfile_set(&o, "mean", json_real(m->mean));
    jsonfile_set(&o, "variance", json_real(m->variance));
    jsonfile_set(&o, "n", json_integer(m->n));
    return o;
}

static json_t *spikes_object(const SpikeState *s) {
    json_t *o = json_object();
    jsonfile_set(&o, "loss", mean_object(&s->loss));
    jsonfile_set(&o, "grad_norm", mean_object(&s->norm));
    jsonfile_set(&o, "skipped_in_a_row", json_integer(s->skipped_in_a_row));
    return o;
}

static json_t *own_object(const TrainerState *s) {
    json_t *own = json_object(), *data = json_object(), *settings = json_object();
    jsonfile_set(&data, "epoch", json_integer(s->data_epoch));
    jsonfile_set(&data, "row", json_integer(s->data_row));
    jsonfile_set(&data, "shuffle_seed", word64(s->shuffle_seed));
    for (int64_t i = 0; i < s->n_settings; i++)
        jsonfile_set(&settings, s->setting[i].name, json_string(s->setting[i].value));
    jsonfile_set(&own, "format", json_integer(STATE_FORMAT));
    jsonfile_set(&own, "data", data);
    jsonfile_set(&own, "rng_seed", word64(s->rng_seed));
    jsonfile_set(&own, "tokens_seen", json_integer(s->tokens_seen));
    jsonfile_set(&own, "unlogged_loss", json_real(isfinite(s->unlogged_loss) ? s->unlogged_loss : 0));
    jsonfile_set(&own, "unlogged_tokens", json_integer(s->unlogged_tokens));
    jsonfile_set(&own, "micro_batches", json_integer(s->micro_batches));
    jsonfile_set(&own, "loss_scale", json_real(s->scaling.scale));
    jsonfile_set(&own, "good_steps", json_integer(s->scaling.good));
    jsonfile_set(&own, "skipped_steps", json_integer(s->scaling.skipped));
    if (s->spikes.norm.n || s->spikes.skipped_in_a_row) jsonfile_set(&own, "spikes", spikes_object(&s->spikes));
    if (s->warmup_steps >= 0) jsonfile_set(&own, "warmup_steps", json_integer(s->warmup_steps));
    if (s->schedule_steps >= 0) jsonfile_set(&own, "schedule_steps", json_integer(s->schedule_steps));
    if (s->passing) jsonfile_set(&own, "passing", json_true());
    jsonfile_set(&own, "fingerprint", settings);
    return own;
}

static json_t *state_object(const TrainerState *s) {
    bool best = s->best_step >= 0, named = best && s->best_model_checkpoint[0];
    json_t *log = json_array(), *callbacks = json_object(), *root = json_object();
    for (int64_t i = 0; i < s->n_log; i++) json_array_append_new(log, log_row(&s->log[i]));
    jsonfile_set(&callbacks, "snug", own_object(s));
    jsonfile_set(&root, "best_global_step", best ? json_integer(s->best_step) : json_null());
    jsonfile_set(&root, "best_metric", best ? json_number(s->best_metric) : json_null());
    jsonfile_set(&root, "best_model_checkpoint", named ? json_string(s->best_model_checkpoint) : json_null());
    jsonfile_set(&root, "epoch", json_number(s->epoch));
    jsonfile_set(&root, "eval_steps", json_integer(s->eval_steps));
    jsonfile_set(&root, "global_step", json_integer(s->global_step));
    jsonfile_set(&root, "is_hyper_param_search", json_false());
    jsonfile_set(&root, "is_local_process_zero", json_true());
    jsonfile_set(&root, "is_world_process_zero", json_true());
    jsonfile_set(&root, "log_history", log);
    jsonfile_set(&root, "logging_steps", json_integer(s->logging_steps));
    jsonfile_set(&root, "max_steps", json_integer(s->max_steps));
    jsonfile_set(&root, "num_input_tokens_seen", json_integer(s->tokens_seen));
    jsonfile_set(&root, "num_train_epochs", json_integer(s->num_train_epochs));
    jsonfile_set(&root, "save_steps", json_integer(s->save_steps));
    jsonfile_set(&root, "stateful_callbacks", callbacks);
    jsonfile_set(&root, "total_flos", json_integer(0));
    jsonfile_set(&root, "train_batch_size", json_integer(s->train_batch_size));
    jsonfile_set(&root, "trial_name", json_null());
    jsonfile_set(&root, "trial_params", json_null());
    return root;
}

static bool state_path(char *out, size_t size, const char *folder, Err *e) {
    if (snprintf(out, size, "%s/trainer_state.json", folder) < (int)size) return true;
    return fail(e, ERR_FAIL, "%s: the path is too long", folder);
}

bool trainer_state_write(const char *folder, const TrainerState *s, Err *e) {
    char path[1100];
    if (!state_path(path, sizeof path, folder, e)) return false;
    json_t *root = state_object(s);
    bool ok = jsonfile_write(path, root, e);
    json_decref(root);
    return ok;
}

int64_t trainer_state_bytes(const TrainerState *s, int64_t more_rows) {
    Str text = {0};
    json_t *root = state_object(s);
    json_print(&text, root, JSON_INDENT(2));
    int64_t bytes = text.len + 1 + COUNTERS_BYTES + more_rows * ROW_BYTES;
    json_decref(root);
    str_free(&text);
    return bytes;
}

/* Reading: the first field that is missing or of another kind is named. */
typedef struct Reader {
    const char *path;
    bool ok;
    Err *e;
} Reader;

static void bad_field(Reader *r, const char *key) {
    if (r->ok) r->ok = fail(r->e, ERR_FAIL, "%s: '%s' is missing or not what it should be", r->path, key);
}

static int64_t get_count(Reader *r, const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > count_limit) bad_field(r, key);
    return json_integer_value(v);
}

static double get_real(Reader *r, const json_t *object, const char *key) { /* null: not a number */
    const json_t *v = json_object_get(object, key);
    if (!json_is_number(v) && !json_is_null(v)) bad_field(r, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static uint64_t get_word64(Reader *r, const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    char *end = NULL;
    errno = 0;
    uint64_t x = text && text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (!end || *end || errno) bad_field(r, key);
    return x;
}

static void read_log(Reader *r, TrainerState *s, const json_t *rows) {
    if (!json_is_array(rows)) bad_field(r, "log_history");
    trainer_state_reserve_log(s, (int64_t)json_array_size(rows));
    for (size_t i = 0; i < json_array_size(rows) && r->ok; i++) {
        const json_t *row = json_array_get(rows, i);
        TrainerLog log = {.step = get_count(r, row, "step"), .epoch = get_real(r, row, "epoch")};
        log.is_eval = json_object_get(row, "eval_loss") != NULL;
        log.loss = get_real(r, row, log.is_eval ? "eval_loss" : "loss");
        if (!log.is_eval) log.grad_norm = get_real(r, row, "grad_norm");
        if (!log.is_eval) log.learning_rate = get_real(r, row, "learning_rate");
        trainer_state_log(s, &log);
    }
}

static RunningMean get_mean(Reader *r, const json_t *o) {
    return (RunningMean){get_real(r, o, "mean"), get_real(r, o, "variance"), get_count(r, o, "n")};
}

static SpikeState get_spikes(Reader *r, const json_t *o) {
    return (SpikeState){get_mean(r, json_object_get(o, "loss")), get_mean(r, json_object_get(o, "grad_norm")),
                        get_count(r, o, "skipped_in_a_row")};
}

static void read_own(Reader *r, TrainerState *s, const json_t *own) {
    if (get_count(r, own, "format") != STATE_FORMAT && r->ok)
        r->ok = fail(r->e, ERR_FAIL, "%s: was written in another format; this version reads format %d", r->path,
                     STATE_FORMAT);
    const json_t *data = json_object_get(own, "data"), *settings = json_object_get(own, "fingerprint");
    s->data_epoch = get_count(r, data, "epoch");
    s->data_row = get_count(r, data, "row");
    s->shuffle_seed = get_word64(r, data, "shuffle_seed");
    s->rng_seed = get_word64(r, own, "rng_seed");
    s->tokens_seen = get_count(r, own, "tokens_seen");
    s->micro_batches = get_count(r, own, "micro_batches");
    if (json_object_get(own, "unlogged_tokens")) {
        s->unlogged_loss = get_real(r, own, "unlogged_loss");
        s->unlogged_tokens = get_count(r, own, "unlogged_tokens");
    }
    if (json_object_get(own, "loss_scale"))
        s->scaling = (LossScale){get_real(r, own, "loss_scale"), get_count(r, own, "good_steps"),
                                 get_count(r, own, "skipped_steps")};
    if (json_object_get(own, "spikes")) s->spikes = get_spikes(r, json_object_get(own, "spikes"));
    if (json_object_get(own, "warmup_steps")) s->warmup_steps = get_count(r, own, "warmup_steps");
    if (json_object_get(own, "schedule_steps")) s->schedule_steps = get_count(r, own, "schedule_steps");
    s->passing = json_is_true(json_object_get(own, "passing"));
    if (!json_is_object(settings)) bad_field(r, "fingerprint");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)settings, key, value) {
        if (json_is_string(value)) trainer_state_set(s, key, json_string_value(value));
        else bad_field(r, key);
    }
}

static void read_standard(Reader *r, TrainerState *s, const json_t *root) {
    s->global_step = get_count(r, root, "global_step");
    s->max_steps = get_count(r, root, "max_steps");
    s->epoch = get_real(r, root, "epoch");
    s->num_train_epochs = get_count(r, root, "num_train_epochs");
    s->logging_steps = get_count(r, root, "logging_steps");
    s->eval_steps = get_count(r, root, "eval_steps");
    s->save_steps = get_count(r, root, "save_steps");
    s->train_batch_size = get_count(r, root, "train_batch_size");
    bool best_known = !json_is_null(json_object_get(root, "best_global_step"));
    s->best_step = best_known ? get_count(r, root, "best_global_step") : -1;
    s->best_metric = get_real(r, root, "best_metric");
    const char *best = json_string_value(json_object_get(root, "best_model_checkpoint"));
    if (!best) return;
    if (strlen(best) >= sizeof s->best_model_checkpoint) bad_field(r, "best_model_checkpoint");
    else memcpy(s->best_model_checkpoint, best, strlen(best) + 1);
}

static const json_t *own_part(const json_t *root) {
    return json_object_get(json_object_get(root, "stateful_callbacks"), "snug");
}

bool trainer_state_read(TrainerState *s, const char *folder, Err *e) {
    char path[1100];
    json_t *root;
    trainer_state_init(s);
    if (!state_path(path, sizeof path, folder, e) || !jsonfile_read(&root, path, STATE_LIMIT_BYTES, e))
        return false;
    Reader r = {.path = path, .ok = true, .e = e};
    const json_t *own = own_part(root);
    if (!own) r.ok = fail(e, ERR_FAIL, "%s: was not written by snug: training cannot go on from it", path);
    if (r.ok) read_standard(&r, s, root);
    if (r.ok) read_own(&r, s, own);
    if (r.ok) read_log(&r, s, json_object_get(root, "log_history"));
    json_decref(root);
    if (!r.ok) trainer_state_free(s);
    return r.ok;
}

bool trainer_state_look(const char *folder, bool *passing, Err *e) {
    char path[1100];
    json_t *root;
    if (!state_path(path, sizeof path, folder, e) || !jsonfile_read(&root, path, STATE_LIMIT_BYTES, e))
        return false;
    bool ok = json_is_integer(json_object_get(root, "global_step")) ||
              fail(e, ERR_FAIL, "%s: has no global_step", path);
    if (passing) *passing = json_is_true(json_object_get(own_part(root), "passing"));
    json_decref(root);
    return ok;
}
