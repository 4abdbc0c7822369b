/* audit.c - what a record of a request must say to follow the one before it. */
#include "unlearn/audit.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

/* all: requests of that command, as the first record has it. */
static bool take_record(Audit *a, int64_t *all, const json_t *record, Err *e) {
    int64_t number = json_integer_value(json_object_get(record, "request")),
            of = json_integer_value(json_object_get(record, "requests"));
    const char *log = json_string_value(json_object_get(record, "log"));
    if (!a->records) *all = of;
    if (number != a->records + 1 || of != *all)
        return fail(e, ERR_FAIL, "is request %" PRId64 " of %" PRId64 ", and request %" PRId64 " was to follow", number,
                    of, a->records + 1);
    snprintf(a->log, sizeof a->log, "%s", log ? log : "");
    a->certified += json_is_true(json_object_get(record, "certified"));
    a->records++;
    return true;
}

static bool take_line(Audit *a, int64_t *all, const char *line, int64_t bytes, Err *e) {
    json_t *record = json_loadb(line, (size_t)bytes, 0, NULL);
    bool ok = chain_check(&a->chain, line, bytes, e) &&
              (json_is_object(record) || fail(e, ERR_FAIL, "is not JSON")) && take_record(a, all, record, e);
    json_decref(record);
    return ok;
}

bool audit_check(Audit *a, const char *path, Err *e) {
    Str text = {0};
    int64_t all = 0;
    bool ok = file_read(path, &text, 0, e);
    *a = (Audit){0};
    for (const char *at = str_text(&text), *end; ok && *at; at = end + 1) {
        end = strchr(at, '\n');
        ok = end ? take_line(a, &all, at, end - at, e) : fail(e, ERR_FAIL, "has no end");
        if (!ok) fail_within(e, "%s:%" PRId64, path, a->records + 1);
        if (!end) break;
    }
    if (ok && (!a->records || a->records < all))
        ok = fail(e, ERR_FAIL, "%s: is cut short: it holds %" PRId64 " of %" PRId64 " records", path, a->records, all);
    str_free(&text);
    return ok;
}
