// Allocates known numbers of bytes at known places, in two threads, and frees all of it but what leak() allocates.
// Its truth: `count <function> <bytes>`, and for the leak `count leaked_blocks <n>`.
// usage: alloc_sites ROUNDS [fork]
#include "truth.h"
#include <malloc.h>
#include <sys/wait.h>

static uint64_t total[8];
#define COUNT(site, bytes) __atomic_fetch_add(&total[site], (uint64_t)(bytes), __ATOMIC_RELAXED)
enum { SMALL, MIXED, LARGE, ZEROED, GROWN, ALIGNED, LEAK, SITES };
static const char *const NAME[SITES] = {"small", "mixed", "large", "zeroed", "grown", "aligned", "leak"};

static void *use(void *p) {
    __asm__ volatile("" : "+r"(p)::"memory");
    if (!p) abort();
    return p;
}

NOINLINE void small(uint64_t n) {
    for (uint64_t i = 0; i < n * 2000; i++) {
        size_t size = 1 + i % 128;
        COUNT(SMALL, size);
        free(use(malloc(size)));
    }
}

NOINLINE void mixed(uint64_t n) {
    for (uint64_t i = 0; i < n * 100; i++) {
        size_t size = i % 10 ? 100 + i % 7 : 12000;
        COUNT(MIXED, size);
        free(use(malloc(size)));
    }
}

NOINLINE void large(uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        size_t size = 50000 + 40000 * (i % 3);
        COUNT(LARGE, size);
        free(use(malloc(size)));
    }
}

NOINLINE void zeroed(uint64_t n) {
    for (uint64_t i = 0; i < n * 100; i++) {
        COUNT(ZEROED, 24 * 50);
        char *p = use(calloc(24, 50));
        for (int k = 0; k < 24 * 50; k += 37)
            if (p[k]) abort();
        free(p);
    }
}

// Every new size is an allocation.
NOINLINE void grown(uint64_t n) {
    char *p = 0;
    for (uint64_t i = 1; i < n * 30; i++) {
        COUNT(GROWN, i * 32);
        p = use(realloc(p, i * 32));
        p[0] = (char)i;
    }
    free(p);
}

NOINLINE void aligned(uint64_t n) {
    for (uint64_t i = 0; i < n * 20; i++) {
        void *p = 0;
        COUNT(ALIGNED, 3000 + 4096 + 1500 + 4000);
        if (posix_memalign(&p, 64, 3000) || (uintptr_t)p % 64) abort();
        free(use(p));
        p = use(aligned_alloc(256, 4096));
        if ((uintptr_t)p % 256) abort();
        free(p);
        p = use(memalign(32, 1500));
        if ((uintptr_t)p % 32) abort();
        free(p);
        p = use(valloc(4000));
        if ((uintptr_t)p % 4096) abort();
        free(p);
    }
}

static void *kept[100000];
static uint64_t kept_count;

NOINLINE void leak(uint64_t n) {
    for (uint64_t i = 0; i < n * 20; i++) {
        COUNT(LEAK, 4000);
        kept[__atomic_fetch_add(&kept_count, 1, __ATOMIC_RELAXED)] = use(malloc(4000));
    }
}

static void *work(void *rounds) {
    uint64_t n = (uint64_t)(intptr_t)rounds;
    small(n), mixed(n), large(n), zeroed(n), grown(n), aligned(n), leak(n);
    return 0;
}

int main(int argc, char **argv) {
    intptr_t rounds = argc > 1 ? atol(argv[1]) : 10;
    pthread_t other;
    pthread_create(&other, 0, work, (void *)rounds);
    work((void *)rounds);
    pthread_join(other, 0);
    if (argc > 2 && !strcmp(argv[2], "fork")) {
        // The child frees its copy of the parent's leak, which is not a free of the parent.
        pid_t child = fork();
        if (!child) {
            for (uint64_t i = 0; i < kept_count; i++) free(kept[i]);
            work((void *)rounds);
            for (int i = 0; i < SITES; i++) truth_count(NAME[i], (int64_t)total[i]);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) abort();
    }
    for (int i = 0; i < SITES; i++) truth_count(NAME[i], (int64_t)total[i]);
    truth_count("leaked_blocks", (int64_t)kept_count);
    return 0;
}
