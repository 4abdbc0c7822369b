/* test_limits.c - under limits on addresses, data, file sizes and of a control group every command ends by itself:
 * it works within them or says which one is in the way. And signals are answered wherever a command is. */
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/units.h"
#include "tests/budget/outside.h"
#include "tests/test.h"
#include "tests/world.h"

/* ---- tables ---- */

typedef struct Table {
    OutsideLimit limit[8];
    int n;
    bool once;        /* a command meets one of the limits, the next command the next one: the quick tests */
    const char *name; /* that a refusal must say */
} Table;

/* A refusal for memory says what is missing or refused, and by which limit. */
static bool is_clear(const Outside *o, const Table *t) {
    const char *err = str_text(&o->err);
    return strstr(err, "snug: ") && (o->code != 3 || strstr(err, t->name));
}

static bool ends_by_itself(void *context, int worker, int at) {
    const Table *t = context;
    const OutsideCommand *c = &outside_command[t->once ? at : at / t->n];
    const OutsideLimit *l = &t->limit[at % t->n];
    char folder[40];
    snprintf(folder, sizeof folder, "limit%d", worker);
    Outside o = outside_run(folder, c->arguments, c->input, l);
    bool ok = !o.signalled && (o.code == 0 || ((o.code == 1 || o.code == 3) && is_clear(&o, t)));
    if (getenv("VERBOSE") || !ok)
        printf("  %-20s %s %8lld MiB: exit %d\n", c->name, t->name, (long long)(l->bytes / MIB), o.code);
    if (!ok) fprintf(stderr, "%s\n", str_text(&o.err));
    outside_free(&o);
    return ok;
}

static void try_all(Table *t, int resource, const int *mib) {
    for (t->n = 0; mib[t->n]; t->n++)
        t->limit[t->n] = (OutsideLimit){.resource = resource, .bytes = mib[t->n] * MIB};
    t->once = test_brief();
    EXPECT(world_share(ends_by_itself, t, outside_commands * (t->once ? 1 : t->n)));
}

static bool can_be_limited(void) {
    if (!test_sanitized()) return true;
    test_skip("the sanitizers map terabytes of addresses");
    return false;
}

TEST(every_command_ends_by_itself_under_any_limit_on_addresses) {
    Table t = {.name = "ulimit -v"};
    static const int mib[] = {64, 128, 256, 400, 1024, 4096, 0};
    if (can_be_limited() && outside_make_all(16)) try_all(&t, RLIMIT_AS, mib);
}

TEST(every_command_ends_by_itself_under_any_limit_on_data) {
    Table t = {.name = "ulimit -d"};
    static const int mib[] = {8, 128, 400, 0};
    if (can_be_limited() && outside_make_all(16)) try_all(&t, RLIMIT_DATA, mib);
}

TEST(every_command_ends_by_itself_under_a_limit_on_file_sizes) {
    Table t = {.name = "ulimit -f"};
    static const int mib[] = {1, 24, 0};
    if (outside_make_all(16)) try_all(&t, RLIMIT_FSIZE, mib);
}

/* A limit that cannot be raised is refused at the start, never met in the middle. */
TEST(every_command_ends_by_itself_under_any_limit_on_the_stack) {
    Table t = {.name = "ulimit -s", .n = 4, .once = test_brief()};
    static const int kib[] = {64, 128, 256, 512};
    for (int i = 0; i < t.n; i++) t.limit[i] = (OutsideLimit){.resource = RLIMIT_STACK, .bytes = kib[i] * 1024};
    if (!can_be_limited() || !outside_make_all(16)) return;
    EXPECT(world_share(ends_by_itself, &t, outside_commands * (t.once ? 1 : t.n)));
    for (int i = 0; i < t.n; i++) {
        Outside o = outside_run("stack", "plan --model ../model --seq 16", NULL, &t.limit[i]);
        const char *err = str_text(&o.err);
        EXPECT(kib[i] < 512 ? o.code == 1 && strstr(err, "Raise that limit, for example: ulimit -s 8192") : !o.code);
        outside_free(&o);
    }
}

/* ---- what a small limit leaves ---- */

TEST(commands_without_products_work_in_little_address_space) {
    if (!can_be_limited() || !outside_make_all(16)) return;
    OutsideLimit l = {.resource = RLIMIT_AS, .bytes = process_program_bytes() + 48 * MIB};
    for (int i = 0; i < outside_commands; i++) {
        const OutsideCommand *c = &outside_command[i];
        if (c->on_device) continue;
        Outside o = outside_run("little", c->arguments, c->input, &l);
        if (!EXPECT(o.code == 0)) test_note("    %s: exit %d\n%s", c->name, o.code, str_text(&o.err));
        outside_free(&o);
    }
}

TEST(a_limit_on_addresses_lowers_the_budget_and_is_named) {
    if (!can_be_limited() || !outside_make(16)) return;
    const char *run =
        "train --model ../large --data ../rows.jsonl --out run --overwrite --seq 16 --steps 1 --threads 1";
    OutsideLimit l = {.resource = RLIMIT_AS, .bytes = GIB};
    Outside o = outside_run("named", run, NULL, &l);
    const char *said = strstr(str_text(&o.err), "no --budget given: ");
    if (!EXPECT(o.code == 0 && said && strstr(said, "ulimit -v is 1.00 GiB"))) test_note("%s", str_text(&o.err));
    outside_free(&o);
    l.bytes = 64 * MIB; /* less than the job */
    o = outside_run("named", run, NULL, &l);
    EXPECT(o.code == 3 && strstr(str_text(&o.err), "ulimit -v is 64.00 MiB") &&
           strstr(str_text(&o.err), "missing"));
    outside_free(&o);
}

