/* problems_row.c - the layouts of the public sets of math problems, and what a row of each says. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "reason/answer.h"
#include "reason/problems_int.h"

/* ---- the table ---- */

static const Layout table[] = {
    {"gsm8k", "gsm", "question", "answer", "gsm8k (main, train)", "grade-school word problems; the answer follows ####"},
    {"math", "hendrycks-math,competition-math,math500", "problem", "solution", "hendrycks/math (7 subjects, train)",
     "competition problems; the answer is the solution's last box"},
    {"asdiv", "", "body", "answer", "asdiv (train)", "elementary word problems: body and question, answer with its unit"},
    {"aqua", "aqua-rat", "question", "rationale", "aqua_rat (train)", "algebra word problems with five options"},
    {"math_qa", "mathqa", "Problem", "Rationale", "math_qa (train)", "word problems with options in one line"},
    {"numina_math", "numina,numinamath", "problem", "solution", "AI-MO/NuminaMath-1.5 (train)",
     "competition problems of many sources; proofs have no answer to compare with"},
    {"arithmetic", "generated,synthetic", "question", "answer", "snug itself (no file needed)",
     "stories of one to four steps drawn from the seed"},
};

/* What each layout has beyond its two fields; the same order. */
static const RowRule rules[] = {
    {0},
    {.final = "answer"},
    {.more = "question"},
    {.choices = true},
    {.choices = true},
    {.final = "answer"},
    {0},
};
_Static_assert(COUNT_OF(rules) == COUNT_OF(table), "one rule for each layout");

const Layout *layouts(int *n) {
    *n = COUNT_OF(table);
    return table;
}

static bool is_alias(const char *aliases, const char *key) {
    size_t n = strlen(key);
    char word[64];
    while (*aliases) {
        size_t length = strcspn(aliases, ",");
        if (length == n && length < sizeof word) {
            memcpy(word, aliases, length);
            word[length] = 0;
            if (str_same_word(word, key)) return true;
        }
        aliases += length + (aliases[length] == ',');
    }
    return false;
}

const Layout *layout_find(const char *key, Err *e) {
    const char *names[COUNT_OF(table)];
    Str all = {0};
    for (int i = 0; i < COUNT_OF(table); i++) {
        if (str_same_word(table[i].key, key) || is_alias(table[i].aliases, key)) return &table[i];
        names[i] = table[i].key;
    }
    for (int i = 0; i < COUNT_OF(table); i++) str_addf(&all, "%s%s", i ? ", " : "", table[i].key);
    const char *nearest = str_nearest(key, names, COUNT_OF(table));
    if (nearest) fail(e, ERR_USAGE, "no layout of problems is called '%s'. Did you mean %s?", key, nearest);
    else fail(e, ERR_USAGE, "no layout of problems is called '%s'. There are: %s", key, all.data);
    str_free(&all);
    return NULL;
}

/* ---- the first row ---- */

static const json_t *get(const json_t *row, const char *name) {
    const json_t *v = name ? json_object_get(row, name) : NULL;
    return json_is_null(v) ? NULL : v;
}

static bool fail_fields(const json_t *row, const char *what, Err *e) {
    Str has = {0};
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)row, name, v) {
        if (has.len > 300) break;
        str_addf(&has, "%s%.60s", has.len ? ", " : "", name);
    }
    fail(e, ERR_FAIL, "%s (the row has: %s). Name the fields with --problem-field and --answer-field", what, str_text(&has));
    str_free(&has);
    return false;
}

/* The layout that a row has the fields of; NULL: none. */
static const Layout *recognise(const json_t *row) {
    static const char *const sign[][2] = {{"Problem", "options"}, {"question", "options"}, {"body", "question"},
                                          {"problem", "source"}, {"problem", "solution"}, {"problem", "answer"},
                                          {"question", "answer"}};
    static const int layout[] = {4, 3, 2, 5, 1, 1, 0};
    for (int i = 0; i < COUNT_OF(layout); i++)
        if (get(row, sign[i][0]) && get(row, sign[i][1])) return &table[layout[i]];
    return NULL;
}

bool row_rule_settle(RowRule *rule, const ProblemQuery *q, const json_t *row, Err *e) {
    const Layout *l = q->layout ? layout_find(q->layout, e) : recognise(row);
    if (q->layout && !l) return false;
    if (l) {
        *rule = rules[l - table];
        rule->problem = l->problem_field;
        rule->answer = l->answer_field;
    }
    if (q->problem_field) {
        rule->problem = q->problem_field;
        rule->more = NULL;
    }
    if (q->answer_field) {
        rule->answer = rule->final = q->answer_field;
        rule->choices = false;
        if (!get(row, q->answer_field)) return fail_fields(row, "the field that was named for the answer is missing", e);
    }
    if (!rule->problem) return fail_fields(row, "the fields are none that are known", e);
    if (!get(row, rule->problem)) return fail_fields(row, "the field with the problem is missing", e);
    rule->settled = true;
    return true;
}

/* ---- text of a field ---- */

static void add_trimmed(Str *out, const char *text) {
    const char *end = text + strlen(text);
    while (isspace((unsigned char)*text)) text++;
    while (end > text && isspace((unsigned char)end[-1])) end--;
    str_add_bytes(out, text, end - text);
}

