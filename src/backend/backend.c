/* backend.c - which devices there are, by name. */
#include "backend/backend.h"

#include <string.h>

#include "backend/cpu/cpu.h"

typedef struct Device {
    const char *name;
    bool (*open)(Backend **b, BackendOptions options, Err *e);
} Device;

static const Device devices[] = {{"cpu", cpu_open}};

bool backend_open(Backend **b, const char *device, BackendOptions options, Err *e) {
    Str names = {0};
    for (int i = 0; i < COUNT_OF(devices); i++) {
        if (!strcmp(device, devices[i].name)) {
            str_free(&names);
            return devices[i].open(b, options, e);
        }
        str_addf(&names, "%s%s", i ? ", " : "", devices[i].name);
    }
    fail(e, ERR_USAGE, "device: '%s' is not one this program was built for; it has: %s", device, str_text(&names));
    str_free(&names);
    return false;
}

int backend_lacks(const Backend *b, const Program *p) {
    for (int64_t i = 0; i < p->n_s; i++)
        if (!b->kernels[p->s[i].op]) return (int)i;
    return -1;
}
