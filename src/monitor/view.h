/* view.h - a snapshot as people and programs read it: lines for a terminal, JSON, rows of a CSV file, Prometheus
 * text.
 *
 * Lines for a terminal hold marks where a colour begins and ends; nothing else in them is a control character, as
 * names are escaped. view_paint turns marks into the terminal's own, or takes them out. */
#ifndef MONITOR_VIEW_H
#define MONITOR_VIEW_H

#include <jansson.h>

#include "base/str.h"
#include "monitor/snapshot.h"

enum { HISTORY_SAMPLES = 240 };

typedef struct History { /* the last samples of one figure as shares of its whole, oldest first */
    float share[HISTORY_SAMPLES];
    int n;
} History;
void history_add(History *h, double share);

typedef struct Past {
    History host_memory, host_cpu, gpu_memory[NVML_GPUS], gpu_busy[NVML_GPUS];
} Past;
void past_add(Past *p, const Snapshot *s);

/* Marks in lines. */
enum { MARK_GOOD = 1, MARK_WARM = 2, MARK_HOT = 3, MARK_STRONG = 4, MARK_PLAIN = 5, MARK_COUNT = 6 };

typedef struct ViewShape {
    int columns;
    bool utf8; /* sparklines of blocks; otherwise of ASCII */
} ViewShape;

/* past NULL: no history lines. */
void view_text(Str *out, const Snapshot *s, const Past *past, ViewShape shape);
void view_paint(Str *out, const char *text, bool colours);
void view_spark(Str *out, const History *h, int columns, bool utf8);

json_t *view_json(const Snapshot *s); /* gives */

/* The ten columns; without a GPU one row for the host, with GPU_Index -1. */
void view_csv_head(Str *out);
void view_csv_rows(Str *out, const Snapshot *s, double elapsed);

void view_prometheus(Str *out, const Snapshot *s);

#endif
