// Two threads pass each other turns of some ten microseconds through pipes; a third one only computes.
// usage: waits_often SECONDS (of CPU time of the first thread, and of the third)
#include "truth.h"

static int there[2], back[2];
static int64_t goal;
static volatile uint64_t sink;

NOINLINE uint64_t long_turn(uint64_t seed) { return SPIN(seed, about(40000, seed)) + 1; }
NOINLINE uint64_t short_turn(uint64_t seed) { return SPIN(seed, about(10000, seed)) + 2; }
NOINLINE uint64_t computing(uint64_t seed) { return SPIN(seed, about(1000000, seed)) + 3; }

NOINLINE int passing(int to, int from) {
    char turn = 1;
    return write(to, &turn, 1) == 1 && read(from, &turn, 1) == 1;
}

static void *other(void *unused) {
    int64_t in_turns = 0, before;
    char turn;
    int more = read(there[0], &turn, 1) == 1;
    while (more) {
        before = thread_cpu();
        sink += short_turn((uint64_t)before);
        in_turns += thread_cpu() - before;
        more = passing(back[1], there[0]);
    }
    truth_function("short_turn", in_turns);
    truth_thread("other");
    return unused;
}

static void *third(void *unused) {
    int64_t in_computing = 0;
    while (in_computing < goal) {
        int64_t before = thread_cpu();
        sink += computing((uint64_t)before);
        in_computing += thread_cpu() - before;
    }
    truth_function("computing", in_computing);
    truth_thread("third");
    return unused;
}

int main(int argc, char **argv) {
    goal = (int64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9);
    pthread_t threads[2];
    if (pipe2(there, O_CLOEXEC) || pipe2(back, O_CLOEXEC)) abort();
    pthread_create(&threads[0], NULL, other, NULL);
    pthread_create(&threads[1], NULL, third, NULL);
    int64_t in_turns = 0;
    while (thread_cpu() < goal) {
        int64_t before = thread_cpu();
        sink += long_turn((uint64_t)before);
        in_turns += thread_cpu() - before;
        if (!passing(there[1], back[0])) abort();
    }
    close(there[1]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    truth_function("long_turn", in_turns);
    truth_thread("main");
    return 0;
}
