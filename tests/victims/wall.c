// Threads that wait in different ways and places, and measure the time with their own clocks.
// usage: wall SECONDS
#include "truth.h"
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static int64_t end_ns;
static int64_t interrupted;
static volatile uint64_t sink;

static int64_t wall(void) { return clock_ns(CLOCK_MONOTONIC); }

static void tell(const char *name, const char *what, int64_t ns) {
    char key[64];
    snprintf(key, sizeof key, "%s_%s", name, what);
    truth_count(key, ns);
}

// A thread's life by its own clock.
static int64_t begin(const char *name) {
    pthread_setname_np(pthread_self(), name);
    return wall();
}

static void end(const char *name, int64_t begun) {
    tell(name, "life", wall() - begun);
    truth_thread(name);
}

// Any wait that ends early with EINTR was disturbed.
#define NOT_INTERRUPTED(call) \
    do { \
        errno = 0; \
        if ((long)(call) == -1 && errno == EINTR) __atomic_fetch_add(&interrupted, 1, __ATOMIC_RELAXED); \
    } while (0)

static void doze(int64_t ns) {
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    NOT_INTERRUPTED(nanosleep(&t, 0));
}

NOINLINE void nap_long(void) { doze(300000000); __asm__ volatile(""); }
NOINLINE void nap_a(void) { doze(30000000); __asm__ volatile(""); }
NOINLINE void nap_b(void) { doze(10000000); __asm__ volatile(""); }
NOINLINE void brief_nap(void) { doze(6000000); __asm__ volatile(""); }

static void burn(int64_t ns) {
    int64_t until = thread_cpu() + ns;
    while (thread_cpu() < until) sink += SPIN(sink, 10000);
}

static void *sleeper(void *_) {
    int64_t begun = begin("sleeper");
    while (wall() < end_ns) nap_long();
    end("sleeper", begun);
    return 0;
}

static void *spinner(void *_) {
    int64_t begun = begin("spinner");
    while (wall() < end_ns) burn(5000000);
    end("spinner", begun);
    return 0;
}

static void *halves(void *_) {
    int64_t begun = begin("halves"), naps = 0;
    while (wall() < end_ns) {
        burn(20000000);
        nap_a();
        burn(20000000);
        nap_b();
        naps++;
    }
    // The requested time: a thread that was woken no longer waits there, even before it gets a processor.
    tell("halves", "nap_a", naps * 30000000);
    tell("halves", "nap_b", naps * 10000000);
    end("halves", begun);
    return 0;
}

static void *bursts(void *_) {
    int64_t begun = begin("bursts");
    while (wall() < end_ns) {
        burn(300000);
        NOT_INTERRUPTED(poll(0, 0, 1));
    }
    end("bursts", begun);
    return 0;
}

// One wait of each kind that a signal would interrupt.
static void *waits(void *_) {
    int64_t begun = begin("waits");
    int epoll = epoll_create1(EPOLL_CLOEXEC), pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) abort();
    struct timeval limit = {0, 50000};
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sem_t sem;
    sem_init(&sem, 0, 0);
    while (wall() < end_ns) {
        struct epoll_event event;
        char byte;
        NOT_INTERRUPTED(epoll_wait(epoll, &event, 1, 50));
        NOT_INTERRUPTED(recv(pair[0], &byte, 1, 0));
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += 50000000;
        if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
        NOT_INTERRUPTED(sem_timedwait(&sem, &t));
        fd_set none;
        FD_ZERO(&none);
        struct timeval pause = {0, 50000};
        NOT_INTERRUPTED(select(0, &none, 0, 0, &pause));
    }
    end("waits", begun);
    return 0;
}

// Shorter than an interval: the sum of their lives must be recorded.
static void *brief(void *sum) {
    int64_t begun = begin("brief");
    brief_nap();
    __atomic_fetch_add((int64_t *)sum, wall() - begun, __ATOMIC_RELAXED);
    return 0;
}

int main(int argc, char **argv) {
    int64_t begun = wall();
    end_ns = begun + (int64_t)((argc > 1 ? atof(argv[1]) : 2) * 1e9);
    void *(*run[])(void *) = {sleeper, spinner, halves, bursts, waits};
    enum { THREADS = sizeof run / sizeof *run };
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], 0, run[i], 0);
    static int64_t brief_sum;
    int64_t before = wall();
    for (int i = 0; i < 150; i++) {
        pthread_t one;
        pthread_create(&one, 0, brief, &brief_sum);
        pthread_join(one, 0);
    }
    truth_count("brief_life", brief_sum);
    truth_count("brief_span", wall() - before);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], 0);
    truth_count("interrupted", interrupted);
    end("main", begun);
    return 0;
}
