/* setup_data.c - from options to a tokenizer, a chat template and the rows of a job. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "amr/rows.h"
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/amr_verbs.h"
#include "cli/setup.h"
#include "cli/share.h"
#include "train/run.h"

enum { LEAST_ROOM = 64 << 20, LITTLE_ROOM = 8 << 20 /* what reading itself takes, whatever is read */ };

bool setup_words_of(Words *w, const char *folder, Err *e) {
    *w = (Words){0};
    bool found;
    if (!tokenizer_open(&w->tokenizer, folder, e)) return false;
    if (!file_is_dir(folder) || template_load(&w->chat, &found, folder, e)) return true;
    setup_words_free(w);
    return false;
}

const char *setup_words_folder(char own[SHARE_PATH], const Options *o, const ModelFiles *m) {
    if (opt_given(o, OPT_TOKENIZER)) return share_find(own, "models", opt_text(o, OPT_TOKENIZER));
    return m->has_folder ? m->folder : NULL;
}

bool setup_words(Words *w, const Options *o, const ModelFiles *m, Err *e) {
    *w = (Words){0};
    char own[SHARE_PATH];
    const char *folder = setup_words_folder(own, o, m);
    if (!folder) return true;
    if (!opt_given(o, OPT_TOKENIZER) && !file_exists(file_in(folder, "tokenizer.json").s)) return true;
    return setup_words_of(w, folder, e);
}

void setup_words_free(Words *w) {
    if (w->chat) template_free(w->chat);
    if (w->tokenizer) tokenizer_close(w->tokenizer);
    *w = (Words){0};
}

/* The memory that rows lie in: the process's own on the CPU, beside a device the host's. What the plan needs
 * besides is not known yet; what no plan can do without is taken off. Where that alone is too much, some rows are
 * read all the same, so that the plan can say by how much. */
int64_t setup_data_room(const Machine *m, FitLimits limits, const Words *w) {
    int64_t room = m->kind == MACHINE_CPU ? limits.device_bytes : limits.host_bytes;
    if (!room || room == INT64_MAX) return 0;
    int64_t left = room - m->runtime_bytes - (w->tokenizer ? tokenizer_bytes(w->tokenizer) : 0);
    return left > LITTLE_ROOM ? left : LEAST_ROOM;
}

int64_t setup_reading_bytes(const Dataset *d, const Dataset *held_out) {
    int64_t first = d ? dataset_reading_bytes(d) : 0, second = held_out ? dataset_reading_bytes(held_out) : 0;
    return MAX2(first - (held_out ? dataset_bytes(held_out) : 0), second); /* one after the other */
}

/* "FILE:2.5": a file and its weight; a file whose name ends that way is a name. */
static bool parse_file(DataFile *f, char *text, Err *e) {
    char *colon = strrchr(text, ':'), *end;
    *f = (DataFile){.path = text};
    if (!colon || colon == text || file_exists(text)) return true;
    double weight = strtod(colon + 1, &end);
    if (end == colon + 1 || *end) return true;
    if (!(weight > 0 && weight <= 1e9)) return fail(e, ERR_USAGE, "--data %s: a weight lies above 0", text);
    *colon = 0;
    f->weight = weight;
    return true;
}

static bool open_listed(Dataset **d, const Options *o, OptId id, const DataOptions *options, Err *e) {
    const char *const *list, *whole = opt_text(o, id);
    int n = opt_list(o, id, &list);
    if (n > 1 && file_exists(whole)) list = &whole, n = 1; /* commas in the name of one file */
    DataFile *file = MEM_NEW(DataFile, n);
    char **text = MEM_NEW(char *, n);
    bool ok = true;
    for (int i = 0; i < n; i++) {
        text[i] = mem_strdup(list[i]);
        ok = ok && parse_file(&file[i], text[i], e);
        if (ok && file[i].weight > 0 && id != OPT_DATA)
            ok = fail(e, ERR_USAGE, "--%s %s: what is evaluated on has no weight, all of it counts once",
                      option_rows[id].name, list[i]);
    }
    ok = ok && dataset_open_files(d, file, n, options, e);
    for (int i = 0; i < n; i++) mem_free(text[i]);
    mem_free(text);
    mem_free(file);
    return ok;
}

/* Any of the files may be an AMR corpus: blocks of it that are left out are told, also where nothing remains. */
static bool open_with_graphs(Dataset **d, const Options *o, OptId id, DataOptions *options, Err *e) {
    AmrRows rows = {0};
    Str text = {0};
    const char *wording = opt_text(o, OPT_AMR_PROMPT); /* NULL: a command that reads none */
    AmrRowStyle style = {.layout = amr_layout(o, PENMAN_ONE_LINE), .chat = options->template_mode == TEMPLATE_CHAT};
    bool ok = !wording || amr_rows_open(&rows, wording, style, e);
    options->blocks = wording ? &rows.blocks : NULL;
    ok = ok && open_listed(d, o, id, options, e);
    amr_rows_report(&text, &rows);
    if (text.len) log_warn("%s", str_text(&text));
    str_clear(&text);
    if (ok) dataset_report_text(&text, *d);
    if (ok) log_line("%s", str_text(&text));
    options->blocks = NULL;
    amr_rows_close(&rows);
    str_free(&text);
    return ok;
}

DataOptions setup_data_words(const Words *w, const ModelFiles *m) {
    DataOptions d = {.tokenizer = w->tokenizer, .chat = w->chat, .vocab = m->config.vocab, .eos_id = m->config.eos_id};
    if (!w->tokenizer) return d;
    int32_t bos = tokenizer_bos(w->tokenizer), eos = tokenizer_eos(w->tokenizer);
    if (eos >= 0) d.eos_id = eos;
    if (bos >= 0) d.bos_text = tokenizer_piece(w->tokenizer, bos);
    if (eos >= 0) d.eos_text = tokenizer_piece(w->tokenizer, eos);
    return d;
}

