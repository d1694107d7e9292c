// Does one kind of work, to measure the cost of an engine: prints ns of CPU time per operation, by the program's own clock.
// usage: engines allocs N | locks N | contended THREADS N | reads N | switches N | idle THREADS SECONDS | spin SECONDS
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static uint64_t state = 88172645463325252ull;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void *volatile kept[256];

static void allocs(long n) {
    for (long i = 0; i < n; i++) {
        uint64_t x = next();
        int at = x & 255;
        free(kept[at]);
        // 16 bytes to 4 KiB; small sizes are more frequent.
        kept[at] = malloc(16 + (x >> 8) % (1ull << (4 + (x >> 40) % 9)));
    }
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long shared;

static void locks(long n) {
    for (long i = 0; i < n; i++) {
        pthread_mutex_lock(&mutex);
        shared++;
        pthread_mutex_unlock(&mutex);
    }
}

static void *locker(void *n) {
    locks((long)n);
    return 0;
}

static void reads(long n) {
    char page[4096];
    int fd = open("/proc/self/exe", O_RDONLY);
    for (long i = 0; i < n; i++)
        if (pread(fd, page, sizeof page, 0) < 0) abort();
    close(fd);
}

static int there[2], back[2];

static void *other(void *unused) {
    char turn;
    while (read(there[0], &turn, 1) == 1 && write(back[1], &turn, 1) == 1) {
    }
    return unused;
}

// Both threads run on one processor: each round trip has two switches.
static void switches(long n) {
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    pthread_t thread;
    if (sched_setaffinity(0, sizeof here, &here) || pipe(there) || pipe(back) || pthread_create(&thread, 0, other, 0)) abort();
    char turn = 0;
    for (long i = 0; i < n / 2; i++)
        if (write(there[1], &turn, 1) != 1 || read(back[0], &turn, 1) != 1) abort();
}

static void *idler(void *never) {
    pthread_mutex_lock(never);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *what = argv[1];
    long n = atol(argv[2]), more = argc > 3 ? atol(argv[3]) : 0;
    double begun = cpu();
    long operations = n;
    if (!strcmp(what, "allocs")) allocs(n);
    else if (!strcmp(what, "locks")) locks(n);
    else if (!strcmp(what, "reads")) reads(n);
    else if (!strcmp(what, "switches")) switches(n);
    else if (!strcmp(what, "contended")) {
        pthread_t threads[64];
        for (int i = 0; i < n && i < 64; i++) pthread_create(&threads[i], 0, locker, (void *)more);
        for (int i = 0; i < n && i < 64; i++) pthread_join(threads[i], 0);
        operations = n * more;
    } else if (!strcmp(what, "idle")) {
        static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER;
        pthread_mutex_lock(&never);
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 64 << 10);
        for (int i = 0; i < n; i++) {
            pthread_t thread;
            pthread_create(&thread, &small, idler, &never);
        }
        sleep(more);
        operations = 1;
    } else if (!strcmp(what, "spin")) {
        while (cpu() - begun < n * 1e9) shared++;
        operations = 1;
    } else return 2;
    printf("%.1f\n", (cpu() - begun) / operations);
    fflush(stdout);
    _exit(0);
}
