/* report.h - the results of a job for people: a table for the terminal, rows for a spreadsheet, a page for a browser.
 * */
#ifndef REASON_REPORT_H
#define REASON_REPORT_H

#include "reason/record.h"

/* Accuracy against the reference, quality and scores, after each round. */
void report_table(Str *out, const Tally *t);

void report_csv_head(Str *out, const Rubric *r);
void report_csv_row(Str *out, const Rubric *r, const json_t *record);

/* One self-contained page: head with the summary, one item a problem, tail. facts: {label: text}, in this order. */
void report_html_head(Str *out, const Tally *t, const json_t *facts);
void report_html_item(Str *out, const Rubric *r, const json_t *record);
void report_html_tail(Str *out);

#endif
