/* test_machinefile.c - the machine file: what goes in comes out, other devices stay, wrong files are refused with
 * the place. */
#include "base/file.h"
#include "base/mem.h"
#include "store/machinefile.h"
#include "tests/test.h"

static Machine some_card(const char *name, int64_t bytes) {
    Machine m = {.kind = MACHINE_CUDA,
                 .matrix_flops = 7.25e14,
                 .f32_flops = 5.2e13,
                 .memory_bytes_per_s = 4.1e12,
                 .copy_bytes_per_s = 5.5e10,
                 .disk_bytes_per_s = 2.5e9};
    snprintf(m.name, sizeof m.name, "%s", name);
    snprintf(m.driver, sizeof m.driver, "580.1, CUDA 13.0");
    snprintf(m.library, sizeof m.library, "cublasLt 130100, cc 9.0");
    m.total_bytes[POOL_DEVICE] = bytes;
    m.page_bytes = 2 << 20;
    m.products = (MachineGrid){.n_x = 2, .n_y = 2, .x = {1024, 4096}, .y = {16, 4096}};
    m.attention = (MachineGrid){.n_x = 1, .n_y = 2, .x = {2048}, .y = {64, 128}};
    for (int t = 0; t < MACHINE_TABLES; t++)
        for (int x = 0; x < 2; x++)
            for (int y = 0; y < 2; y++) {
                m.products.rate[t][x][y] = 1e12 * (1 + t + 10 * x + 100 * y);
                if (x < 1 && t < ATTEND_TABLES) m.attention.rate[t][x][y] = 1e12 * (3 + t + y);
            }
    return m;
}

static MachineChoice some_choice(int64_t rows, int n_bytes) {
    MachineChoice c = {.n_bytes = n_bytes};
    for (int i = 0; i < CHOICE_NUMBERS; i++) c.number[i] = rows + i;
    for (int i = 0; i < n_bytes; i++) c.algorithm[i] = (uint8_t)(rows + 37 * i);
    return c;
}

static void write_two(const char *path) {
    Err e = {0};
    MachineFile f = {0};
    Machine a = some_card("card a", 1000), b = some_card("card b", 2000);
    MachineChoice list[] = {some_choice(1024, 64), some_choice(2048, 0)};
    MachineEntry *entry = machinefile_put(&f, &a);
    entry->context_bytes = 500 << 20, entry->code_bytes = 90 << 20;
    EXPECT(machinefile_add_choices(entry, list, 2) == 2);
    EXPECT(machinefile_add_choices(entry, list, 2) == 0); /* known already */
    machinefile_put(&f, &b);
    EXPECT_OK(machinefile_write(&f, path, &e));
    machinefile_free(&f);
}

TEST(a_machine_file_gives_back_what_was_put) {
    Err e = {0};
    MachineFile f;
    bool found;
    char *path = test_path("deep/er/machine.json");
    write_two(path);
    EXPECT_OK(machinefile_read(&f, &found, path, &e));
    EXPECT(found && f.n == 2);
    Machine a = some_card("card a", 1000), other = some_card("card a", 1001);
    MachineEntry *entry = machinefile_find(&f, &a);
    EXPECT(!machinefile_find(&f, &other)); /* another size of memory is another card */
    if (!EXPECT(entry != NULL)) return;
    EXPECT(entry->n_choices == 2 && entry->context_bytes == 500 << 20 && entry->code_bytes == 90 << 20);
    MachineChoice want = some_choice(1024, 64);
    EXPECT(!memcmp(&entry->choice[0], &want, sizeof want) && entry->choice[1].n_bytes == 0);
    EXPECT(!memcmp(&entry->m.products, &a.products, sizeof a.products));
    EXPECT(!memcmp(&entry->m.attention, &a.attention, sizeof a.attention));
    EXPECT_STR(entry->m.driver, a.driver);
    EXPECT(entry->m.f32_flops == a.f32_flops);
    EXPECT(entry->m.copy_bytes_per_s == a.copy_bytes_per_s && entry->m.disk_bytes_per_s == a.disk_bytes_per_s);
    machinefile_free(&f);
}

TEST(measured_rates_replace_assumed_ones_and_fixed_bytes_need_the_same_driver) {
    MachineFile f = {0};
    Machine a = some_card("card a", 1000), here = some_card("card a", 1000);
    MachineEntry *entry = machinefile_put(&f, &a);
    entry->context_bytes = 500 << 20, entry->code_bytes = 90 << 20, entry->graph_bytes = 1;
    here.matrix_flops = 1, here.products.n_x = 0, here.context_bytes = 100 << 20;
    machinefile_apply(entry, &here);
    EXPECT(here.matrix_flops == 7.25e14 && here.products.n_x == 2 && here.context_bytes == 500 << 20 &&
           here.code_bytes == 90 << 20 && here.graph_bytes == 2 << 20);
    EXPECT_STR(here.source, "measured");
    snprintf(here.driver, sizeof here.driver, "another");
    here.context_bytes = 100 << 20, here.code_bytes = 0;
    machinefile_apply(entry, &here);
    EXPECT(here.context_bytes == 100 << 20 && here.code_bytes == 0);
    MachineChoice one = some_choice(7, 64);
    machinefile_add_choices(entry, &one, 1);
    snprintf(a.library, sizeof a.library, "cublasLt 130200, cc 9.0");
    EXPECT(machinefile_put(&f, &a)->n_choices == 0 && f.n == 1); /* algorithms of another library are worthless */
    machinefile_free(&f);
}

