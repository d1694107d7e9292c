// Many threads that are idle for a while.
// usage: wall_idle THREADS SECONDS
#include "truth.h"

static int64_t end_ns;
// A busy machine needs time to start so many.
static _Atomic int64_t idle_ns;

static void *idle(void *_) {
    int64_t from = clock_ns(CLOCK_MONOTONIC);
    struct timespec end = {end_ns / 1000000000, end_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, 0)) truth_count("interrupted", 1);
    idle_ns += clock_ns(CLOCK_MONOTONIC) - from;
    return 0;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 100;
    end_ns = clock_ns(CLOCK_MONOTONIC) + (int64_t)((argc > 2 ? atof(argv[2]) : 1) * 1e9);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_t *thread = malloc((size_t)threads * sizeof *thread);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], &small, idle, 0)) abort();
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
    truth_count("threads", threads);
    truth_count("idle_ms", idle_ns / 1000000);
    return 0;
}
