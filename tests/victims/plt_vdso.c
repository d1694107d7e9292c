// Uses time in the vDSO, in tiny library functions behind the PLT, and in prologues of tiny functions.
// usage: plt_vdso SECONDS
#include "truth.h"
#include <dlfcn.h>

static volatile uint64_t sink;
static int64_t part;

NOINLINE void clock_loop(void) {
    struct timespec t;
    for (int64_t until = thread_cpu() + part; thread_cpu() < until;)
        for (int i = 0; i < 2000; i++) {
            clock_gettime(CLOCK_MONOTONIC, &t);
            sink += (uint64_t)t.tv_nsec;
        }
}

NOINLINE void memcpy_loop(size_t volatile n) {
    static char a[4096], b[4096];
    for (int64_t until = thread_cpu() + part; thread_cpu() < until;)
        for (int i = 0; i < 5000; i++) {
            memcpy(a, b, n);
            __asm__ volatile("" ::: "memory");
        }
}

NOINLINE void syscall_loop(void) {
    for (int64_t until = thread_cpu() + part; thread_cpu() < until;)
        for (int i = 0; i < 2000; i++) sink += (uint64_t)getppid();
}

NOINLINE uint64_t tiny(uint64_t x) {
    __asm__ volatile("" : "+r"(x));
    return x * 5;
}
NOINLINE uint64_t with_pushes(uint64_t a, uint64_t b) {
    // Uses callee-saved registers, so that pushes and pops are a large part of the work.
    uint64_t x = tiny(a), y = tiny(b), z = tiny(x ^ b), w = tiny(y ^ a);
    return tiny(x + y) + tiny(z + w) + x + y + z + w;
}
NOINLINE void prologue_loop(void) {
    for (int64_t until = thread_cpu() + part; thread_cpu() < until;)
        for (int i = 0; i < 5000; i++) sink += with_pushes(sink, (uint64_t)i);
}

int main(int argc, char **argv) {
    part = (int64_t)((argc > 1 ? atof(argv[1]) : 2) * 1e9 / 4);
    static const struct { const char *name; int kind; } all[] = {
        {"clock_loop", 0}, {"memcpy_loop", 1}, {"syscall_loop", 2}, {"prologue_loop", 3}};
    for (int i = 0; i < 4; i++) {
        int64_t from = thread_cpu();
        if (i == 0) clock_loop();
        if (i == 1) memcpy_loop(40);
        if (i == 2) syscall_loop();
        if (i == 3) prologue_loop();
        truth_function(all[i].name, thread_cpu() - from);
    }
    truth_thread("main");
    return 0;
}
