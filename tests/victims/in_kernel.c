// One function uses its time in the kernel, another in the program, about half each by the thread's own
// clock.
// usage: in_kernel SECONDS
#include "truth.h"

enum { BYTES = 8 << 20, ROUNDS = 1000000 };
static volatile uint64_t sink;

NOINLINE void reading(int zero, char *to, uint64_t seed) {
    for (uint64_t i = 0; i < 4; i++) {
        size_t bytes = about(BYTES / 2, seed + i);
        if (read(zero, to, bytes) != (ssize_t)bytes) abort();
    }
    __asm__ volatile("" ::: "memory");
}

NOINLINE uint64_t spinning(uint64_t seed) { return SPIN(seed, about(ROUNDS, seed)) + 1; }

int main(int argc, char **argv) {
    int64_t goal = (int64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9), in_reading = 0, in_spinning = 0;
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    char *to = malloc(BYTES);
    memset(to, 1, BYTES);
    while (in_reading + in_spinning < goal) {
        int64_t from = thread_cpu();
        if (in_reading <= in_spinning) {
            reading(zero, to, (uint64_t)from);
            in_reading += thread_cpu() - from;
        } else {
            sink += spinning((uint64_t)from);
            in_spinning += thread_cpu() - from;
        }
    }
    truth_function("reading", in_reading);
    truth_function("spinning", in_spinning);
    truth_thread("main");
    return 0;
}
