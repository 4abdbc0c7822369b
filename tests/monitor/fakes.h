/* fakes.h - libraries that stand for the driver's: tests/preload/fake_nvml.c. */
#ifndef TESTS_MONITOR_FAKES_H
#define TESTS_MONITOR_FAKES_H

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/test.h"

/* The library that stands for the driver's; false after test_skip. */
static inline bool use_nvml(const char *name) {
    const char *folder = getenv("FAKES");
    char path[600], cwd[500] = "";
    if (!getcwd(cwd, sizeof cwd)) cwd[0] = 0;
    snprintf(path, sizeof path, "%s%s%s/%s", folder && *folder == '/' ? "" : cwd,
             folder && *folder == '/' ? "" : "/", folder ? folder : "build/cuda0-debug0", name);
    unsetenv("FAKE_NVML_FAIL");
    unsetenv("FAKE_NVML_PID_FILE");
    setenv("SNUG_NVML", path, 1);
    if (file_exists(path)) return true;
    test_skip("the library that stands for NVML is not built (make test-bins; FAKES=its folder)");
    return false;
}

static inline void use_no_nvml(void) {
    setenv("SNUG_NVML", "/nonexistent/libnvidia-ml.so.1", 1);
}

#endif
