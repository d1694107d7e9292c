// Allocates memory, four MB at a time, and never frees it. At each step it prints its CPU time and the part
// of it for touching new pages. There the kernel may search long for memory, and all overflows of a perf
// event in that time are one signal.
// usage: eats [MB]   at this size it kills itself, as the kernel would
#include "truth.h"
#include <signal.h>

static int64_t touched_ns;

NOINLINE static uint64_t chew(char *p, size_t bytes) {
    int64_t start = (int64_t)thread_cpu();
    for (size_t i = 0; i < bytes; i += 4096) p[i] = 1;
    touched_ns += (int64_t)thread_cpu() - start;
    return SPIN(bytes, 3000000);
}

int main(int argc, char **argv) {
    long most = argc > 1 ? atol(argv[1]) : 1 << 20;
    uint64_t sum = 0;
    for (long mb = 0;; mb += 4) {
        char line[96];
        int n = snprintf(line, sizeof line, "%ld %lld %lld\n", mb, (long long)thread_cpu(), (long long)touched_ns);
        if (write(1, line, (size_t)n) != n || mb >= most) raise(SIGKILL);
        char *p = malloc(4 << 20);
        if (!p) return 1;
        sum += chew(p, 4 << 20);
        __asm__ volatile("" ::"r"(sum));
    }
}
