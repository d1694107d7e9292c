// Spins 40 frames deep on the time-stamp counter and prints its interruptions: gaps above 6 us.
// usage: gap SECONDS
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

#define MOST 200000
static uint64_t gaps[MOST];
static size_t count;

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

__attribute__((noinline)) static int spin(int depth, double seconds, double mhz) {
    if (depth > 0) return spin(depth - 1, seconds, mhz) + 1;
    uint64_t begin = __rdtsc(), before = begin, end = (uint64_t)(seconds * mhz * 1e6), least = (uint64_t)(6 * mhz);
    while (before - begin < end) {
        uint64_t now = __rdtsc();
        if (now - before > least && count < MOST) gaps[count++] = now - before;
        before = now;
    }
    return 0;
}

static double mhz_of_counter(void) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    uint64_t begin = __rdtsc();
    double ns;
    do {
        clock_gettime(CLOCK_MONOTONIC, &b);
        ns = (b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec);
    } while (ns < 2e8);
    return (__rdtsc() - begin) / (ns / 1e3);
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 3, mhz = mhz_of_counter();
    spin(40, seconds, mhz);
    qsort(gaps, count, sizeof gaps[0], by_size);
    if (count == 0) return puts("no gap") < 0;
    printf("%6.0f gaps/s   p10 %5.1f   p50 %5.1f   p90 %5.1f   p99 %5.1f   p99.9 %5.1f   max %5.1f us\n",
           count / seconds, gaps[count / 10] / mhz, gaps[count / 2] / mhz, gaps[count * 9 / 10] / mhz,
           gaps[count * 99 / 100] / mhz, gaps[count * 999 / 1000] / mhz, gaps[count - 1] / mhz);
    return 0;
}
