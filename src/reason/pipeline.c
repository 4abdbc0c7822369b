/* pipeline.c - which prompt follows which reply. */
#include "reason/pipeline.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "reason/answer.h"

static const char *const role_names[ASK_ROLES] = {"solve", "judge", "judge_again", "improve"};

const char *ask_role_name(AskRole role) {
    return role_names[role];
}

void pipeline_ask_free(Ask *a) {
    str_free(&a->text);
}

void pipeline_init(Pipeline *p, const PipelineSpec *spec, const Problems *problems) {
    CHECK(spec->rounds >= 0 && spec->rounds <= ROUNDS_MOST);
    *p = (Pipeline){.spec = *spec, .n = problems->n, .track = MEM_NEW(Track, problems->n + 1)};
    for (int64_t i = 0; i < p->n; i++) {
        Track *t = &p->track[i];
        *t = (Track){.problem = &problems->item[i], .place = problems->first + i, .kept = -1};
        t->version = MEM_NEW(Version, spec->rounds + 1);
    }
}

void pipeline_free(Pipeline *p) {
    for (int64_t i = 0; i < p->n; i++) {
        Track *t = &p->track[i];
        for (int v = 0; v < t->n_versions; v++) {
            mem_free(t->version[v].reasoning);
            mem_free(t->version[v].solution);
            mem_free(t->version[v].evaluation);
        }
        mem_free(t->version);
        mem_free(t->note);
    }
    mem_free(p->track);
    *p = (Pipeline){0};
}

/* ---- quality ---- */

double track_quality(const Track *t) {
    return t->kept < 0 ? (double)NAN : t->version[t->kept].judgement.quality;
}

bool track_good(const Track *t, const Rubric *r) {
    double q = track_quality(t);
    return !isnan(q) && q >= r->threshold;
}

/* The newest version against the one kept so far. */
static void choose(Track *t) {
    int newest = t->n_versions - 1;
    double had = track_quality(t), has = t->version[newest].judgement.quality;
    if (t->kept < 0 || (isnan(had) && !isnan(has)) || has > had)
        t->kept = newest; /* NAN > x and x > NAN are false */
    t->kept_after[newest] = t->kept;
}

/* ---- replies ---- */

static char *taken(Str *s) { /* the text as an owned string; s is empty afterwards */
    char *text = mem_strdup(str_text(s));
    str_clear(s);
    return text;
}

static void add_version(Track *t, const Reply *r) {
    Version *v = &t->version[t->n_versions++];
    const char *reference = t->problem->reference;
    Str text = {0};
    v->judgement.quality = (double)NAN;
    for (int i = 0; i < CRITERIA_MOST; i++) v->judgement.score[i] = (double)NAN;
    answer_strip_marks(&text, r->text);
    v->reasoning = taken(&text);
    answer_find(&text, r->text);
    v->solution = taken(&text);
    v->evaluation = mem_strdup("");
    v->cut = r->cut;
    v->correct = !reference[0] ? CORRECT_UNKNOWN : answer_same(v->solution, reference) ? CORRECT_YES : CORRECT_NO;
    str_free(&text);
}

/* What a judge says to others: without what it thought before. */
static void add_evaluation(Version *v, const char *reply) {
    Str both = {0};
    str_add(&both, v->evaluation);
    if (both.len) str_add(&both, "\n\n");
    answer_strip_thoughts(&both, reply);
    mem_free(v->evaluation);
    v->evaluation = taken(&both);
    str_free(&both);
}

static void finish(Pipeline *p, Track *t) {
    t->done = true;
    p->n_done++;
    while (p->first_open < p->n && p->track[p->first_open].done) p->first_open++;
}

/* The newest version has been judged as far as it goes. */
static void settle(Pipeline *p, Track *t) {
    choose(t);
    t->next = ASK_IMPROVE;
    if (track_good(t, &p->spec.rubric) || t->n_versions > p->spec.rounds) finish(p, t);
}

static void begin(Pipeline *p, Track *t) {
    if (t->begun) return;
    t->begun = true;
    p->n_begun++;
}