TEST(a_checkpoint_that_no_file_may_hold_is_refused_before_the_first_step) {
    if (!outside_make(16)) return;
    OutsideLimit l = {.resource = RLIMIT_FSIZE,
                      .bytes = 20 * MIB}; /* the weights in shards, but not the moments */
    Outside o =
        outside_run("files", "train --model ../large --data ../rows.jsonl --out run --seq 16 --steps 1", NULL, &l);
    if (!EXPECT(o.code == 3 && strstr(str_text(&o.err), "ulimit -f") && !file_exists(world_path("files/run"))))
        test_note("%s", str_text(&o.err));
    outside_free(&o);
    o = outside_run("files", "init --json --model ../large --out whole --dtype bf16", NULL, &l);
    EXPECT(o.code == 0 && file_exists(world_path("files/whole/model.safetensors.index.json")));
    outside_free(&o);
}

/* ---- control groups ---- */

typedef struct Group {
    char folder[700], enter[800];
} Group;

static bool put_in(const char *folder, const char *name, const char *text) {
    char path[900];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r+"); /* the system made it with the folder, or there is no such group */
    if (!f) return false;
    bool ok = fputs(text, f) >= 0;
    return fclose(f) == 0 && ok;
}

/* A group below this process's own, with a limit; false: none can be made here. */
static bool group_make(Group *g, const char *label, const char *mount, const char *limit, const char *bytes) {
    char text[PROCESS_TEXT_BYTES], own[400];
    if (!process_read(text, "/proc/self/cgroup")) return false;
    const char *at = strstr(text, label);
    if (!at) return false;
    at += strlen(label);
    snprintf(own, sizeof own, "%.*s", (int)strcspn(at, "\n"), at);
    snprintf(g->folder, sizeof g->folder, "%s%s/snug-test-%d", mount, strcmp(own, "/") ? own : "", (int)getpid());
    snprintf(g->enter, sizeof g->enter, "%s/cgroup.procs", g->folder);
    if (mkdir(g->folder, 0755)) return false;
    if (put_in(g->folder, limit, bytes)) return true;
    rmdir(g->folder);
    return false;
}

TEST(a_control_groups_limit_lowers_the_budget_and_is_named) {
    Group g;
    const char *name = "memory.max";
    bool made = group_make(&g, "\n0::", "/sys/fs/cgroup", "memory.max", "268435456");
    if (!made) {
        name = "memory.limit_in_bytes";
        made = group_make(&g, ":memory:", "/sys/fs/cgroup/memory", name, "268435456");
    }
    if (!made) {
        test_skip("no control group can be made here");
        return;
    }
    if (!test_sanitized() && outside_make(16)) {
        OutsideLimit l = {.group = g.enter};
        Outside o = outside_run(
            "group", "train --model ../large --data ../rows.jsonl --out run --seq 16 --steps 1", NULL, &l);
        const char *said = strstr(str_text(&o.err), "no --budget given: ");
        if (!EXPECT(o.code == 0 && said && strstr(said, name) && strstr(said, "256.00 MiB")))
            test_note("    exit %d\n%s", o.code, str_text(&o.err));
        outside_free(&o);
        o = outside_run(
            "group",
            "train --model ../large --data ../rows.jsonl --out fp32 --seq 16 --steps 1 --precision fp32 "
            "--micro-batch 64 --recompute none --offload none --head-chunk 0",
            NULL, &l);
        if (!EXPECT(o.code == 3 && strstr(str_text(&o.err), name)))
            test_note("    exit %d\n%s", o.code, str_text(&o.err));
        outside_free(&o);
    }
    rmdir(g.folder);
}

/* ---- signals ---- */

typedef struct Asked {
    const char *name, *arguments;
    const char *leaves; /* a file that must not be there afterwards; NULL: none */
} Asked;

TEST(every_command_answers_the_first_signal) {
    static const Asked asked[] = {
        {"tokenize", "tokenize --tokenizer ../words", NULL}, /* waits for a line */
        {"chat", "chat --model ../tally", NULL},
        {"doctor", "doctor --no-write --device cpu", NULL},
        {"init", "init --model qwen2.5-7b --out big --set num_hidden_layers=2", "big"},
        {"plan", "plan --model qwen2.5-32b --gpu h200 --mode full --global-batch 64 --ladder --batches --cards",
         NULL},
        {"problems", "problems --n 100000000", NULL},
        {"train",
         "train --model ../large --data ../rows.jsonl --out run --seq 16 --steps 1000000 --log-steps 100000",
         NULL},
        {"eval", "eval --model ../large --data ../rows.jsonl --seq 4096 --micro-batch 8", NULL},
    };
    if (!outside_make(16)) return;
    for (int i = 0; i < COUNT_OF(asked); i++) {
        int input, number = i % 2 ? SIGINT : SIGTERM;
        pid_t pid = outside_start("asked", asked[i].arguments, &input);
        EXPECT(world_catches(pid, number)); /* a shell in the background hands on that SIGINT is ignored */
        world_sleep(0.4);
        kill(pid, number);
        Outside o = outside_wait(pid, "asked"); /* a command that ignored it would compute on until it is killed */
        close(input);
        bool ok = o.code == 0 || o.code == 1 || o.code == 128 + number;
        if (!EXPECT(ok)) test_note("    %s: ended with %d\n%s", asked[i].name, o.code, str_text(&o.err));
        if (asked[i].leaves && o.code) EXPECT(!file_exists(world_path("asked/%s", asked[i].leaves)));
        EXPECT(world_temporaries(world_path("asked")) == 0);
        outside_free(&o);
        file_remove_tree(world_path("asked"), NULL);
    }
}
