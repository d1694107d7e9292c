// Waits whose length the program measures: each case waits ROUNDS times for an event that another thread
// causes 4 ms after this one has gone to sleep, with the clock read right around the call. The ground truth
// counts the waits that were longer than 1 ms and than 3 ms by that clock.
#include "truth.h"
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <semaphore.h>
#include <threads.h>

enum { ROUNDS = 12 };
static int64_t waited, sure, possible;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t inherit;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static mtx_t standard;
static sem_t semaphore, turn, held;
static int word;

static void nap(long us) {
    struct timespec t = {0, us * 1000};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}

static struct timespec after(clockid_t clock, long ms) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

// Waits for the program's own hand-over are not part of the ground truth: they spin.
static void give(sem_t *s) { sem_post(s); }
static void await(sem_t *s) {
    while (sem_trywait(s)) sched_yield();
}

#define TIMED(call)                                    \
    ({                                                 \
        int64_t from_ = clock_ns(CLOCK_MONOTONIC);     \
        int r_ = (call);                               \
        from_ = clock_ns(CLOCK_MONOTONIC) - from_;     \
        waited += from_;                               \
        sure += from_ >= 3000000;                      \
        possible += from_ >= 1000000;                  \
        r_;                                            \
    })

typedef struct {
    const char *name;
    void (*wait)(void);
    void (*take)(void);
    void (*leave)(void);
} Case;

#define CASE(name, wait_body, take_body, leave_body)             \
    NOINLINE static void name(void) { wait_body; __asm__ volatile("" ::: "memory"); } \
    static void name##_take(void) { take_body; }                 \
    static void name##_leave(void) { leave_body; }

CASE(mutex_wait, TIMED(pthread_mutex_lock(&mutex)); pthread_mutex_unlock(&mutex), pthread_mutex_lock(&mutex), pthread_mutex_unlock(&mutex))
CASE(timed_wait, struct timespec t = after(CLOCK_REALTIME, 20000); TIMED(pthread_mutex_timedlock(&mutex, &t)); pthread_mutex_unlock(&mutex), pthread_mutex_lock(&mutex), pthread_mutex_unlock(&mutex))
CASE(inherit_wait, TIMED(pthread_mutex_lock(&inherit)); pthread_mutex_unlock(&inherit), pthread_mutex_lock(&inherit), pthread_mutex_unlock(&inherit))
CASE(standard_wait, TIMED(mtx_lock(&standard)); mtx_unlock(&standard), mtx_lock(&standard), mtx_unlock(&standard))
CASE(read_wait, TIMED(pthread_rwlock_rdlock(&rwlock)); pthread_rwlock_unlock(&rwlock), pthread_rwlock_wrlock(&rwlock), pthread_rwlock_unlock(&rwlock))
CASE(write_wait, TIMED(pthread_rwlock_wrlock(&rwlock)); pthread_rwlock_unlock(&rwlock), pthread_rwlock_rdlock(&rwlock), pthread_rwlock_unlock(&rwlock))
CASE(semaphore_wait, TIMED(sem_wait(&semaphore)), (void)0, sem_post(&semaphore))
CASE(futex_wait, TIMED((int)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0)), __atomic_store_n(&word, 0, __ATOMIC_SEQ_CST),
     __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST); syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0))
static int ready;
// The mutex is always free: only the wait for the condition is measured.
CASE(condition_wait, pthread_mutex_lock(&mutex); while (!ready) TIMED(pthread_cond_wait(&condition, &mutex)); ready = 0; pthread_mutex_unlock(&mutex), (void)0,
     pthread_mutex_lock(&mutex); ready = 1; pthread_mutex_unlock(&mutex); pthread_cond_signal(&condition))

// These end by their own time-outs.
NOINLINE static void condition_late(void) {
    struct timespec t = after(CLOCK_REALTIME, 4);
    pthread_mutex_lock(&mutex);
    if (TIMED(pthread_cond_timedwait(&condition, &mutex, &t)) != ETIMEDOUT) abort();
    pthread_mutex_unlock(&mutex);
}
NOINLINE static void condition_clock_late(void) {
    struct timespec t = after(CLOCK_MONOTONIC, 4);
    pthread_mutex_lock(&mutex);
    if (TIMED(pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &t)) != ETIMEDOUT) abort();
    pthread_mutex_unlock(&mutex);
}
NOINLINE static void semaphore_late(void) {
    struct timespec t = after(CLOCK_REALTIME, 4);
    errno = 0;
    if (TIMED(sem_timedwait(&semaphore, &t)) != -1 || errno != ETIMEDOUT) abort();
}
NOINLINE static void futex_late(void) {
    struct timespec t = {0, 4000000};
    errno = 0;
    if (TIMED((int)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0)) != -1 || errno != ETIMEDOUT) abort();
}