/* Text as it is, a number as it is written; nothing else is text. */
static bool add_text(Str *out, const json_t *row, const char *field, Err *e) {
    const json_t *v = get(row, field);
    char *number;
    if (!v) return true;
    if (json_is_string(v)) {
        if (strlen(json_string_value(v)) != json_string_length(v))
            return fail(e, ERR_FAIL, "field '%s' holds a zero byte", field);
        add_trimmed(out, json_string_value(v));
        return true;
    }
    if (!json_is_number(v)) return fail(e, ERR_FAIL, "field '%s' must be text or a number", field);
    number = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    str_add(out, number);
    mem_free(number);
    return true;
}

/* ---- options ---- */

/* "a ) 38 , b ) 27 , ..." in one string: where the letter's text begins, or NULL. */
static const char *find_option(const char *options, char letter) {
    for (const char *p = options; *p; p++) {
        if (tolower((unsigned char)*p) != letter || (p > options && !strchr(" ,[\"'", p[-1]))) continue;
        const char *q = p + 1;
        while (*q == ' ') q++;
        if (*q == ')') return q + 1;
    }
    return NULL;
}

static void add_option_of_line(Str *out, const char *options, char letter) {
    const char *begin = find_option(options, letter), *end = begin ? find_option(begin, (char)(letter + 1)) : NULL;
    if (!begin) return;
    if (!end) {
        end = begin + strlen(begin);
    } else {
        while (end > begin && tolower((unsigned char)*end) != letter + 1) end--; /* back over "b )" */
    }
    while (begin < end && strchr(" '\"", *begin)) begin++;
    while (end > begin && strchr(" ,]'\"", end[-1])) end--;
    str_addf(out, "%c) ", toupper((unsigned char)letter));
    str_add_bytes(out, begin, end - begin);
}

/* "B)21" and "B) 21" become "B) 21". */
static void add_option_of_list(Str *out, const char *option, char letter) {
    if (tolower((unsigned char)option[0]) == letter && (option[1] == ')' || option[1] == '.')) option += 2;
    str_addf(out, "%c) ", toupper((unsigned char)letter));
    add_trimmed(out, option);
}

/* Adds "B) 21"; nothing when there is no such option. */
static void add_option(Str *out, const json_t *options, char letter) {
    if (json_is_string(options)) {
        add_option_of_line(out, json_string_value(options), letter);
    } else {
        const json_t *v = json_array_get(options, (size_t)(letter - 'a'));
        if (json_is_string(v)) add_option_of_list(out, json_string_value(v), letter);
    }
}

static void add_options(Str *text, const json_t *options) {
    Str one = {0};
    for (int letter = 'a'; letter <= 'j'; letter++) {
        str_clear(&one);
        add_option(&one, options, (char)letter);
        if (!one.len) break;
        str_addf(text, "%s\n%s", letter == 'a' ? "\n\nOptions:" : "", one.data);
    }
    str_free(&one);
}

/* ---- the reference ---- */

/* The final answer in a field: what its box or its #### says; else all of a single line, else what its last sentences
 * tell. */
static void add_final(Str *out, const char *text) {
    Str found = {0};
    AnswerFrom from = answer_find(&found, text);
    bool marked = from == ANSWER_BOX || from == ANSWER_HASHES;
    if (marked || strchr(text, '\n')) str_add(out, str_text(&found));
    else add_trimmed(out, text);
    str_free(&found);
}

/* "7 (apples)": the number is compared. */
static void drop_unit(Str *s) {
    char *paren = s->data ? strrchr(s->data, '(') : NULL;
    if (!paren || paren == s->data || !isdigit((unsigned char)s->data[0]) || s->data[s->len - 1] != ')') return;
    while (paren > s->data && paren[-1] == ' ') paren--;
    s->len = paren - s->data;
    *paren = 0;
}

static bool add_reference(Str *out, const RowRule *rule, const json_t *row, Err *e) {
    static const char *const nothing[] = {"proof", "notfound", "n/a"};
    Str field = {0};
    if (rule->choices) {
        const char *letter = json_string_value(get(row, "correct"));
        if (letter && isalpha((unsigned char)letter[0]) && !letter[1]) {
            add_option(out, get(row, "options"), (char)tolower((unsigned char)letter[0]));
            if (!out->len) str_add(out, letter);
            return true;
        }
    }
    const char *name = get(row, rule->final) ? rule->final : rule->answer;
    bool ok = add_text(&field, row, name, e);
    if (ok) add_final(out, str_text(&field));
    for (int i = 0; i < COUNT_OF(nothing); i++)
        if (!strcasecmp(str_text(out), nothing[i])) str_clear(out);
    if (rule->more) drop_unit(out);
    str_free(&field);
    return ok;
}

bool row_to_problem(Problem *out, const RowRule *rule, const json_t *row, Err *e) {
    Str text = {0}, reference = {0};
    bool ok = add_text(&text, row, rule->problem, e);
    if (ok && !text.len) ok = fail(e, ERR_FAIL, "field '%s' with the problem is missing or empty", rule->problem);
    if (ok && rule->more && get(row, rule->more)) {
        str_add_char(&text, ' ');
        ok = add_text(&text, row, rule->more, e);
    }
    if (ok && rule->choices) add_options(&text, get(row, "options"));
    ok = ok && add_reference(&reference, rule, row, e);
    if (ok) *out = (Problem){.text = mem_strdup(text.data), .reference = mem_strdup(str_text(&reference))};
    str_free(&text);
    str_free(&reference);
    return ok;
}
