/* plan_picture.h - bytes alive at every step as stacked areas, for the picture of --svg and the page of --html. */
#ifndef CLI_PLAN_PICTURE_H
#define CLI_PLAN_PICTURE_H

#include "cli/plan_page.h"
#include "ring/ring.h"

enum { PICTURE_COLUMNS = 370 };

typedef struct Frame { /* where on the drawing the plot lies */
    double x, y, width, height;
} Frame;

typedef struct Picture {
    const PlanPage *page;
    Frame frame;
    Timeline t;
    int columns, *step; /* owns: the step each column shows, its fullest one */
    int64_t beside;     /* bytes beside the arena: context, code, runtime */
    int64_t budget;     /* drawn as a line; 0: none, or so far above that it would only flatten the picture */
    double top;         /* bytes at the upper edge */
} Picture;

typedef struct BandLabel { /* a place inside a class's area that is wide and high enough for its name */
    double step, bytes;
} BandLabel;

void picture_open(Picture *p, const PlanPage *page, Frame frame);
void picture_close(Picture *p);

void picture_areas(Str *out, const Picture *p); /* one <path class="cN"> a class, from the bottom up */
bool picture_label(const Picture *p, int line, BandLabel *label); /* line -1: what stands beside the arena */
const char *picture_line_name(const Picture *p, int line);
int64_t picture_line_bytes(const Picture *p, int line); /* at the peak */
double picture_grid(double top, double *unit); /* distance of grid lines in units of *unit, which is 1 GiB or 1 MiB */
void picture_peak_text(Str *out, const Picture *p);
int64_t picture_phase_peak(const Timeline *t, const Phase *phase); /* bytes alive in it at most */

/* Memory over one step of a job as JSON, for plan.json and those who draw it: {"columns", "beside_bytes", "lines":
 * [{"name", "colour", "bytes": "N N ..."}], "phases": [{"name", "begin", "end", "repeat"}]}: bytes of each class of the
 * ledger, the fullest step of each column; phases in columns. Gives. */
json_t *plan_timeline_json(const Ring *r);

/* The classes of the ledger: their colours and what they are. */
int picture_colour(const char *line);          /* N of "cN" */
const char *picture_meaning(const char *line); /* "": the ledger's own note says it */
void picture_style(Str *out);                  /* ".c0{fill:...}" */

#endif
