// A recursion of a given depth with the work at its end. usage: deep FRAMES SECONDS
#include "truth.h"

static int64_t until;
static volatile uint64_t sink;

NOINLINE uint64_t bottom(void) {
    while (thread_cpu() < until) sink += SPIN(sink, 100000);
    return sink;
}

NOINLINE uint64_t level(int left) {
    // Frames of different sizes, so that one rule does not fit all.
    volatile char pad[16 + (left & 7) * 24];
    pad[0] = (char)left;
    uint64_t x = left ? level(left - 1) : bottom();
    return x + (uint64_t)pad[0];
}

int main(int argc, char **argv) {
    int frames = argc > 1 ? atoi(argv[1]) : 1200;
    until = (int64_t)((argc > 2 ? atof(argv[2]) : 1) * 1e9);
    level(frames - 2); // level() frames + bottom() = frames - 1 + 1
    truth_thread("main");
    return 0;
}
