/* plan_html.h - the parts of the page that `snug plan --html` writes; seen by plan_html*.c only. */
#ifndef CLI_PLAN_HTML_H
#define CLI_PLAN_HTML_H

#include "base/html.h"
#include "cli/plan_page.h"
#include "cli/plan_picture.h"

/* ---- tables (plan_html_tables.c) ---- */

typedef enum CellKind {
    CELL_TEXT,
    CELL_FLAGS, /* to copy; "": as asked */
    CELL_COUNT,
    CELL_BYTES,
    CELL_SECONDS,
    CELL_SHARE,   /* 0..1 as per cent */
    CELL_TIMES,   /* 1.31: "1.31x" */
    CELL_VERDICT, /* fits, fits with, tight, offloaded, no; or true and false */
    CELL_MATHS,   /* true: it changes the mathematics */
    CELL_CARDS    /* names of cards: the smallest, and all of them on demand */
} CellKind;

typedef struct Column {
    const char *key; /* of a row; "a.b": in an object inside it */
    const char *heading;
    CellKind kind;
    bool bar; /* against the largest of the column; a share against 1 */
} Column;

/* Rows of objects as a table that sorts by a click; columns that no row has are left out. */
void page_table(Str *out, const json_t *rows, const Column *column, int n);
void page_begin_section(Str *out, const char *id, const char *title, const char *about); /* about: NULL for none */
void page_end_section(Str *out);

void page_changes(Str *out, const json_t *changes);
void page_savings(Str *out, const PlanPage *page);
void page_other_tables(Str *out, const json_t *plan); /* ladder, cards, batches, compared, models, slots that fit */
void page_phases(Str *out, const json_t *phases);

/* ---- the rest ---- */

void page_ledger(Str *out, const PlanPage *page); /* plan_html_ledger.c */

/* plan_html_chart.c: the picture with its data; then what of it a table says better. */
void page_chart(Str *out, const PlanPage *page);
void page_chart_tables(Str *out, const PlanPage *page);

extern const char plan_html_style[], plan_html_script[]; /* plan_html_script.c */

#endif
