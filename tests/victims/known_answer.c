// Several threads, several functions, each spending a fixed part of its thread's CPU time.
// usage: known_answer SECONDS_PER_THREAD
#include "truth.h"

// Rounds per call, about 0.4 ms on average: the cost of the clock reads around it is negligible.
#define ROUNDS(n) about(400000, n)

static volatile uint64_t sink;

// A leaf that two functions share: only the stack distinguishes the callers' shares.
NOINLINE uint64_t shared_leaf(uint64_t seed) { return SPIN(seed * 3, ROUNDS(seed)); }

NOINLINE uint64_t alpha(uint64_t n) { return SPIN(n + 11, ROUNDS(n)) + 1; }
NOINLINE uint64_t beta(uint64_t n) { return SPIN(n + 22, ROUNDS(n)) + 2; }
NOINLINE uint64_t gamma_(uint64_t n) { return SPIN(n + 33, ROUNDS(n)) + 3; }
NOINLINE uint64_t via_left(uint64_t n) { return shared_leaf(n + 44) + 4; }
NOINLINE uint64_t via_right(uint64_t n) { return shared_leaf(n + 55) + 5; }
// Recursion: the share must not be counted once per level.
NOINLINE uint64_t recursive(uint64_t n, int depth) {
    uint64_t x = depth ? recursive(n + 66, depth - 1) : SPIN(n, ROUNDS(n));
    __asm__ volatile("" : "+r"(x));
    return x + 6;
}
NOINLINE uint64_t recursion(uint64_t n) { return recursive(n, 20) + 7; }

static const struct { const char *name; uint64_t (*run)(uint64_t); } FUNCTION[] = {
    {"alpha", alpha}, {"beta", beta}, {"gamma_", gamma_},
    {"via_left", via_left}, {"via_right", via_right}, {"recursion", recursion},
};
enum { FUNCTIONS = sizeof FUNCTION / sizeof *FUNCTION, THREADS = 4 };
// Percentages per thread; the columns are FUNCTION.
static const int PART[THREADS][FUNCTIONS] = {
    {40, 30, 10, 5, 5, 10}, {5, 5, 50, 20, 15, 5}, {0, 10, 0, 30, 40, 20}, {60, 0, 3, 2, 10, 25},
};

static double seconds;
static int64_t total[FUNCTIONS];

static void *worker(void *arg) {
    int me = (int)(intptr_t)arg;
    char name[16];
    snprintf(name, sizeof name, "known-%d", me);
    pthread_setname_np(pthread_self(), name);
    int64_t spent[FUNCTIONS] = {0}, all = 0, goal = (int64_t)(seconds * 1e9);
    while (all < goal) {
        // The function furthest behind its share runs next, so the shares hold at every moment, not only at
        // the end.
        int next = 0;
        double most = -1e300;
        for (int f = 0; f < FUNCTIONS; f++) {
            double behind = PART[me][f] / 100.0 * (double)(all + 1) - (double)spent[f];
            if (PART[me][f] && behind > most) most = behind, next = f;
        }
        int64_t from = thread_cpu();
        sink += FUNCTION[next].run((uint64_t)all);
        int64_t took = thread_cpu() - from;
        spent[next] += took;
        all += took;
    }
    for (int f = 0; f < FUNCTIONS; f++) __atomic_fetch_add(&total[f], spent[f], __ATOMIC_RELAXED);
    truth_thread(name);
    return 0;
}

int main(int argc, char **argv) {
    seconds = argc > 1 ? atof(argv[1]) : 1;
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], 0, worker, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], 0);
    for (int f = 0; f < FUNCTIONS; f++) truth_function(FUNCTION[f].name, total[f]);
    truth_thread("main");
    return 0;
}
