/* fiber.cpp - the switch itself: by hand on x86-64, because the system's asks the kernel each time; there by the
 * system. Sanitizers are told. */
#include "tests/cuda_on_host/fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined __SANITIZE_ADDRESS__
#define SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef SANITIZED
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

static const uint64_t MARK = 0x5ac4d0e1f3a59687ull; /* in a stack's last word */
static Fiber *left; /* where the switch came from */

void fiber_open(Fiber *f, int n) {
    char *all = (char *)mmap(nullptr, (size_t)n * FIBER_STACK, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) abort();
    for (int i = 0; i < n; i++) {
        char *stack = all + (size_t)i * FIBER_STACK;
        f[i].stack = stack, f[i].bytes = FIBER_STACK;
        memcpy(stack, &MARK, sizeof MARK);
    }
}

bool fiber_fits(const Fiber *f) { return !memcmp(f->stack, &MARK, sizeof MARK); }

static void before_switch(Fiber *from, Fiber *to, bool ends) {
    left = from;
#ifdef SANITIZED
    __sanitizer_start_switch_fiber(ends ? nullptr : &from->shadow, to->stack, to->bytes);
#endif
}

static void after_switch(Fiber *self) {
#ifdef SANITIZED
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(self ? self->shadow : nullptr, &stack, &bytes);
    if (!left->stack) left->stack = (char *)stack, left->bytes = bytes; /* of the system's own */
#endif
}

void fiber_entered() { after_switch(nullptr); }

#if defined __x86_64__
/* Registers that a callee keeps go onto the stack that is left, and come from the other. */
extern "C" void fiber_swap(void **from, void *to);
asm(".text\n.globl fiber_swap\n.type fiber_swap,@function\n"
    "fiber_swap:\n"
    "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
    "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n"
    ".size fiber_swap,.-fiber_swap\n");

void fiber_begin(Fiber *f, void (*entry)()) {
#ifdef SANITIZED
    ASAN_UNPOISON_MEMORY_REGION(f->stack, f->bytes);
#endif
    void **top = (void **)(f->stack + f->bytes) - 8; /* 6 registers, the entry, and where it would return to */
    memset(top, 0, 8 * sizeof *top);
    top[6] = (void *)(uintptr_t)entry;
    f->sp = top;
}

void fiber_switch(Fiber *from, Fiber *to, bool ends) {
    before_switch(from, to, ends);
    fiber_swap(&from->sp, to->sp);
    after_switch(from);
}
#else
void fiber_begin(Fiber *f, void (*entry)()) {
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = f->bytes;
    f->context.uc_link = nullptr;
    makecontext(&f->context, entry, 0);
}

void fiber_switch(Fiber *from, Fiber *to, bool ends) {
    before_switch(from, to, ends);
    swapcontext(&from->context, &to->context);
    after_switch(from);
}
#endif
