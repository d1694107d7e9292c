// Distinguishable allocations, counted in shared memory before and after each one. Whichever process is
// killed, and when, the two numbers determine the allocations that a recording must have.
// usage: crashes FILE THREADS COUNT
// FILE has 64 bytes for each thread: allocations begun, allocations done.
#include "truth.h"
#include <sys/mman.h>

#define FIRST_SIZE 65536

static volatile uint64_t sink;
static volatile uint64_t (*told)[8];
static uint64_t count;

NOINLINE static void *marked(uint64_t thread, uint64_t i) {
    void *block = malloc(FIRST_SIZE + (i << 3 | thread));
    // No tail call to malloc, so that this function is in the stack.
    __asm__ volatile("" ::: "memory");
    return block;
}

static void *worker(void *arg) {
    uint64_t thread = (uint64_t)(uintptr_t)arg;
    for (uint64_t i = 1; i <= count; i++) {
        told[thread][0] = i;
        void *block = marked(thread, i);
        if (!block) abort();
        told[thread][1] = i;
        free(block);
        sink += SPIN(sink, 20000);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    uint64_t threads = strtoull(argv[2], 0, 10);
    count = strtoull(argv[3], 0, 10);
    int fd = open(argv[1], O_RDWR | O_CLOEXEC);
    if (fd < 0 || threads < 1 || threads > 8) return 2;
    told = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (told == MAP_FAILED) return 2;
    pthread_t others[8];
    for (uint64_t t = 1; t < threads; t++) pthread_create(&others[t], 0, worker, (void *)(uintptr_t)t);
    worker(0);
    for (uint64_t t = 1; t < threads; t++) pthread_join(others[t], 0);
    return 23;
}
