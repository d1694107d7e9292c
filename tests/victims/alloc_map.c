// Maps known numbers of pages at known places, by direct calls, and unmaps all except for the stated ones.
// Its ground truth: `count <function> <bytes>` mapped there, `count left_<function> <bytes>` never unmapped.
#include "truth.h"
#include <errno.h>
#include <sys/mman.h>

enum { PAGE = 4096, RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

static char *ok(void *p) {
    __asm__ volatile("" : "+r"(p)::"memory");
    if (p == MAP_FAILED) abort();
    return p;
}

NOINLINE int64_t arenas(void) {
    int64_t bytes = 0;
    for (int i = 1; i <= 200; i++) {
        char *p = ok(mmap(0, (size_t)i * PAGE, RW, ANON, -1, 0));
        p[0] = 1, bytes += i * PAGE;
        if (munmap(p, (size_t)i * PAGE)) abort();
    }
    return bytes;
}

// Parts are unmapped one by one; some leave a hole.
NOINLINE int64_t parts(int64_t *left) {
    int64_t bytes = 0;
    for (int i = 0; i < 50; i++) {
        char *p = ok(mmap(0, 10 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        bytes += 10 * PAGE;
        if (munmap(p + 2 * PAGE, 3 * PAGE) || munmap(p, PAGE)) abort();
        if (i % 2) *left += 6 * PAGE;
        else if (munmap(p, 10 * PAGE)) abort();
    }
    return bytes;
}

// Mapped over: the old pages are gone.
NOINLINE int64_t over(int64_t *left) {
    char *p = ok(mmap(0, 64 * PAGE, RW, ANON, -1, 0));
    for (int i = 0; i < 20; i++) ok(mmap(p, 64 * PAGE, RW, ANON | MAP_FIXED, -1, 0));
    *left = 64 * PAGE;
    return 21 * 64 * PAGE;
}

// Grown: moved with its contents, as by realloc.
NOINLINE int64_t grown(void) {
    char *p = ok(mmap(0, PAGE, RW, ANON, -1, 0));
    int64_t bytes = PAGE;
    for (int i = 2; i <= 40; i++) {
        p = ok(mremap(p, (size_t)(i - 1) * PAGE, (size_t)i * PAGE, MREMAP_MAYMOVE));
        p[(i - 1) * PAGE] = 1, bytes += i * PAGE;
    }
    if (ok(mremap(p, 40 * PAGE, PAGE, 0)) != p || munmap(p, PAGE)) abort();
    return bytes;
}

// Moves the end of the data by a size other than pages.
NOINLINE int64_t heap_end(int64_t *left) {
    char *start = sbrk(0);
    for (int i = 0; i < 10; i++) ok(sbrk(1000));
    if (sbrk(-4000) == (void *)-1 || brk(start + 50000) || brk(start + 5000)) abort();
    *left = 5000;
    return 10000 + 44000;
}

// No memory: a reservation, a file, a growing file, and calls that the kernel refuses.
NOINLINE void none_of_it(void) {
    char *p = ok(mmap(0, 1 << 30, PROT_NONE, ANON | MAP_NORESERVE, -1, 0));
    int fd = open("/proc/self/exe", O_RDONLY);
    char *file = ok(mmap(0, PAGE, RW, MAP_PRIVATE, fd, 0));
    file = ok(mremap(file, PAGE, 8 * PAGE, MREMAP_MAYMOVE));
    if (munmap(file, 8 * PAGE) || munmap(p, 1 << 30)) abort();
    errno = 0;
    if (mmap(0, 0, RW, ANON, -1, 0) != MAP_FAILED || errno != EINVAL) abort();
    if (!munmap((void *)1, PAGE) || errno != EINVAL) abort();
    close(fd);
}

int main(void) {
    int64_t left[3] = {0, 0, 0};
    truth_count("arenas", arenas());
    truth_count("parts", parts(&left[0]));
    truth_count("over", over(&left[1]));
    truth_count("grown", grown());
    int64_t end = heap_end(&left[2]);
    none_of_it();
    truth_count("left_parts", left[0]);
    truth_count("left_over", left[1]);
    truth_count("left_heap_end", left[2]);
    truth_count("heap_end", end);
    return 0;
}
