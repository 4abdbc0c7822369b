/* test_ladder.c - the tables of docs/amr.md about a 7B model in 24 GB are what snug plan says, line by line. */
#include <stdlib.h>

#include "base/mem.h"
#include "tests/amr/command.h"

enum { COLUMNS = 6 };

/* "| `--seq 1024` | 15,231 | ... |" as its cells, without blanks and backquotes around them; false: another line. */
static bool take_cells(char *line, char *cell[COLUMNS]) {
    int n = 0;
    for (char *at = line; n < COLUMNS && (at = strchr(at, '|')); n++) {
        cell[n] = at + 1 + strspn(at + 1, " `");
        char *end = strchr(at + 1, '|');
        if (!end) return false;
        at = end;
        *end = 0;
        for (char *last = end; last > cell[n] && (last[-1] == ' ' || last[-1] == '`'); last--) last[-1] = 0;
        *end = '|';
    }
    return n == COLUMNS;
}

static int64_t bytes_of(const char *text) {
    int64_t n = 0;
    for (; *text; text++)
        if (*text >= '0' && *text <= '9') n = 10 * n + (*text - '0');
    return n;
}

static void expect_plan(const char *options, int64_t process_bytes) {
    Ran r = snug_run("plan --config recipes/amr-lora-7b-24gb.yaml --gpu rtx-3090 %s --json", options);
    json_t *j = ran_json(&r);
    int64_t planned = number(json_object_get(json_object_get(j, "pools"), "device"), "process_planned_bytes");
    if (!EXPECT(r.code == 0 && planned == process_bytes))
        test_note("    %s: %lld, the page says %lld", options, (long long)planned, (long long)process_bytes);
    json_decref(j);
    ran_free(&r);
}

TEST(the_pages_ladder_is_what_the_planner_says) {
    Str page = {0};
    Err e;
    int rows = 0;
    EXPECT_OK(file_read("docs/amr.md", &page, 0, &e));
    for (char *line = strtok(page.data, "\n"); line; line = strtok(NULL, "\n")) {
        char *cell[COLUMNS];
        if (!strstr(line, "tokens/s |") || !take_cells(line, cell)) continue;
        expect_plan(cell[0][0] == '(' ? "" : cell[0], bytes_of(cell[4]));
        rows++;
    }
    EXPECT(rows == 8);
    str_free(&page);
}
