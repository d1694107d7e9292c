// Children that are forked while other threads wait, and that wait themselves: for a mutex and for a pipe,
// for times that they measure.
#include "truth.h"
#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/wait.h>

enum { CHILDREN = 6, ROUNDS = 3, NAP_US = 6000 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t taken = PTHREAD_MUTEX_INITIALIZER;
static int ends[2], quiet[2];
static sem_t held;
static int64_t locked, read_for;

static void nap(void) {
    until_asleep(getpid());
    struct timespec t = {0, NAP_US * 1000};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}

static void *holder(void *arg) {
    pthread_mutex_lock(&mutex);
    sem_post(&held);
    nap();
    pthread_mutex_unlock(&mutex);
    return arg;
}

static void *feeder(void *arg) {
    nap();
    if (write(ends[1], "some", 4) != 4) abort();
    return arg;
}

NOINLINE static void child_lock(void) {
    while (sem_trywait(&held)) sched_yield();
    int64_t from = clock_ns(CLOCK_MONOTONIC);
    pthread_mutex_lock(&mutex);
    locked += clock_ns(CLOCK_MONOTONIC) - from;
    pthread_mutex_unlock(&mutex);
}

NOINLINE static void child_read(void) {
    char bytes[8];
    int64_t from = clock_ns(CLOCK_MONOTONIC);
    if (read(ends[0], bytes, sizeof bytes) != 4) abort();
    read_for += clock_ns(CLOCK_MONOTONIC) - from;
}

static void *locks_for_ever(void *arg) { pthread_mutex_lock(&taken); return arg; }
static void *reads_for_ever(void *arg) { char c; return read(quiet[0], &c, 1) == 1 ? arg : NULL; }

static void child(void) {
    pthread_t thread;
    for (int i = 0; i < ROUNDS; i++) {
        if (pthread_create(&thread, NULL, holder, NULL)) abort();
        child_lock();
        pthread_join(thread, NULL);
        if (pthread_create(&thread, NULL, feeder, NULL)) abort();
        child_read();
        pthread_join(thread, NULL);
    }
    truth_function("child_lock", locked);
    truth_function("child_read", read_for);
    truth_count("children", 1);
}

int main(void) {
    pthread_t thread;
    sem_init(&held, 0, 0);
    pthread_mutex_lock(&taken);
    if (pipe(quiet) || pthread_create(&thread, NULL, locks_for_ever, NULL) || pthread_create(&thread, NULL, reads_for_ever, NULL)) abort();
    for (int i = 0; i < CHILDREN; i++) {
        if (pipe(ends)) abort();
        pid_t pid = fork();
        if (pid == 0) {
            child();
            _exit(0);
        }
        int status;
        while (waitpid(pid, &status, 0) != pid) {}
        if (status) abort();
        close(ends[0]);
        close(ends[1]);
    }
    truth_count("waits", CHILDREN * ROUNDS);
    // The process ends while the two threads still wait.
    return 0;
}
