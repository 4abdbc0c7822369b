/* plan_page.h - what a picture and a page of a plan are made from, whatever its task.
 *
 * A task fills one PlanPage and knows nothing of pages; the page knows nothing of searches. Its tables are the
 * arrays of the JSON that --json prints, so the two cannot disagree. */
#ifndef CLI_PLAN_PAGE_H
#define CLI_PLAN_PAGE_H

#include <jansson.h>

#include "cli/options.h"
#include "plan/plan.h"

typedef struct PlanPage { /* borrows what it does not own */
    const Options *options;
    const char *model;      /* its name: a user's text */
    Str job;                /* owns: "lora, 2 x 2048 tokens x 8" */
    Str flags;              /* owns: the plan as flags */
    json_t *facts;          /* owns: {label: text}, in the order they are shown */
    const json_t *plan;     /* what --json prints */
    const Program *program; /* placed */
    const Machine *machine;
    const Ledger *ledger;
    int64_t process_bytes; /* of the device */
    int64_t room_bytes;    /* what that is compared with */
    const char *room;      /* and what that is: "the budget", "free here now" */
    const char *refusal;   /* why the plan is refused; NULL: it is not */
} PlanPage;

void plan_svg(Str *out, const PlanPage *page);
void plan_html(Str *out, const PlanPage *page);
bool plan_wants_page(const Options *o); /* --html was given: PlanPage.plan must be whole */
/* Writes what --svg and --html ask for, and frees what the page owns. */
bool plan_write_pictures(PlanPage *page, Err *e);

#endif
