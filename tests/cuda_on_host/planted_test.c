/* planted_test.c - kernels with a planted fault give an error or wrong numbers on the processor, soon; the one without
 * never does. */
#include "tests/cuda_on_host/planted.h"
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