bool setup_data(Dataset **d, const Options *o, const Words *w, const ModelFiles *m, OptId id, int64_t room_bytes,
                Err *e) {
    DataOptions d_options = setup_data_words(w, m);
    d_options.seq = opt_int(o, OPT_SEQ);
    d_options.max_samples = opt_int(o, OPT_MAX_SAMPLES);
    d_options.limit_bytes = room_bytes;
    d_options.pack = opt_is(o, OPT_PACK, "on")       ? PACK_ON
                     : opt_is(o, OPT_PACK, "off")    ? PACK_OFF
                     : opt_is(o, OPT_PACK, "update") ? PACK_UPDATE
                                                     : PACK_AUTO;
    d_options.join_documents = opt_is(o, OPT_DOCUMENTS, "joined");
    d_options.score = opt_is(o, OPT_SCORE, "last") ? SCORE_LAST : SCORE_ALL;
    d_options.template_mode = opt_is(o, OPT_TEMPLATE, "chat") ? TEMPLATE_CHAT
                              : opt_is(o, OPT_TEMPLATE, "none") ? TEMPLATE_NONE : TEMPLATE_AUTO;
    d_options.text_field = opt_text(o, OPT_TEXT_FIELD);
    d_options.prompt_template = opt_text(o, OPT_PROMPT_TEMPLATE);
    d_options.answer_template = opt_text(o, OPT_ANSWER_TEMPLATE);
    if (o->command == CMD_TRAIN || o->command == CMD_PLAN) { /* a plan counts the same bytes */
        d_options.seed = (uint64_t)opt_int(o, OPT_SEED);
        d_options.shuffle = opt_flag(o, OPT_SHUFFLE);
    }
    return open_with_graphs(d, o, id, &d_options, e);
}

/* ---- packing ---- */

int64_t setup_updates(const Options *o, const Dataset *d, int64_t global_batch) {
    if (opt_given(o, OPT_STEPS)) return opt_int(o, OPT_STEPS);
    double updates = opt_real(o, OPT_EPOCHS) * (double)run_steps_per_epoch(d, global_batch);
    return MAX2((int64_t)ceil(updates - 1e-9), 1);
}

static void set_rows(JobSpec *s, const UpdateRows *rows, int64_t global_batch) {
    s->rows = rows;
    s->accum = ((rows ? job_rows(s) : global_batch) + s->micro_batch - 1) / s->micro_batch;
}

/* Seconds an update of the fastest plan takes; 0: none fits. */
static double fastest(JobSpec s, const JobSetup *j) {
    Search *f = MEM_NEW(Search, 1);
    bool fits = job_search(f, &s, &j->machine, &j->host, setup_freedom(j->o), j->limits);
    double seconds = fits ? f->fit.trial[f->fit.best].c.seconds : 0;
    search_free(f);
    mem_free(f);
    return seconds;
}

/* A library attends to rows of one sample each alone. Whether that is worth a row a sample is for the plans to say. */
static bool is_faster_unpacked(const JobSetup *j) {
    JobSpec packed = j->spec, alone = j->spec;
    set_rows(&packed, &j->rows, j->global_batch);
    set_rows(&alone, NULL, j->global_batch);
    packed.attend = ATTEND_OWN;
    alone.attend = ATTEND_FAST;
    double with = fastest(packed, j), without = fastest(alone, j), tokens = j->rows.mean_tokens;
    bool takes_alone = without > 0 && (with <= 0 || without < with);
    if (with > 0 && without > 0)
        log_line("--pack %s, predicted %s tokens/s; %s (--pack %s): %s", takes_alone ? "off" : "update",
                 units_count((int64_t)(tokens / MIN2(with, without))).s,
                 takes_alone ? "packed among themselves, with snug's own attention"
                             : "a row each, with the library's attention",
                 takes_alone ? "update" : "off", units_count((int64_t)(tokens / MAX2(with, without))).s);
    return takes_alone;
}

bool setup_packing(JobSetup *j, Err *e) {
    const Options *o = j->o;
    JobSpec *s = &j->spec;
    UpdateRows *rows = &j->rows;
    update_rows_free(rows);
    if (dataset_packs_updates(j->data)) {
        update_rows_count(rows, j->data, j->global_batch, setup_updates(o, j->data, j->global_batch));
        log_line("an update of %s samples: %.1f rows of %s tokens on average, %lld at most, %.0f %% filled",
                 units_count(j->global_batch).s, rows->mean_rows, units_count(s->seq).s, (long long)rows->most,
                 100 * rows->fill);
        bool open = opt_is(o, OPT_PACK, "auto") && opt_is(o, OPT_ATTENTION, "auto") && !opt_flag(o, OPT_DETERMINISTIC);
        bool alone = opt_is(o, OPT_PACK, "auto") && opt_is(o, OPT_ATTENTION, "cudnn");
        if (j->machine.kind == MACHINE_CUDA && s->m.activations != FMT_F32 && open) alone = is_faster_unpacked(j);
        if (alone) {
            dataset_pack_updates(j->data, false);
            if (j->held_out && dataset_packs_updates(j->held_out)) dataset_pack_updates(j->held_out, false);
        }
    }
    set_rows(s, dataset_packs_updates(j->data) ? rows : NULL, j->global_batch);
    bool packed = dataset_is_packed(j->data) || (j->held_out && dataset_is_packed(j->held_out));
    return setup_attention(s, o, packed, e);
}
