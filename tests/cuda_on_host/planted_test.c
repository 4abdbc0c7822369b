/* planted_test.c - kernels with a planted fault give an error or wrong numbers on the processor, soon; the one without
 * never does. */
#include "tests/cuda_on_host/planted.h"

#include <glob.h>

#include "tests/test.h"

enum { N = 512, TRIES = 20 };

/* How many of so many launches were wrong: by their error, or by what they wrote. */
static int wrong_launches(Plant plant, int launches, char error[700]) {
    float from[N], to[N];
    int wrong = 0;
    error[0] = 0;
    for (int i = 0; i < N; i++) from[i] = (float)(i + 1);
    for (int k = 0; k < launches; k++) {
        for (int i = 0; i < N; i++) to[i] = -1;
        planted_launch(NULL, to, from, plant);
        cudaError_t e = cudaGetLastError();
        bool right = e == cudaSuccess;
        if (!right) snprintf(error, 700, "%s", cudaGetErrorString(e));
        for (int i = 0; i < N; i++) right &= to[i] == from[N - 1 - i];
        wrong += !right;
    }
    return wrong;
}

TEST(kernels_on_the_processor_do_what_they_should) {
    char error[700];
    if (!EXPECT(wrong_launches(PLANT_NONE, 5 * TRIES, error) == 0)) test_note("    %s", error);
}

TEST(faults_of_kernels_show_on_the_processor) {
    static const struct {
        Plant plant;
        const char *says; /* NULL: the numbers are wrong */
    } faults[] = {{PLANT_NO_BARRIER, NULL},
                  {PLANT_NO_WARP_BARRIER, NULL},
                  {PLANT_HALF_A_BARRIER, "is reached by thread"},
                  {PLANT_ENDED, "is reached by 96 of 128 threads; 32 have ended"},
                  {PLANT_TWO_BARRIERS, "while others wait at planted.cu"},
                  {PLANT_HALF_A_WARP, "for lanes 0xffffffff"},
                  {PLANT_NOT_IN_MASK, "which its mask 0x0000ffff lacks"},
                  {PLANT_NO_WAIT, NULL},
                  {PLANT_WAITS_FOR_FEWER, NULL},
                  {PLANT_UNWRITTEN, NULL},
                  {PLANT_BEHIND_A_VARIABLE, "behind a variable"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char error[700];
        if (test_sanitized() && faults[i].plant == PLANT_BEHIND_A_VARIABLE) continue; /* it would end the process */
        int wrong = wrong_launches(faults[i].plant, TRIES, error);
        if (!EXPECT(faults[i].says ? wrong == TRIES && strstr(error, faults[i].says) : wrong > 0))
            test_note("    fault %d: %d of %d launches were wrong: %s", faults[i].plant, wrong, TRIES, error);
    }
}

/* ---- which kernels the tests of this binary play ---- */

/* Those of 9.0's matrix units: device.h is a card of 8.0. Of attend_cache.cu the splits that meet in a cluster are left
 * out likewise: they meet in memory. */
static const char *const left_out[] = {"src/backend/cuda/attend_sm90.cu", NULL};
/* Their smallest cases are too large for the quick set. */
static const char *const large[] = {"src/backend/cuda/gathered.cu", "src/backend/cuda/index_tiles.cu", NULL};

static bool stands_in(const char *const *list, const char *file) {
    while (*list && strcmp(*list, file)) list++;
    return *list;
}
static bool is_left_out(const char *file) {
    return stands_in(left_out, file) || (test_brief() && stands_in(large, file));
}

static bool has_a_filter(void) { /* the binary was given words */
    char words[4096];
    FILE *f = fopen("/proc/self/cmdline", "r");
    size_t n = f ? fread(words, 1, sizeof words, f) : 0;
    if (f) fclose(f);
    return !n || strlen(words) + 1 != n;
}

/* The last test of the binary: the others have run. */
TEST(every_file_of_kernels_has_run_on_the_processor) {
    glob_t files;
    if (has_a_filter()) {
        test_skip("only some tests were asked for");
        return;
    }
    EXPECT(!glob("src/backend/cuda/*.cu", 0, NULL, &files) && files.gl_pathc > 30);
    for (size_t i = 0; i < files.gl_pathc; i++)
        if (!EXPECT(host_has_run(files.gl_pathv[i]) != is_left_out(files.gl_pathv[i])))
            test_note("    %s", files.gl_pathv[i]);
    globfree(&files);
}
