// Two threads on one processor pass a byte to and fro, so that each turn is a switch. At the end it prints
// how often the kernel switched them.
// usage: hands_over ROUNDS
#include "truth.h"

#include <sched.h>
#include <sys/resource.h>

static int there[2], back[2];
static long rounds;

NOINLINE static void hand_over(int to, int from) {
    char byte = 0;
    if (write(to, &byte, 1) != 1 || read(from, &byte, 1) != 1) abort();
}

static void *other(void *unused) {
    char byte;
    if (read(there[0], &byte, 1) != 1) abort();
    for (long i = 1; i < rounds; i++) hand_over(back[1], there[0]);
    if (write(back[1], &byte, 1) != 1) abort();
    return unused;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atol(argv[1]) : 10000;
    cpu_set_t one, all;
    if (sched_getaffinity(0, sizeof all, &all)) abort();
    CPU_ZERO(&one);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &one);
            break;
        }
    if (sched_setaffinity(0, sizeof one, &one) || pipe(there) || pipe(back)) abort();
    pthread_t thread;
    if (pthread_create(&thread, NULL, other, NULL)) abort();
    for (long i = 0; i < rounds; i++) hand_over(there[1], back[0]);
    pthread_join(thread, NULL);
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    truth_count("switches", use.ru_nvcsw + use.ru_nivcsw);
    return 0;
}
