// A module that frees what the program allocated, and the program that opens it. The program waits for a file at its end.
// usage: alloc_direct MODULE FLAGS     FLAGS of dlopen; makes `freed`, waits for `go`
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#ifdef MODULE
void drop(void *block) { free(block); }
void *make(size_t bytes) { return malloc(bytes); }
#else
#include "truth.h"

static void *held[100];

NOINLINE void hold(void) {
    for (int i = 0; i < 100; i++) held[i] = malloc(50000);
}

int main(int argc, char **argv) {
    void *module = argc > 2 ? dlopen(argv[1], atoi(argv[2])) : NULL;
    if (!module) return 2;
    void (*drop)(void *) = dlsym(module, "drop");
    void *(*make)(size_t) = dlsym(module, "make");
    hold();
    for (int i = 0; i < 100; i++) drop(held[i]);
    void *volatile kept = make(70000);
    close(open("freed", O_WRONLY | O_CREAT, 0600));
    for (int i = 0; i < 60000 && access("go", F_OK); i++) usleep(1000);
    return kept == NULL;
}
#endif
