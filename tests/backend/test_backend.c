/* test_backend.c - the CPU as a device: how it is opened, what its pools hold, what it says about itself. */
#include <stdlib.h>

#include "backend/backend.h"
#include "base/file.h"
#include "base/threads.h"
#include "base/units.h"
#include "tests/test.h"

static Backend *open_cpu(int threads) {
    Backend *b = NULL;
    Err e = {0};
    EXPECT_OK(backend_open(&b, "cpu", (BackendOptions){.threads = threads}, &e));
    return b;
}

TEST(an_unknown_device_is_refused_with_the_names_there_are) {
    Backend *b = NULL;
    Err e = {0};
    EXPECT(!backend_open(&b, "abacus", (BackendOptions){.threads = 0}, &e));
    EXPECT(e.code == ERR_USAGE && strstr(e.text, "abacus") && strstr(e.text, "cpu"));
    EXPECT(!backend_open(&b, "cpu", (BackendOptions){.threads = -3}, &e));
    EXPECT(e.code == ERR_USAGE);
}

TEST(the_cpu_describes_itself) {
    Backend *one = open_cpu(1), *all = open_cpu(0);
    Machine m, n;
    one->describe(one, &m);
    all->describe(all, &n);
    EXPECT(m.kind == MACHINE_CPU && m.threads == 1 && n.threads == threads_available());
    EXPECT(m.total_bytes[POOL_DEVICE] > 64 * MIB && m.free_bytes[POOL_DEVICE] > 0);
    EXPECT(m.free_bytes[POOL_DEVICE] <= m.total_bytes[POOL_DEVICE]);
    EXPECT(m.page_bytes == 4096 && m.align_bytes == 256 && strlen(m.name) > 3);
    EXPECT(m.matrix_flops > 1e9 && m.memory_bytes_per_s > 1e9 && m.runtime_bytes > 0);
    EXPECT_STR(m.source, "estimated");
    EXPECT(n.matrix_flops >= m.matrix_flops * n.threads * 0.99);
    one->close(one);
    all->close(all);
}

static int64_t anonymous_bytes(void) {
    Str text = {0};
    long long kib = 0;
    EXPECT(file_read("/proc/self/status", &text, MIB, NULL));
    const char *line = strstr(str_text(&text), "RssAnon:");
    if (line) sscanf(line, "RssAnon: %lld", &kib);
    str_free(&text);
    return kib * KIB;
}

TEST(a_pool_is_zero_and_resident_and_given_back) {
    enum { ODD = 12345 };
    int64_t size = 48 * MIB + ODD, pages = units_round_up(size, 4096);
    Backend *b = open_cpu(2);
    Err e = {0};
    int64_t before = anonymous_bytes();
    char *pool = b->pool(b, POOL_DEVICE, size, &e);
    EXPECT(pool);
    if (!pool) return;
    EXPECT_NEAR((double)(anonymous_bytes() - before), (double)pages, MIB);
    EXPECT((uintptr_t)pool % 4096 == 0);
    for (int64_t i = 0; i < pages; i += 511) EXPECT(pool[i] == 0);
    pool[size - 1] = 1;
    b->release(b, POOL_DEVICE);
    EXPECT_NEAR((double)(anonymous_bytes() - before), 0, MIB);
    EXPECT(b->pool(b, POOL_DEVICE, 1, &e)); /* a new plan may make it anew; close gives it back */
    EXPECT(b->pool(b, POOL_HOST, 1, &e));
    b->close(b);
}

TEST(a_pool_beyond_the_memory_is_refused) {
    Backend *b = open_cpu(1);
    Err e = {0};
    EXPECT(!b->pool(b, POOL_DEVICE, (int64_t)1 << 50, &e));
    EXPECT(e.code == ERR_BUDGET && strstr(e.text, "device") && strstr(e.text, "--budget"));
    EXPECT(b->pool(b, POOL_DEVICE, 4096, &e)); /* the refusal left nothing behind */
    b->close(b);
}

TEST(copies_have_happened_when_they_return) {
    static const int64_t sizes[] = {0, 1, 4097, 3 * MIB + 5};
    Backend *b = open_cpu(3);
    Err e = {0};
    unsigned char *pool = b->pool(b, POOL_DEVICE, 8 * MIB, &e);
    unsigned char *host = mem_alloc(4 * MIB), *back = mem_alloc(4 * MIB);
    for (int64_t i = 0; i < 4 * MIB; i++) host[i] = (unsigned char)(i * 7 + i / 4096);
    for (int k = 0; pool && k < COUNT_OF(sizes); k++) {
        memset(pool, 0, 8 * MIB);
        b->put(b, pool, host, sizes[k]);
        b->signal(b, QUEUE_COPY_IN, 0);
        b->wait(b, QUEUE_COMPUTE, 0);
        b->copy(b, QUEUE_COPY_IN, pool + 4 * MIB, pool, sizes[k]);
        EXPECT(b->sync(b, &e));
        memset(back, 0xee, 4 * MIB);
        b->get(b, back, pool + 4 * MIB, sizes[k]);
        EXPECT(!memcmp(back, host, (size_t)sizes[k]));
        EXPECT(back[sizes[k]] == 0xee && pool[4 * MIB + sizes[k]] == 0);
    }
    mem_free(host);
    mem_free(back);
    b->close(b);
}

TEST(the_cpu_has_a_kernel_for_every_op) {
    Backend *b = open_cpu(1);
    for (int op = 0; op < OP_COUNT; op++) EXPECT(b->kernels[op]);
    b->close(b);
}

TEST(a_missing_kernel_is_found_before_anything_runs) {
    Program p;
    prog_init(&p);
    Tid x = prog_tensor(&p, "x", ROLE_ACTIVATION, FMT_F32, 2, DIMS(2, 4));
    op_add(&p, "twice", x, x);
    op_swiglu(&p, x);
    Backend *b = open_cpu(1);
    EXPECT(backend_lacks(b, &p) == -1);
    Kernel *some[OP_COUNT] = {0};
    some[OP_ADD] = b->kernels[OP_ADD];
    EXPECT(backend_lacks(&(Backend){.kernels = some}, &p) == 1);
    b->close(b);
    prog_free(&p);
}
