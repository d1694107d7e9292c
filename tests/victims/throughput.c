// Counts finished units of work until it is terminated; stalls of the recorder would reduce the count.
// usage: throughput CPU_SECONDS [unique]      counts its work; handles and blocks no signal
// "unique": nearly every stack is new, because a random bit selects one of two functions at each level.
#include "truth.h"

static volatile uint64_t sink;
static int64_t budget;

NOINLINE uint64_t leaf(uint64_t n) { return SPIN(n, 2000); }
NOINLINE uint64_t step(uint64_t n, int depth) {
    uint64_t x = depth ? step(n, depth - 1) : leaf(n);
    __asm__ volatile("" : "+r"(x));
    return x + 1;
}

NOINLINE uint64_t zero(uint64_t path, int depth);
NOINLINE uint64_t one(uint64_t path, int depth) {
    uint64_t x = !depth ? leaf(path) : path & 1 ? one(path >> 1, depth - 1) : zero(path >> 1, depth - 1);
    __asm__ volatile("" : "+r"(x));
    return x + 2;
}
NOINLINE uint64_t zero(uint64_t path, int depth) {
    uint64_t x = !depth ? leaf(path) : path & 1 ? one(path >> 1, depth - 1) : zero(path >> 1, depth - 1);
    __asm__ volatile("" : "+r"(x));
    return x + 3;
}

static int unique;

static void *worker(void *arg) {
    int64_t units = 0;
    uint64_t random = (uint64_t)(uintptr_t)arg;
    while (thread_cpu() < budget) {
        for (int i = 0; i < 50; i++, units++) {
            random = SPIN(random + (uint64_t)units, 2);
            sink += unique ? one(random, 40) : step(sink, (int)(units % 38));
        }
    }
    *(int64_t *)arg = units;
    truth_thread("worker");
    return 0;
}

int main(int argc, char **argv) {
    budget = (int64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9);
    unique = argc > 2;
    pthread_t thread[2];
    int64_t units[2];
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], 0, worker, &units[i]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], 0);
    truth_count("units", units[0] + units[1]);
    truth_thread("main");
    printf("done\n");
    return 7;
}
