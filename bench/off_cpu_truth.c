// The threads of this program are off CPU for known reasons, and measure with their own clocks how long and how often.
// bench/off_cpu_truth.py compares recorders with these measurements.
//   tw_futex  waits in a futex for wk_futex, which sleeps 20 ms in between
//   rd_pipe   reads a pipe to which wr_pipe writes, which sleeps 30 ms in between
//   sleeper   sleeps 50 ms at a time
//   c1        waits for c2, which waits for c3, works 2 ms and wakes c1; c3 sleeps 40 ms and wakes c2
//   parent    waits in vfork for a child that sleeps 40 ms: an uninterruptible wait
//   spin-a, spin-b  take turns on a processor that no other thread of the program uses
//   disk      after the others have ended: reads FILE with O_DIRECT, 64 MiB at a time
// off_cpu_truth SECONDS FILE: starts when it reads a line, ends when it reads another.
// Prints a line per thread: tid, name, state, wall-clock ns around the waiting calls, the same without the CPU time that the thread used, the number of
// voluntary switches, and the number of preemptions.
// A thread has its name only while it measures.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static long seconds;
static const char *file;
static atomic_int futex, to_c1, to_c2;
static int fds[2];

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t thread_cpu(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

struct meter {
    struct rusage use;
    int64_t since, cpu_since, wall, cpu;
};

static void begin(struct meter *m, const char *name) {
    m->wall = m->cpu = 0;
    prctl(PR_SET_NAME, name);
    getrusage(RUSAGE_THREAD, &m->use);
}

static inline void wait_begins(struct meter *m) {
    m->cpu_since = thread_cpu();
    m->since = clock_ns(CLOCK_MONOTONIC);
}

static inline void wait_ends(struct meter *m) {
    m->wall += clock_ns(CLOCK_MONOTONIC) - m->since;
    m->cpu += thread_cpu() - m->cpu_since;
}

static void end(struct meter *m, const char *name, const char *state) {
    struct rusage now;
    getrusage(RUSAGE_THREAD, &now);
    prctl(PR_SET_NAME, "done");
    long gave = now.ru_nvcsw - m->use.ru_nvcsw, taken = now.ru_nivcsw - m->use.ru_nivcsw;
    long long wall = m->wall, off = m->wall - m->cpu;
    printf("%ld %s %s %lld %lld %ld %ld\n", syscall(SYS_gettid), name, state, wall, off, gave, taken);
}

NOINLINE static void rest(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
    __asm__ volatile("");
}

NOINLINE static void wait_for(atomic_int *word, int seen) {
    while (atomic_load(word) == seen) syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    __asm__ volatile("");
}

NOINLINE static void hand_over(atomic_int *word) {
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    __asm__ volatile("");
}

NOINLINE static void take(void) {
    char byte;
    if (read(fds[0], &byte, 1) != 1) abort();
}

NOINLINE static void give(void) {
    if (write(fds[1], "x", 1) != 1) abort();
}

// A thread that executes WAITS, which it measures, and then THEN, every PERIOD ms until the program ends.
#define THREAD(name, period, waits, then)                                                                                                  \
    static void *name(void *none) {                                                                                                        \
        struct meter m;                                                                                                                    \
        begin(&m, #name);                                                                                                                  \
        for (int i = 0; i < seconds * 1000 / (period); i++) {                                                                              \
            wait_begins(&m);                                                                                                               \
            waits;                                                                                                                         \
            wait_ends(&m);                                                                                                                 \
            then;                                                                                                                          \
        }                                                                                                                                  \
        end(&m, #name, "S");                                                                                                               \
        return none;                                                                                                                       \
    }

static void work(int64_t ns) {
    int64_t end = clock_ns(CLOCK_MONOTONIC) + ns;
    while (clock_ns(CLOCK_MONOTONIC) < end) {}
}

THREAD(tw_futex, 20, wait_for(&futex, i), )
THREAD(wk_futex, 20, rest(20), hand_over(&futex))
THREAD(rd_pipe, 30, take(), )
THREAD(wr_pipe, 30, rest(30), give())
THREAD(sleeper, 50, rest(50), )
THREAD(c1, 40, wait_for(&to_c1, i), )
THREAD(c2, 40, wait_for(&to_c2, i), (work(2000000), hand_over(&to_c1)))
THREAD(c3, 40, rest(40), hand_over(&to_c2))

static void *parent(void *none) {
    static const struct timespec time = {0, 40000000};
    struct meter m;
    begin(&m, "parent");
    for (volatile int i = 0; i < seconds * 1000 / 40; i = i + 1) {
        wait_begins(&m);
        pid_t child = vfork();
        if (child == 0) {
            nanosleep(&time, NULL);
            _exit(0);
        }
        wait_ends(&m);
        if (child < 0) abort();
    }
    end(&m, "parent", "D");
    return none;
}

// This thread runs alone, because its interrupts would run on the processors of the other threads.
static void *disk(void *none) {
    enum { BYTES = 64 << 20 };
    static char part[BYTES] __attribute__((aligned(4096)));
    int fd = open(file, O_RDONLY | O_DIRECT);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END), at = 0;
    if (size < BYTES) return none;
    struct meter m;
    begin(&m, "disk");
    for (int64_t until = clock_ns(CLOCK_MONOTONIC) + seconds * 1000000000; clock_ns(CLOCK_MONOTONIC) < until; at = (at + BYTES) % size) {
        wait_begins(&m);
        if (pread(fd, part, BYTES, at) != BYTES) abort();
        wait_ends(&m);
    }
    end(&m, "disk", "D");
    return none;
}

// Requests time slices of 100 ms, so that the cost of a switch is small in comparison. Older kernels than Linux 6.12 ignore the request.
static void long_turns(void) {
    struct sched_attr {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {.size = sizeof attr, .runtime = 100000000};
    syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void *spin(void *name) {
    struct meter m;
    long_turns();
    begin(&m, name);
    wait_begins(&m);
    while (clock_ns(CLOCK_MONOTONIC) < m.since + seconds * 1000000000) {}
    wait_ends(&m);
    end(&m, name, "R");
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    seconds = atol(arguments[1]);
    file = arguments[2];
    if (pipe(fds)) return 1;
    // Ended children do not become zombies.
    signal(SIGCHLD, SIG_IGN);
    // The spinning threads get the last processor; the other threads do not use it.
    cpu_set_t others, one;
    sched_getaffinity(0, sizeof others, &others);
    CPU_ZERO(&one);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && !CPU_COUNT(&one); cpu--)
        if (CPU_ISSET(cpu, &others)) CPU_SET(cpu, &one);
    CPU_XOR(&others, &others, &one);
    if (!CPU_COUNT(&others)) others = one;
    pthread_attr_t waits, works;
    pthread_attr_init(&waits);
    pthread_attr_setaffinity_np(&waits, sizeof others, &others);
    pthread_attr_init(&works);
    pthread_attr_setaffinity_np(&works, sizeof one, &one);
    getchar();
    void *(*const bodies[])(void *) = {tw_futex, wk_futex, rd_pipe, wr_pipe, sleeper, c1, c2, c3, parent};
    enum { THREADS = sizeof bodies / sizeof *bodies };
    pthread_t threads[THREADS + 2], reads;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &waits, bodies[i], NULL)) return 1;
    if (pthread_create(&threads[THREADS], &works, spin, "spin-a")) return 1;
    if (pthread_create(&threads[THREADS + 1], &works, spin, "spin-b")) return 1;
    for (int i = 0; i < THREADS + 2; i++) pthread_join(threads[i], NULL);
    if (pthread_create(&reads, &waits, disk, NULL)) return 1;
    pthread_join(reads, NULL);
    printf("done\n");
    fflush(stdout);
    getchar();
    return 0;
}
