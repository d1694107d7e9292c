// Allocates, waits for a file, frees what it allocated, waits for another file, and leaks a little.
// usage: alloc_pause BLOCKS     in its own folder: makes `allocated` and `freed`, waits for `paused` and `go`
#include "truth.h"

static void touch(const char *name) { close(open(name, O_WRONLY | O_CREAT, 0600)); }

static void await(const char *name) {
    for (int i = 0; i < 60000 && access(name, F_OK); i++) usleep(1000);
}

static void **held;

NOINLINE void hold(long n) {
    for (long i = 0; i < n; i++) held[i] = malloc(500);
}

NOINLINE void let_go(long n) {
    for (long i = 0; i < n; i++) free(held[i]);
}

NOINLINE void while_paused(long n) {
    for (long i = 0; i < n; i++) held[i] = malloc(300);
}

NOINLINE void afterwards(long n) {
    // Polls slowly: a command to continue may take a moment to arrive.
    for (long i = 0; i < n; i++) held[i] = malloc(200), usleep(5000);
}

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 100;
    held = calloc((size_t)n, sizeof *held);
    hold(n);
    touch("allocated");
    await("paused");
    let_go(n);
    while_paused(n);
    touch("freed");
    await("go");
    afterwards(n);
    return 0;
}