TEST(rates_between_the_points_of_a_grid) {
    Machine m = some_card("x", 1);
    const MachineGrid *g = &m.products;
    EXPECT_NEAR(machine_grid_rate(g, 0, 1024, 16), 1e12, 1);
    EXPECT_NEAR(machine_grid_rate(g, 0, 4096, 4096), 111e12, 1);
    EXPECT_NEAR(machine_grid_rate(g, 0, 2048, 256), 56e12, 1e3); /* half way in both logarithms */
    EXPECT_NEAR(machine_grid_rate(g, 2, 1, 1), 3e12, 1);         /* below and above: the ends */
    EXPECT_NEAR(machine_grid_rate(g, 2, 1e9, 1e9), 113e12, 1);
    EXPECT_NEAR(machine_grid_rate(&m.attention, ATTEND_BACKWARD, 500, 128), 5e12, 1);
    EXPECT(machine_grid_rate(&(MachineGrid){0}, 0, 1, 1) == 0);
}

/* The good file with one text replaced. */
static void write_edited(const char *old, const char *new) {
    Str text = {0}, bad = {0};
    Err e = {0};
    write_two(test_path("machine.json"));
    EXPECT_OK(file_read(test_path("machine.json"), &text, 0, &e));
    const char *at = strstr(str_text(&text), old);
    if (EXPECT(at != NULL)) {
        str_add_bytes(&bad, text.data, at - text.data);
        str_add(&bad, new);
        str_add(&bad, at + strlen(old));
        EXPECT_OK(file_write_all(test_path("machine.json"), bad.data, bad.len, &e));
    }
    str_free(&text);
    str_free(&bad);
}

static void expect_refused(const char *old, const char *new, const char *part) {
    Err e = {0};
    MachineFile f;
    bool found;
    write_edited(old, new);
    EXPECT(!machinefile_read(&f, &found, test_path("machine.json"), &e) && e.code == ERR_FAIL);
    if (!EXPECT(strstr(e.text, part) && strstr(e.text, "machine.json")))
        test_note("    '%s' -> '%s': %s", old, new, e.text);
    machinefile_free(&f);
}

TEST(choices_of_another_version_are_left_out_and_the_rates_kept) {
    Err e = {0};
    MachineFile f;
    bool found;
    Machine a = some_card("card a", 1000);
    write_edited("in_place times\"", "in_place\"");
    EXPECT_OK(machinefile_read(&f, &found, test_path("machine.json"), &e));
    const MachineEntry *entry = machinefile_find(&f, &a);
    EXPECT(entry && entry->n_choices == 0 && entry->m.matrix_flops == a.matrix_flops);
    machinefile_free(&f);
}

TEST(wrong_machine_files_are_refused_with_the_place) {
    expect_refused("snug machine 1", "snug machine 9", "snug doctor");
    expect_refused("\"devices\"", "\"devizes\"", "not a machine file");
    expect_refused("1024,", "8192,", "ascending");
    expect_refused("2048\n", "-1\n", "ascending");
    expect_refused("725000000000000.0", "-1.0", "matrix_flops");
    expect_refused("725000000000000.0", "\"fast\"", "matrix_flops");
    expect_refused("524288000", "-1", "context_bytes");
    expect_refused("\"cuda\"", "\"rocm\"", "kind");
    expect_refused("\"card a\"", "17", "name");
    expect_refused("1000000000000.0,", "", "uneven");
    expect_refused("1000000000000.0,", "0,", "not a rate");
    expect_refused("1024 1025", "1024 x", "number 1");
    expect_refused("1024 1025", "1024 1025 7", "number 1");
    expect_refused("\"00254a", "\"0025xy", "number 1");
    expect_refused("\"choice_fields\"", "\"choice_feelds\"", "choice_fields");
    expect_refused("{", "{{", "JSON");
}

TEST(an_absent_machine_file_is_an_empty_one) {
    Err e = {0};
    MachineFile f;
    bool found = true;
    EXPECT_OK(machinefile_read(&f, &found, test_path("none.json"), &e));
    EXPECT(!found && f.n == 0);
    machinefile_free(&f);
}

/* The names of its fields are a file format: what was measured by earlier builds is read with all its choices. */
TEST(a_machine_file_of_an_earlier_build_keeps_its_choices) {
    MachineFile f = {0};
    Err e;
    bool found = false;
    EXPECT_OK(machinefile_read(&f, &found, "bench/machines/h200.json", &e));
    EXPECT(found && f.n == 1 && f.entry[0].n_choices == 24);
    machinefile_free(&f);
}
