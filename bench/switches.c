// Pairs of threads pass a byte back and forth through pipes, each pair on one processor, 20 frames deep. Each round trip has two
// switches and two wake-ups. usage: switches PAIRS SWITCHES [PAUSE]: SWITCHES is the total of all pairs; PAUSE is the number of rounds of a
// loop between switches, which lowers their rate. Prints the number of switches, switches per second, and ns of CPU time per switch.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static long rounds, pause_rounds;
static struct pair { int there[2], back[2]; } pairs[256];

static __attribute__((noinline)) int deep(int depth, int from, int to) {
    char byte = 0;
    int result = 1;
    if (depth > 0) result = deep(depth - 1, from, to) + 1;
    else if (to >= 0) result = (int)write(to, &byte, 1);
    else result = (int)read(from, &byte, 1);
    if (result < 1) abort();
    __asm__ volatile("" : "+r"(result));
    return result;
}

static void work(void) {
    for (volatile long i = 0; i < pause_rounds; i++) {}
}

static void *first(void *p) {
    struct pair *pair = p;
    for (long i = 0; i < rounds; i++) {
        deep(20, -1, pair->there[1]);
        deep(20, pair->back[0], -1);
        work();
    }
    return NULL;
}

static void *second(void *p) {
    struct pair *pair = p;
    for (long i = 0; i < rounds; i++) {
        deep(20, pair->there[0], -1);
        deep(20, -1, pair->back[1]);
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    int n = atoi(arguments[1]);
    if (n < 1 || n > 256) return 2;
    rounds = atol(arguments[2]) / (2 * n);
    pause_rounds = count > 3 ? atol(arguments[3]) : 0;
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    pthread_t threads[512];
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0, cpu = -1; i < n; i++) {
        if (pipe(pairs[i].there) || pipe(pairs[i].back)) abort();
        do cpu = (cpu + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(cpu, &allowed));
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_attr_t pinned;
        pthread_attr_init(&pinned);
        pthread_attr_setaffinity_np(&pinned, sizeof one, &one);
        if (pthread_create(&threads[2 * i], &pinned, first, &pairs[i])) abort();
        if (pthread_create(&threads[2 * i + 1], &pinned, second, &pairs[i])) abort();
    }
    for (int i = 0; i < 2 * n; i++) pthread_join(threads[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &to);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    long switches = used.ru_nvcsw + used.ru_nivcsw;
    printf("%ld %.0f %.1f\n", switches, (double)switches / seconds, cpu * 1e9 / (double)switches);
    return 0;
}
