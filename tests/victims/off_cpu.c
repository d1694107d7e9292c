// Threads that are off CPU for known reasons. Each writes for the time between its two readings: its length
// by the wall clock and by its own CPU clock, and how often the kernel switched it out because it waited
// (voluntary) or was preempted (involuntary). For that time it has a name of its own.
//   sleeper   sleeps
//   waits     waits in a futex for wakes, which sleeps in between
//   reads     reads a pipe that writes writes to, which sleeps in between
//   c1        waits for c2, which waits for c3, works a little and wakes c1; c3 sleeps and wakes c2
//   spin-a, spin-b  work on one processor: they take turns
//   last      sleeps until the process exits, which it does when all others have ended and MS have gone by
// usage: off_cpu [ROUNDS [MS]]
#include "truth.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static int rounds = 40;
static atomic_int futex, to_c1, to_c2;
static int fds[2];

struct meter {
    const char *name;
    struct rusage use;
    int64_t wall, cpu;
};

static void begin(struct meter *m, const char *name) {
    m->name = name;
    prctl(PR_SET_NAME, name);
    m->wall = clock_ns(CLOCK_MONOTONIC);
    m->cpu = thread_cpu();
    getrusage(RUSAGE_THREAD, &m->use);
}

static void end(struct meter *m) {
    struct rusage now;
    getrusage(RUSAGE_THREAD, &now);
    int64_t cpu = thread_cpu(), wall = clock_ns(CLOCK_MONOTONIC);
    prctl(PR_SET_NAME, "done");
    char key[64];
    const char *what[] = {"off", "voluntary", "involuntary"};
    int64_t value[] = {(wall - m->wall) - (cpu - m->cpu), now.ru_nvcsw - m->use.ru_nvcsw, now.ru_nivcsw - m->use.ru_nivcsw};
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "%s %s", m->name, what[i]);
        truth_count(key, value[i]);
    }
}

NOINLINE static void rest(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
    __asm__ volatile("");
}

NOINLINE static void wait_for(atomic_int *word, int seen) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    __asm__ volatile("");
}

NOINLINE static void hand_over(atomic_int *word) {
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    __asm__ volatile("");
}

static void *sleeper(void *none) {
    struct meter m;
    begin(&m, "sleeper");
    for (int i = 0; i < rounds; i++) rest(6);
    end(&m);
    return none;
}

static void *waits(void *none) {
    struct meter m;
    begin(&m, "waits");
    for (int i = 0; i < rounds; i++)
        while (atomic_load(&futex) == i) wait_for(&futex, i);
    end(&m);
    return none;
}

static void *wakes(void *none) {
    struct meter m;
    begin(&m, "wakes");
    for (int i = 0; i < rounds; i++) {
        rest(6);
        hand_over(&futex);
    }
    end(&m);
    return none;
}

NOINLINE static void take(void) {
    char byte;
    if (read(fds[0], &byte, 1) != 1) abort();
}

NOINLINE static void give(void) {
    if (write(fds[1], "x", 1) != 1) abort();
}

static void *reads(void *none) {
    struct meter m;
    begin(&m, "reads");
    for (int i = 0; i < rounds; i++) take();
    end(&m);
    return none;
}

static void *writes(void *none) {
    struct meter m;
    begin(&m, "writes");
    for (int i = 0; i < rounds; i++) {
        rest(6);
        give();
    }
    end(&m);
    return none;
}

static void *c1(void *none) {
    struct meter m;
    begin(&m, "c1");
    for (int i = 0; i < rounds; i++)
        while (atomic_load(&to_c1) == i) wait_for(&to_c1, i);
    end(&m);
    return none;
}

static void *c2(void *none) {
    struct meter m;
    begin(&m, "c2");
    for (int i = 0; i < rounds; i++) {
        while (atomic_load(&to_c2) == i) wait_for(&to_c2, i);
        SPIN(i, 200000);
        hand_over(&to_c1);
    }
    end(&m);
    return none;
}

static void *c3(void *none) {
    struct meter m;
    begin(&m, "c3");
    for (int i = 0; i < rounds; i++) {
        rest(6);
        hand_over(&to_c2);
    }
    end(&m);
    return none;
}

static void *spin(void *name) {
    struct meter m;
    begin(&m, name);
    while (thread_cpu() - m.cpu < 60000000) SPIN(1, 10000);
    end(&m);
    return NULL;
}

static atomic_int tid_of_last;

static void *last(void *none) {
    prctl(PR_SET_NAME, "last");
    atomic_store(&tid_of_last, (int)syscall(SYS_gettid));
    for (;;) rest(1000000);
    return none;
}

int main(int count, char **arguments) {
    if (count > 1) rounds = atoi(arguments[1]);
    // Ends the program even if the test that started it is gone.
    alarm(100);
    if (pipe(fds)) abort();
    void *(*const bodies[])(void *) = {sleeper, waits, wakes, reads, writes, c1, c2, c3};
    enum { THREADS = sizeof bodies / sizeof *bodies };
    pthread_t threads[THREADS + 2], forever;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, bodies[i], NULL)) abort();
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
    pthread_attr_t pinned;
    pthread_attr_init(&pinned);
    pthread_attr_setaffinity_np(&pinned, sizeof one, &one);
    if (pthread_create(&threads[THREADS], &pinned, spin, "spin-a")) abort();
    if (pthread_create(&threads[THREADS + 1], &pinned, spin, "spin-b")) abort();
    if (pthread_create(&forever, NULL, last, NULL)) abort();
    for (int i = 0; i < THREADS + 2; i++) pthread_join(threads[i], NULL);
    while (!atomic_load(&tid_of_last)) rest(1);
    until_asleep(atomic_load(&tid_of_last));
    rest(count > 2 ? atoi(arguments[2]) : 100);
    return 0;
}
