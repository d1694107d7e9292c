// Counts finished units of work until told to stop: what the recorder's stalls would show up in.
// usage: throughput CPU_SECONDS      prints the count; handles nothing, blocks nothing
#include "truth.h"

static volatile uint64_t sink;
static int64_t budget;

NOINLINE uint64_t leaf(uint64_t n) { return SPIN(n, 2000); }
NOINLINE uint64_t step(uint64_t n, int depth) {
    uint64_t x = depth ? step(n, depth - 1) : leaf(n);
    __asm__ volatile("" : "+r"(x));
    return x + 1;
}

static void *worker(void *arg) {
    int64_t units = 0;
    while (thread_cpu() < budget) {
        for (int i = 0; i < 50; i++) sink += step(sink, (int)(units++ % 38));
    }
    *(int64_t *)arg = units;
    truth_thread("worker");
    return 0;
}

int main(int argc, char **argv) {
    budget = (int64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9);
    pthread_t thread[2];
    int64_t units[2];
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], 0, worker, &units[i]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], 0);
    truth_count("units", units[0] + units[1]);
    truth_thread("main");
    printf("done\n");
    return 7;
}
