// Fixed work: THREADS threads, each ROUNDS calls 40 frames deep with arithmetic in the leaf.
// usage: burn THREADS ROUNDS
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

static volatile uint64_t sink;
static long rounds;

__attribute__((noinline)) uint64_t leaf(uint64_t x) {
    x |= 1;
    for (int i = 0; i < 4000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}

__attribute__((noinline)) uint64_t level(uint64_t x, int left) {
    x = left ? level(x, left - 1) : leaf(x);
    __asm__ volatile("" : "+r"(x));
    return x + 1;
}

static void *worker(void *arg) {
    for (long i = 0; i < rounds; i++) sink += level((uint64_t)i, 36);
    return arg;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    rounds = argc > 2 ? atol(argv[2]) : 100000;
    pthread_t thread[64];
    for (int i = 0; i < threads && i < 64; i++) pthread_create(&thread[i], 0, worker, 0);
    for (int i = 0; i < threads && i < 64; i++) pthread_join(thread[i], 0);
    return 0;
}