void pipeline_take(Pipeline *p, int64_t problem, const Reply *reply) {
    Track *t = &p->track[problem];
    CHECK(!t->done);
    begin(p, t);
    t->asked = false;
    t->when = reply->when;
    t->tokens[t->next] += reply->tokens;
    if (t->next == ASK_SOLVE || t->next == ASK_IMPROVE) {
        add_version(t, reply);
        t->next = ASK_JUDGE;
        return;
    }
    Version *v = &t->version[t->n_versions - 1];
    Judgement said;
    judge_read(&said, &p->spec.rubric, reply->text);
    add_evaluation(v, reply->text);
    bool again = t->next == ASK_JUDGE_AGAIN;
    if (again)
        judge_merge(&v->judgement, &said, &p->spec.rubric);
    else
        v->judgement = said;
    if (!again && said.n_missing)
        t->next = ASK_JUDGE_AGAIN;
    else
        settle(p, t);
}

void pipeline_end(Pipeline *p, int64_t problem, const char *note) {
    Track *t = &p->track[problem];
    CHECK(!t->done);
    begin(p, t);
    t->asked = false;
    t->note = mem_strdup(note);
    if (t->next == ASK_JUDGE || t->next == ASK_JUDGE_AGAIN) choose(t);
    finish(p, t);
}

/* ---- asks ---- */

static int round_of(const Track *t) {
    return t->next == ASK_IMPROVE ? t->n_versions : MAX2(0, t->n_versions - 1);
}

bool pipeline_awaits(const Pipeline *p, int64_t problem, AskRole *role, int *round) {
    const Track *t = &p->track[problem];
    *role = t->next;
    *round = round_of(t);
    return !t->done;
}

static void write_prompt(const Pipeline *p, const Track *t, Str *out) {
    const Rubric *r = &p->spec.rubric;
    const char *problem = t->problem->text;
    const Version *newest = t->n_versions ? &t->version[t->n_versions - 1] : NULL;
    if (t->next == ASK_SOLVE) prompt_solve(out, problem);
    if (t->next == ASK_JUDGE) prompt_judge(out, r, problem, newest->reasoning);
    if (t->next == ASK_JUDGE_AGAIN) prompt_judge_again(out, r, &newest->judgement, problem, newest->reasoning);
    if (t->next != ASK_IMPROVE) return;
    const Version *kept = &t->version[t->kept];
    Str feedback = {0};
    feedback_make(&feedback, r, &kept->judgement, kept->evaluation);
    prompt_improve(out, problem, kept->reasoning, str_text(&feedback));
    str_free(&feedback);
}

static void make_ask(const Pipeline *p, Ask *ask, int64_t problem) {
    const Track *t = &p->track[problem];
    bool judges = t->next == ASK_JUDGE || t->next == ASK_JUDGE_AGAIN;
    ask->problem = problem;
    ask->role = t->next;
    ask->round = round_of(t);
    ask->how = judges ? p->spec.judge : p->spec.solve;
    ask->key =
        rng_fold(rng_fold(rng_fold(p->spec.seed, (uint64_t)t->place), (uint64_t)ask->role), (uint64_t)ask->round);
    str_clear(&ask->text);
    write_prompt(p, t, &ask->text);
}

/* Those that are under way first, so that they end and make room; then a new one, if it may begin. */
bool pipeline_next(Pipeline *p, Ask *ask) {
    int64_t open = p->n_begun - p->n_done, seen = 0, fresh = -1;
    for (int64_t i = p->first_open; i < p->n && (seen < open || fresh < 0); i++) {
        Track *t = &p->track[i];
        if (t->done) continue;
        if (!t->begun && fresh < 0) fresh = i;
        if (!t->begun) continue;
        seen++;
        if (t->asked) continue;
        t->asked = true;
        make_ask(p, ask, i);
        return true;
    }
    if (fresh < 0 || (p->spec.open && open >= p->spec.open)) return false;
    begin(p, &p->track[fresh]);
    p->track[fresh].asked = true;
    make_ask(p, ask, fresh);
    return true;
}