static const Case cases[] = {
#define ENTRY(name) {#name, name, name##_take, name##_leave}
    ENTRY(mutex_wait), ENTRY(timed_wait), ENTRY(inherit_wait), ENTRY(standard_wait), ENTRY(read_wait),
    ENTRY(write_wait), ENTRY(semaphore_wait), ENTRY(futex_wait), ENTRY(condition_wait),
};
static const Case late[] = {
    {"condition_late", condition_late, NULL, NULL},
    {"condition_clock_late", condition_clock_late, NULL, NULL},
    {"semaphore_late", semaphore_late, NULL, NULL},
    {"futex_late", futex_late, NULL, NULL},
};

static void *holder(void *which) {
    const Case *c = which;
    pthread_setname_np(pthread_self(), "holder");
    for (int i = 0; i < ROUNDS; i++) {
        await(&turn);
        c->take();
        give(&held);
        until_asleep(getpid());
        nap(4000);
        c->leave();
    }
    return NULL;
}

static void tell(const char *name) {
    char counted[64];
    snprintf(counted, sizeof counted, "%s", name);
    truth_function(name, waited);
    truth_count(counted, possible);
    snprintf(counted, sizeof counted, "%s sure", name);
    truth_count(counted, sure);
    waited = sure = possible = 0;
}

// Never contended: it must not be recorded.
NOINLINE static void free_locks(void) {
    for (int i = 0; i < 200000; i++) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
        pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
        sem_post(&semaphore);
        errno = 77;
        if (sem_wait(&semaphore) || errno != 77) abort();
    }
}

// Results that the recorder's first attempt (trylock) must not change.
static void answers(void) {
    pthread_mutexattr_t a;
    pthread_mutex_t m;
    struct timespec t = after(CLOCK_REALTIME, 1);
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&m, &a);
    if (pthread_mutex_lock(&m) != 0 || pthread_mutex_lock(&m) != EDEADLK || pthread_mutex_unlock(&m)) abort();
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&m, &a);
    if (pthread_mutex_lock(&m) || pthread_mutex_lock(&m) || pthread_mutex_unlock(&m) || pthread_mutex_unlock(&m)) abort();
    if (pthread_mutex_unlock(&m) != EPERM) abort();
    if (pthread_mutex_clocklock(&m, CLOCK_PROCESS_CPUTIME_ID, &t) != EINVAL) abort();
    if (pthread_rwlock_wrlock(&rwlock) || pthread_rwlock_wrlock(&rwlock) != EDEADLK || pthread_rwlock_unlock(&rwlock)) abort();
    if (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, word + 1, NULL, NULL, 0) != -1 || errno != EAGAIN) abort();
    if (syscall(SYS_futex, (void *)8, FUTEX_WAIT_PRIVATE, 0, (void *)8, NULL, 0) != -1 || errno != EFAULT) abort();
}

static void *cancelled(void *arg) {
    (void)arg;
    // A free semaphore is a cancellation point, too.
    for (;;) {
        sem_post(&semaphore);
        sem_wait(&semaphore);
    }
    return NULL;
}

int main(void) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inherit, &a);
    mtx_init(&standard, mtx_plain);
    sem_init(&semaphore, 0, 0);
    sem_init(&turn, 0, 0);
    sem_init(&held, 0, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, holder, (void *)&cases[i])) abort();
        for (int round = 0; round < ROUNDS; round++) {
            give(&turn);
            await(&held);
            cases[i].wait();
        }
        pthread_join(thread, NULL);
        tell(cases[i].name);
    }
    word = 0;
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        for (int round = 0; round < ROUNDS; round++) late[i].wait();
        tell(late[i].name);
    }
    free_locks();
    answers();
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, NULL, cancelled, NULL)) abort();
    nap(2000);
    pthread_cancel(thread);
    if (pthread_join(thread, &result) || result != PTHREAD_CANCELED) abort();
    return 0;
}
