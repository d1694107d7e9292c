// Works in a span of flightline.h and, within it, in one of another tracer's library, which it leaves first.
// usage: spans_both LIBRARY MS
#include "truth.h"
#include <dlfcn.h>
#include "flightline.h"

static volatile uint64_t sink;

NOINLINE void in_both(int ms) {
    int64_t end = thread_cpu() + (int64_t)ms * 1000000;
    while (thread_cpu() < end)
        for (int i = 0; i < 5000; i++) sink += (uint64_t)i;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    void (*enter)(uint64_t) = (void (*)(uint64_t))dlsym(library, "writer_enter");
    void (*leave)(void) = (void (*)(void))dlsym(library, "writer_leave");
    uint64_t span = flightline_span_begin("ours");
    if (!span) return 3;
    enter(2);
    in_both(atoi(argv[2]));
    leave();
    return flightline_span_end(span) ? 4 : 0;
}
