/* fiber.h - stacks that take turns on one thread of the system. */
#ifndef TESTS_CUDA_ON_HOST_FIBER_H
#define TESTS_CUDA_ON_HOST_FIBER_H

#include <stddef.h>
#if !defined __x86_64__
#include <ucontext.h>
#endif

struct Fiber {
    char *stack; /* NULL: the system's own */
    size_t bytes;
#if defined __x86_64__
    void *sp;
#else
    ucontext_t context;
#endif
    void *shadow; /* AddressSanitizer's */
};

enum { FIBER_STACK = 256 << 10 };

/* A stack for each of n, in one piece: a process of few mappings is quick to look at. */
void fiber_open(Fiber *f, int n);
bool fiber_fits(const Fiber *f); /* it has not needed more than its stack */
/* It begins with `entry`, which does not return, when it is switched to; what was on its stack is gone. */
void fiber_begin(Fiber *f, void (*entry)());
/* ends: `from` does not go on. */
void fiber_switch(Fiber *from, Fiber *to, bool ends);
/* The first thing an entry calls. */
void fiber_entered();

#endif
