/* html.c - what every page has in common: colours of both themes, the style sheet, and the scripts that sort tables,
 * copy code blocks and change the theme. */
#include "base/html.h"

#include <string.h>

/* clang-format off */

static const char light_colours[] =
    "--ink:#1b1f27;--soft:#5d6676;--line:#e3e6ec;--card:#fff;--page:#f6f7f9;--good:#1a7f4f;--bad:#c63d3d;"
    "--mid:#9a6d00;--bar:#dfe3ea;--mark:#2f6fed;";

static const char dark_colours[] =
    "--ink:#e7e9ee;--soft:#98a1b3;--line:#2b303b;--card:#1a1e26;--page:#12151b;--good:#46c98b;--bad:#f07373;"
    "--mid:#e2b554;--bar:#2c323e;--mark:#7aa5ff;";

static const char style[] =
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--ink);font:15px/1.55 system-ui,sans-serif}\n"
    "main{max-width:68rem;margin:0 auto;padding:2rem 1rem 4rem}\n"
    "h1{font-size:1.5rem;margin:0 0 .3rem;overflow-wrap:anywhere}\n"
    "h2{font-size:1.1rem;margin:0 0 .5rem}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;color:var(--soft);font-size:.87rem;"
    "margin:.5rem 0 1.2rem}\n"
    "dt{font-weight:600}\n"
    "dd{margin:0;overflow-wrap:anywhere}\n"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:1rem 1.2rem;"
    "margin-bottom:1rem;overflow-x:auto}\n"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\n"
    "th{color:var(--soft);font-size:.8rem;font-weight:600;text-align:left}\n"
    "th,td{padding:.35rem .8rem .35rem 0;border-bottom:1px solid var(--line)}\n"
    "tbody tr:last-child>*{border-bottom:0}\n"
    "th button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer;text-align:inherit}\n"
    "th[aria-sort=ascending] button::after{content:' \\2191'}\n"
    "th[aria-sort=descending] button::after{content:' \\2193'}\n"
    "th[aria-sort] button:hover,th[aria-sort=ascending],th[aria-sort=descending]{color:var(--ink)}\n"
    ".b{display:inline-block;vertical-align:middle;flex:none;width:4.5rem;height:.5rem;border-radius:4px;"
    "background:var(--bar);overflow:hidden}\n"
    ".b i{display:block;height:100%;background:var(--mark)}\n"
    ".b i.hi{background:var(--good)}\n"
    ".b i.mid{background:var(--mid)}\n"
    ".b i.lo{background:var(--bad)}\n"
    ".tag{font-size:.75rem;font-weight:400;border-radius:99px;padding:.05rem .55rem;"
    "border:1px solid currentColor;white-space:nowrap}\n"
    ".yes{color:var(--good)}\n"
    ".no{color:var(--bad)}\n"
    ".new{color:var(--mark)}\n"
    ".note{color:var(--mid)}\n"
    "pre,code{font:13px/1.5 ui-monospace,monospace;overflow-wrap:anywhere}\n"
    "pre{white-space:pre-wrap;margin:.3rem 0}\n"
    "code.copy span{display:inline-block}\n"
    ".s{color:var(--soft);font-size:.85rem}\n"
    ".push{font:inherit;font-size:.8rem;color:var(--soft);background:var(--card);border:1px solid var(--line);"
    "border-radius:8px;padding:.15rem .6rem;cursor:pointer;white-space:nowrap}\n"
    ".push:hover{color:var(--ink)}\n"
    "#theme{float:right;margin-left:1rem}\n"
    "[hidden]{display:none!important}\n"
    ":focus-visible{outline:2px solid var(--mark);outline-offset:2px}\n"
    "@media print{\n"
    "body{font-size:11px;background:none}\n"
    "main{max-width:none;padding:0}\n"
    ".card{overflow:visible}\n"
    "h2,caption,thead{break-after:avoid}\n"
    "tr{break-inside:avoid}\n"
    ".push{display:none}\n"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}\n";

/* In the head, so that a page opens in the theme it was left in. */
static const char early_script[] =
    "<script>try{const t=localStorage.getItem('snug-theme');if(t)document.documentElement.dataset.theme=t}catch{}"
    "</script>\n";

