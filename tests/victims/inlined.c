// Two functions inlined into a third, which uses all the time. The marks give the lines.
// usage: inlined SECONDS
#include "truth.h"

static volatile uint64_t sink;

static inline __attribute__((always_inline)) uint64_t innermost(uint64_t x) {
    return SPIN(x, 2000); // LINE innermost
}

static inline __attribute__((always_inline)) uint64_t middle(uint64_t x) {
    return innermost(x) + 1; // LINE middle
}

NOINLINE uint64_t outer(uint64_t x) {
    uint64_t sum = 0;
    for (int i = 0; i < 50; i++)
        sum += middle(x + (uint64_t)i); // LINE outer
    return sum;
}

int main(int argc, char **argv) {
    int64_t until = thread_cpu() + (int64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9);
    while (thread_cpu() < until)
        sink += outer(sink); // LINE main
    truth_thread("main");
    return 0;
}
