// Allocates address space in known ways and amounts. A child continues where its parent's heap ended.
#include "truth.h"
#include <sys/mman.h>
#include <sys/wait.h>

// Equal functions must not be merged.
#define APART NOINLINE __attribute__((no_icf))

enum { PAGE = 4096 };

static void tell(const char *name, int64_t calls, int64_t bytes) {
    char text[64];
    snprintf(text, sizeof text, "%s calls", name);
    truth_count(text, calls);
    snprintf(text, sizeof text, "%s bytes", name);
    truth_count(text, bytes);
}

static void *checked(void *p) {
    if (p == MAP_FAILED) abort();
    return p;
}

APART static void by_brk(intptr_t bytes) { checked(sbrk(bytes)); }
APART static void by_shrinking(intptr_t bytes) { checked(sbrk(-bytes)); }
APART static void in_child(intptr_t bytes) { checked(sbrk(bytes)); }
APART static void *by_mmap(size_t bytes) {
    return checked(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}
APART static void by_file(int fd, size_t bytes) { checked(mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0)); }
APART static void by_mremap(void *p, size_t from, size_t to) { checked(mremap(p, from, to, MREMAP_MAYMOVE)); }

int main(void) {
    by_brk(3 * PAGE);
    by_brk(5 * PAGE);
    by_shrinking(2 * PAGE);
    by_brk(7 * PAGE);
    tell("by_brk", 3, 15 * PAGE);
    // The kernel maps whole pages.
    for (int i = 1; i <= 10; i++) by_mmap((size_t)i * PAGE - 100);
    tell("by_mmap", 10, 55 * PAGE);
    int fd = open("/proc/self/exe", O_RDONLY);
    by_file(fd, 2 * PAGE);
    tell("by_file", 1, 2 * PAGE);
    void *p = checked(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    by_mremap(p, PAGE, 9 * PAGE);
    tell("by_mremap", 1, 8 * PAGE);
    pid_t child = fork();
    if (child == 0) {
        in_child(11 * PAGE);
        tell("in_child", 1, 11 * PAGE);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) abort();
    return 0;
}
