// Leaks ten blocks of 1000 bytes every 20 ms, ROUNDS times. Its ground truth: `count leak <bytes>`.
// usage: alloc_leak ROUNDS
#include "truth.h"

static void *volatile kept;

NOINLINE void leak(void) {
    for (int i = 0; i < 10; i++) {
        void **block = malloc(1000);
        if (!block) abort();
        *block = kept;
        kept = block;
    }
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (int i = 0; i < rounds; i++) {
        leak();
        usleep(20000);
    }
    truth_count("leak", rounds * 10000);
    return 0;
}
