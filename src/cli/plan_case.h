/* plan_case.h - one job as `snug plan` sees it: asked, fitted, planned; and the tables that are made from it. */
#ifndef CLI_PLAN_CASE_H
#define CLI_PLAN_CASE_H

#include <jansson.h>

#include "cli/setup.h"
#include "cli/grpo_setup.h"
#include "train/search.h"

typedef struct PlanCase {
    JobSetup base; /* without data: none, or not readable here */
    JobSpec asked; /* with nothing decided by the planner */
    SearchFreedom free;
    bool has_budget; /* --budget or --max-memory device=: what does not fit is refused */
    int64_t updates, updates_per_epoch; /* of the whole job; 0: not known without data or --steps */
    bool has_grpo;
    struct JudgeSetup *best; /* owns; --save-best */
    GrpoSetup grpo; /* --task grpo: what stands beside the policy */
} PlanCase;

bool plan_case_open(PlanCase *c, const Options *o, Err *e);
void plan_case_close(PlanCase *c);

void plan_add_saving(Str *text, json_t *root, const PlanCase *c); /* what the job will write to --out */
int64_t plan_case_sample_tokens(const PlanCase *c, const JobSpec *s); /* of the longest sample, as s has it */
int64_t plan_case_room(const PlanCase *c); /* the budget, or all that is free on the device */

/* What is expected of a plan whose update takes so long. */
typedef struct Forecast {
    double update_seconds, tokens_per_s;
    double ceiling_share;       /* of the device's rate of products, what must be computed at least */
    double seconds_per_million; /* tokens */
    double job_seconds;         /* 0: the length of the job is not known */
} Forecast;
Forecast plan_forecast(const PlanCase *c, const JobSpec *s, const Machine *m, double update_seconds);

/* Each adds lines for people and a member to the JSON. */
void plan_add_forecast(Str *text, json_t *root, const PlanCase *c);
void plan_add_savings(Str *text, json_t *root, const PlanCase *c);
void plan_add_ladder(Str *text, json_t *root, const PlanCase *c);
void plan_add_batches(Str *text, json_t *root, const PlanCase *c);
void plan_add_cards(Str *text, json_t *root, const PlanCase *c);
bool plan_add_compared(Str *text, json_t *root, const PlanCase *c, Err *e);

/* ---- --task grpo (plan_grpo.c) ---- */
void plan_add_grpo(Str *text, json_t *root, const PlanCase *c);
void plan_grpo_say_update(Str *text, const PlanCase *c); /* how many prompts and answers, and how long */
void plan_add_grpo_cards(Str *text, json_t *root, const PlanCase *c);

/* plan_page.c: what --svg and --html ask for. plan: what --json prints; refusal: why it is refused, or NULL. */
bool plan_case_write(const PlanCase *c, const json_t *plan, const char *refusal, Err *e);

#endif
