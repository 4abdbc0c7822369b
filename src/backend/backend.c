/* backend.c - the devices there are, by name. */
#include "backend/backend.h"

#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/units.h"
#ifdef HAVE_CUDA
#include "backend/cuda/cuda.h"
#else
static bool cuda_there(void) { return false; }
static bool cuda_open(Backend **b, const char *device, BackendOptions options, Err *e) {
    return fail(e, ERR_USAGE,
                "device: %s: this program was built without CUDA. Build it with make CUDA=1, or use --device cpu",
                device);
}
#endif

bool backend_open(Backend **b, const char *device, BackendOptions options, Err *e) {
    if (!strcmp(device, "auto")) device = cuda_there() ? "cuda" : "cpu";
    if (!strcmp(device, "cpu")) return cpu_open(b, options, e);
    if (!strcmp(device, "cuda") || str_starts(device, "cuda:")) return cuda_open(b, device, options, e);
    return fail(e, ERR_USAGE, "device: '%s' is none of auto, cpu, cuda and cuda:N", device);
}

int backend_lacks(const Backend *b, const Program *p) {
    for (int64_t i = 0; i < p->n_s; i++)
        if (!b->kernels[p->s[i].op]) return (int)i;
    return -1;
}

void backend_holders(Str *out, const DeviceFacts *f) {
    if (!f->n_holders && f->others_bytes > 0)
        str_addf(out, "others hold %s; their process ids are hidden here (a container?)",
                 units_bytes(f->others_bytes).s);
    else if (!f->n_holders)
        str_add(out, "no other process is seen that holds memory");
    for (int i = 0; i < f->n_holders; i++) {
        const DeviceHolder *h = &f->holder[i];
        str_addf(out, "%spid %lld%s%s%s holds %s", i ? "; " : "", (long long)h->pid, h->name[0] ? " (" : "", h->name,
                 h->name[0] ? ")" : "", h->bytes >= 0 ? units_bytes(h->bytes).s : "an unknown part");
    }
}
