// Threads that wait in one place for a while and then, all at the same time, in another one for longer.
// usage: wall_moves THREADS SECONDS
#include "truth.h"

static long seconds;
static _Atomic int64_t first_ns, second_ns;

static int64_t sleep_for(int64_t ns) {
    int64_t from = clock_ns(CLOCK_MONOTONIC);
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    while (nanosleep(&t, &t)) truth_count("interrupted", 1);
    return clock_ns(CLOCK_MONOTONIC) - from;
}

NOINLINE static void waits_first(void) { first_ns += sleep_for(1000000000); }
NOINLINE static void waits_second(void) { second_ns += sleep_for(seconds * 1000000000); }

static void *moves(void *arg) {
    waits_first();
    waits_second();
    return arg;
}

int main(int argc, char **argv) {
    enum { MOST = 100 };
    int threads = argc > 1 ? atoi(argv[1]) : 10;
    seconds = argc > 2 ? atol(argv[2]) : 1;
    pthread_t thread[MOST];
    if (threads > MOST) abort();
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, moves, NULL)) abort();
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    truth_count("first_ms", first_ns / 1000000);
    truth_count("second_ms", second_ns / 1000000);
    return 0;
}
