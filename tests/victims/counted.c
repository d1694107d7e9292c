// Events that the kernel counts for a thread, each caused by a function of its own. The counts are the
// kernel's or plain arithmetic.
// usage: counted ROUNDS
#include "truth.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { PAGES = 200, BLOCKS = 500 };

static struct rusage usage(void) {
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return u;
}

static char *pages(void) {
    char *p = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    madvise(p, PAGES * 4096, MADV_NOHUGEPAGE);
    return p;
}

// Faults in the program.
NOINLINE void touch(volatile char *p) {
    for (int i = 0; i < PAGES; i++) p[i * 4096] = 1;
}

// Faults inside one system call.
NOINLINE void fill(int zero, char *p) {
    if (read(zero, p, PAGES * 4096) != PAGES * 4096) abort();
    __asm__ volatile("" ::: "memory");
}

NOINLINE int nap(void) {
    struct timespec t = {0, 50000};
    int r = nanosleep(&t, 0);
    __asm__ volatile("" ::: "memory");
    return r;
}

NOINLINE void allocate(void **to) {
    for (int i = 0; i < BLOCKS; i++) to[i] = malloc(40);
    __asm__ volatile("" ::: "memory");
}

static int64_t touched, filled, naps, interrupted, allocated;

static void *worker(void *arg) {
    int rounds = (int)(intptr_t)arg, zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    void *block[BLOCKS];
    int64_t own_touched = 0, own_filled = 0, own_naps = 0;
    for (int i = 0; i < rounds; i++) {
        char *p = pages();
        long from = usage().ru_minflt;
        touch(p);
        own_touched += usage().ru_minflt - from;
        munmap(p, PAGES * 4096);
        p = pages();
        from = usage().ru_minflt;
        fill(zero, p);
        own_filled += usage().ru_minflt - from;
        munmap(p, PAGES * 4096);
        allocate(block);
        for (int b = 0; b < BLOCKS; b++) free(block[b]);
        if (i % 4 == 0) {
            from = usage().ru_nvcsw;
            if (nap() != 0) __atomic_fetch_add(&interrupted, 1, __ATOMIC_RELAXED);
            own_naps += usage().ru_nvcsw - from;
        }
    }
    close(zero);
    __atomic_fetch_add(&touched, own_touched, __ATOMIC_RELAXED);
    __atomic_fetch_add(&filled, own_filled, __ATOMIC_RELAXED);
    __atomic_fetch_add(&naps, own_naps, __ATOMIC_RELAXED);
    __atomic_fetch_add(&allocated, (int64_t)rounds * BLOCKS, __ATOMIC_RELAXED);
    truth_thread("counter");
    return 0;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 50;
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], 0, worker, (void *)(intptr_t)rounds);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], 0);
    truth_count("touch", touched);
    truth_count("fill", filled);
    truth_count("nap", naps);
    truth_count("interrupted", interrupted);
    truth_count("allocate", allocated);
    truth_thread("main");
    return 0;
}