static const char script[] =
    "<script>\n"
    "'use strict';\n"
    "(()=>{\n"
    "const root=document.documentElement,button=document.getElementById('theme');\n"
    "const system=matchMedia('(prefers-color-scheme:dark)');\n"
    "const isDark=()=>root.dataset.theme?root.dataset.theme==='dark':system.matches;\n"
    "const name=()=>{button.textContent=isDark()?'Light':'Dark'};\n"
    "button.hidden=false;name();system.addEventListener('change',name);\n"
    "button.addEventListener('click',()=>{\n"
    "  root.dataset.theme=isDark()?'light':'dark';name();\n"
    "  try{localStorage.setItem('snug-theme',root.dataset.theme)}catch{}\n"
    "});\n"
    "\n"
    "/* A column sorts by its cells' data-v where they have one, else by their text. Empty cells stay last. */\n"
    "const value=cell=>cell.dataset.v!==undefined?cell.dataset.v:cell.textContent.trim();\n"
    "const compare=(a,b)=>isNaN(a)||isNaN(b)?a.localeCompare(b):a-b;\n"
    "function sort(table,column,th){\n"
    "  const down=th.getAttribute('aria-sort')==='ascending',body=table.tBodies[0];\n"
    "  const rows=[...body.rows].map(row=>({row,v:value(row.cells[column])}));\n"
    "  rows.sort((a,b)=>a.v===''||b.v===''?(a.v==='')-(b.v===''):down?compare(b.v,a.v):compare(a.v,b.v));\n"
    "  for(const other of table.tHead.rows[0].cells)other.setAttribute('aria-sort','none');\n"
    "  th.setAttribute('aria-sort',down?'descending':'ascending');\n"
    "  body.append(...rows.map(r=>r.row));\n"
    "}\n"
    "for(const table of document.querySelectorAll('table.sort')){\n"
    "  [...table.tHead.rows[0].cells].forEach((th,column)=>{\n"
    "    const push=document.createElement('button');\n"
    "    push.textContent=th.textContent;th.textContent='';th.append(push);th.setAttribute('aria-sort','none');\n"
    "    push.addEventListener('click',()=>sort(table,column,th));\n"
    "  });\n"
    "}\n"
    "\n"
    "/* Without the clipboard (a page opened as a file in some browsers) the code is selected instead. */\n"
    "for(const code of document.querySelectorAll('code.copy')){\n"
    "  const push=document.createElement('button');\n"
    "  push.className='push';push.textContent='copy';push.title='copy '+code.textContent;\n"
    "  push.addEventListener('click',async()=>{\n"
    "    try{await navigator.clipboard.writeText(code.textContent);push.textContent='copied'}\n"
    "    catch{getSelection().selectAllChildren(code)}\n"
    "  });\n"
    "  code.after(' ',push);\n"
    "}\n"
    "})();\n"
    "</script>\n";
/* clang-format on */

void html_begin(Str *out, const char *title, const char *own_style) {
    str_add(out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
            "content=\"width=device-width,initial-scale=1\">");
    html_text(out, "title", title);
    str_addf(out, "\n<style>\n:root{color-scheme:light;%s}\n", light_colours);
    /* Twice: for readers whose system is dark, and for those who asked for it. Paper is light. */
    str_addf(
        out,
        "@media screen and (prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;%s}}\n",
        dark_colours);
    str_addf(out, "@media screen{:root[data-theme=dark]{color-scheme:dark;%s}}\n", dark_colours);
    str_add(out, style);
    if (own_style) str_add(out, own_style);
    str_add(out, "</style>\n");
    str_add(out, early_script);
    str_add(out, "</head><body><main>\n<button id=\"theme\" class=\"push\" hidden>Dark</button>\n");
}

void html_end(Str *out) {
    str_add(out, script);
    str_add(out, "</main></body></html>\n");
}

void html_in(Str *out, const char *before, const char *text, const char *after) {
    str_add(out, before);
    str_add_html(out, text);
    str_add(out, after);
}

void html_text(Str *out, const char *tag, const char *text) {
    str_addf(out, "<%s>", tag);
    str_add_html(out, text);
    str_addf(out, "</%s>", tag);
}

void html_fact(Str *out, const char *label, const char *text) {
    html_text(out, "dt", label);
    html_text(out, "dd", text);
}

void html_bar(Str *out, double share, const char *kind) {
    double full = share < 0 ? 0 : share > 1 ? 1 : share;
    str_addf(out, "<span class=\"b\"><i class=\"%s\" style=\"width:%.1f%%\"></i></span>", kind, 100 * full);
}

void html_flags(Str *out, const char *flags) {
    str_add(out, "<code class=\"copy\">");
    while (*flags) {
        const char *next = strstr(flags + 1, " --");
        Str one = {0};
        str_add_bytes(&one, flags, next ? next - flags : (int64_t)strlen(flags));
        html_text(out, "span", str_text(&one));
        str_free(&one);
        if (next) str_add_char(out, ' ');
        flags = next ? next + 1 : "";
    }
    str_add(out, "</code>");
}

/* In JSON '<' stands inside strings only; escaped there, no text can end the script or open a comment. */
void html_json(Str *out, const char *id, const char *json) {
    str_addf(out, "<script type=\"application/json\" id=\"%s\">", id);
    for (const char *at = json; *at; at++) {
        if (*at == '<')
            str_add(out, "\\u003c");
        else
            str_add_char(out, *at);
    }
    str_add(out, "</script>\n");
}
