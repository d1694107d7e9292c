// Calls of slow and fast functions, timed around the call and inside of it: the recorded duration lies
// between the two.
// usage: traced THRESHOLD_NS
#include "truth.h"
#include <csetjmp>
#include <stdexcept>

static int64_t threshold;

struct Sum {
    int64_t calls, ns;
    void add(int64_t took) {
        if (took >= threshold) calls++, ns += took;
    }
};

static Sum around, inside;
static jmp_buf escape;

static int64_t monotonic() { return clock_ns(CLOCK_MONOTONIC); }

static void busy(int64_t ns) {
    int64_t end = monotonic() + ns;
    while (monotonic() < end) {}
}

enum How { RETURN, JUMP, THROW };

extern "C" NOINLINE int64_t work(int64_t ns, How how) {
    int64_t from = monotonic();
    busy(ns);
    if (how == JUMP) longjmp(escape, 1);
    if (how == THROW) throw std::runtime_error("out of work");
    int64_t took = monotonic() - from;
    __asm__ volatile("" ::: "memory");
    return took;
}

static void timed(int64_t ns, int64_t (*call)(int64_t)) {
    int64_t from = monotonic();
    int64_t took = call(ns);
    around.add(monotonic() - from);
    inside.add(took);
}

// Two call sites, and a call in tail position.
extern "C" NOINLINE int64_t from_left(int64_t ns) {
    int64_t took = work(ns, RETURN);
    __asm__ volatile("" ::: "memory");
    return took;
}
extern "C" NOINLINE int64_t from_right(int64_t ns) {
    int64_t took = work(ns, RETURN);
    __asm__ volatile("" ::: "memory");
    return took;
}
extern "C" NOINLINE int64_t by_jump(int64_t ns) { return work(ns, RETURN); }

// Every level is a call of its own; all except for the first return to the same address.
extern "C" NOINLINE int nested(int depth) {
    if (depth > 0) {
        int below = nested(depth - 1);
        __asm__ volatile("" ::: "memory");
        return below + 1;
    }
    busy(2 * threshold);
    return 1;
}

static void *worker(void *) {
    for (int i = 0; i < 30; i++) {
        timed(threshold / 50, from_left);
        timed(2 * threshold, from_right);
        timed(threshold / 50, by_jump);
    }
    timed(3 * threshold, from_left);
    timed(3 * threshold, by_jump);
    // Frames that are left without return: ends of short calls must not be attributed to them.
    for (int i = 0; i < 5; i++) {
        if (!setjmp(escape)) work(threshold / 50, JUMP);
        busy(2 * threshold);
        timed(threshold / 50, from_left);
        try {
            work(threshold / 50, THROW);
        } catch (const std::exception &) {
            busy(2 * threshold);
        }
        timed(threshold / 50, from_right);
    }
    int levels = nested(9);
    truth_count("levels", levels);
    truth_thread("worker");
    return 0;
}

int main(int, char **argv) {
    threshold = atoll(argv[1]);
    pthread_t thread;
    pthread_create(&thread, 0, worker, 0);
    pthread_join(thread, 0);
    truth_count("calls inside", inside.calls);
    truth_count("calls around", around.calls);
    truth_count("ns inside", inside.ns);
    truth_count("ns around", around.ns);
    return 0;
}
