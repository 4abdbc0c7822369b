/* html.h - pages that stand alone: one file without outside resources, light and dark, readable on a phone and on
 * paper.
 *
 *     html_begin(&out, "title", style_of_this_page);    // ends inside <main>
 *     ... str_add_html for every text that is not ours ...
 *     html_end(&out);
 *
 * What a page shows stands in its markup. Scripts only add to it (sorting, the theme button), and what works with
 * scripts alone is `hidden` until one shows it. */
#ifndef BASE_HTML_H
#define BASE_HTML_H

#include "base/str.h"

/* title: escaped here. style: the page's own rules, after the shared ones; NULL: none. */
void html_begin(Str *out, const char *title, const char *style);
void html_end(Str *out);

void html_in(Str *out, const char *before, const char *text, const char *after); /* the text escaped, the rest not */
void html_text(Str *out, const char *tag, const char *text);   /* <tag>text</tag>, the text escaped */
void html_fact(Str *out, const char *label, const char *text); /* a row of a <dl> */

/* A bar filled to `share` (0..1). kind: "all", or "hi", "mid", "lo" for good, middling, bad. */
void html_bar(Str *out, double share, const char *kind);

/* Flags to copy: lines break between them, and a script gives them a button. */
void html_flags(Str *out, const char *flags);

/* JSON inside the page for scripts: <script type="application/json" id="...">. */
void html_json(Str *out, const char *id, const char *json);

#endif
