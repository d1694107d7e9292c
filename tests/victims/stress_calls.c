// Calls that engines interpose, with every way in which they can fail or be interrupted. One case per run:
// stress_calls CASE. The output and the exit status must be the same with and without a recorder.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Prints the result of a call, and errno, which a successful call must not change.
#define TELL(call) do { errno = 77; long r_ = (long)(call); printf("%s %ld %d\n", #call, r_, errno); } while (0)

static struct timespec in_ms(clockid_t clock, long ms) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static pthread_mutex_t m, robust;
static void *dies_holding(void *arg) { pthread_mutex_lock(arg); return 0; }
static void *tries(void *arg) { return (void *)(long)pthread_mutex_trylock(arg); }
static void *takes(void *arg) {
    long n = 0;
    for (int i = 0; i < 20000; i++) {
        n += pthread_mutex_lock(arg);
        n += pthread_mutex_unlock(arg);
    }
    return (void *)n;
}
static long elsewhere(void *(*f)(void *), void *arg) {
    pthread_t t;
    void *r = (void *)-1;
    pthread_create(&t, 0, f, arg);
    pthread_join(t, &r);
    return (long)r;
}
static void mutexes(void) {
    static const int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int k = 0; k < 8; k++) {
        pthread_mutexattr_t a;
        pthread_mutexattr_init(&a);
        pthread_mutexattr_settype(&a, kinds[k % 4]);
        if (k >= 4) pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
        TELL(pthread_mutex_init(&m, &a));
        TELL(pthread_mutex_lock(&m));
        TELL(pthread_mutex_trylock(&m));
        if (k % 4 == 1 || k % 4 == 2) TELL(pthread_mutex_lock(&m));
        TELL(elsewhere(tries, &m));
        struct timespec t = in_ms(CLOCK_REALTIME, 20);
        if (k % 4 != 1 && k % 4 != 2) TELL(pthread_mutex_timedlock(&m, &t));
        t = in_ms(CLOCK_MONOTONIC, 20);
        if (k == 0) TELL(pthread_mutex_clocklock(&m, CLOCK_MONOTONIC, &t));
        t.tv_nsec = -1;
        if (k == 0) TELL(pthread_mutex_timedlock(&m, &t));
        TELL(pthread_mutex_unlock(&m));
        if (k % 4 == 1 || k % 4 == 2) { TELL(pthread_mutex_unlock(&m)); TELL(pthread_mutex_unlock(&m)); TELL(pthread_mutex_unlock(&m)); }
        pthread_t all[4];
        for (int i = 0; i < 4; i++) pthread_create(&all[i], 0, takes, &m);
        long bad = 0;
        for (int i = 0; i < 4; i++) { void *r; pthread_join(all[i], &r); bad += (long)r; }
        printf("contended %ld\n", bad);
        TELL(pthread_mutex_destroy(&m));
    }
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &a);
    elsewhere(dies_holding, &robust);
    TELL(pthread_mutex_lock(&robust));
    TELL(pthread_mutex_consistent(&robust));
    TELL(pthread_mutex_unlock(&robust));
    elsewhere(dies_holding, &robust);
    TELL(pthread_mutex_trylock(&robust));
    TELL(pthread_mutex_unlock(&robust));
    TELL(pthread_mutex_lock(&robust));
}

static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t cond_mutex = PTHREAD_MUTEX_INITIALIZER;
static int turns;
static void *other_turn(void *arg) {
    (void)arg;
    pthread_mutex_lock(&cond_mutex);
    for (int i = 0; i < 2000; i++) {
        while (turns % 2 == 0) pthread_cond_wait(&cond, &cond_mutex);
        turns++;
        pthread_cond_broadcast(&cond);
    }
    pthread_mutex_unlock(&cond_mutex);
    return 0;
}
static void *tries_rw(void *arg) { (void)arg; return (void *)(long)(pthread_rwlock_tryrdlock(&rw) * 1000 + pthread_rwlock_trywrlock(&rw)); }
static void *posts(void *arg) { for (int i = 0; i < 5000; i++) sem_post(arg); return 0; }
static void waits(void) {
    TELL(pthread_rwlock_wrlock(&rw));
    TELL(pthread_rwlock_rdlock(&rw));
    TELL(pthread_rwlock_wrlock(&rw));
    TELL(elsewhere(tries_rw, 0));
    struct timespec t = in_ms(CLOCK_REALTIME, 20);
    TELL(pthread_rwlock_timedrdlock(&rw, &t));
    TELL(pthread_rwlock_unlock(&rw));
    TELL(pthread_rwlock_rdlock(&rw));
    TELL(pthread_rwlock_tryrdlock(&rw));
    t = in_ms(CLOCK_REALTIME, 20);
    TELL(pthread_rwlock_timedwrlock(&rw, &t));
    TELL(pthread_rwlock_unlock(&rw));
    TELL(pthread_rwlock_unlock(&rw));

    pthread_t other;
    pthread_create(&other, 0, other_turn, 0);
    pthread_mutex_lock(&cond_mutex);
    for (int i = 0; i < 2000; i++) {
        while (turns % 2) pthread_cond_wait(&cond, &cond_mutex);
        turns++;
        pthread_cond_broadcast(&cond);
    }
    pthread_mutex_unlock(&cond_mutex);
    pthread_join(other, 0);
    printf("turns %d\n", turns);
    pthread_mutex_lock(&cond_mutex);
    t = in_ms(CLOCK_REALTIME, 20);
    TELL(pthread_cond_timedwait(&cond, &cond_mutex, &t));
    t = in_ms(CLOCK_MONOTONIC, 20);
    TELL(pthread_cond_clockwait(&cond, &cond_mutex, CLOCK_MONOTONIC, &t));
    TELL(pthread_mutex_trylock(&cond_mutex));
    pthread_mutex_unlock(&cond_mutex);

    sem_t s;
    sem_init(&s, 0, 0);
    TELL(sem_trywait(&s));
    t = in_ms(CLOCK_REALTIME, 20);
    TELL(sem_timedwait(&s, &t));
    pthread_create(&other, 0, posts, &s);
    int got = 0;
    for (int i = 0; i < 5000; i++) got += sem_wait(&s) == 0;
    pthread_join(other, 0);
    printf("got %d\n", got);
}

// Cancelled while they wait: the cleanup handler runs, with the mutex of a condition locked.
static _Atomic int cleaned, owned;
static void cleanup(void *arg) {
    cleaned++;
    if (arg) owned += pthread_mutex_unlock(arg) == 0;
}
static int quiet[2];
static sem_t never;
static void *waits_for_ever(void *arg) {
    long how = (long)arg;
    char c[8];
    struct iovec v = {c, sizeof c};
    pthread_cond_t own = PTHREAD_COND_INITIALIZER;
    pthread_mutex_t held;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&held, &kind);
    if (how == 2) pthread_mutex_lock(&held);
    pthread_cleanup_push(cleanup, how == 2 ? &held : 0);
    for (;;) switch (how) {
        case 0: if (read(quiet[0], c, sizeof c) < 0) break; break;
        case 1: sem_wait(&never); break;
        case 2: pthread_cond_wait(&own, &held); break;
        case 3: if (recv(quiet[0], c, sizeof c, 0) < 0) break; break;
        case 4: if (readv(quiet[0], &v, 1) < 0) break; break;
        case 5: pause(); break;
        case 6: accept(quiet[1], 0, 0); usleep(1000); break;
        default: pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0); for (volatile long i = 0;; i++) {}
    }
    pthread_cleanup_pop(0);
    return 0;
}
static void cancels(void) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, quiet)) exit(1);
    sem_init(&never, 0, 0);
    int ended = 0;
    for (long i = 0; i < 160; i++) {
        pthread_t t;
        void *r;
        pthread_create(&t, 0, waits_for_ever, (void *)(i % 8));
        usleep(300 * (useconds_t)(i % 5));
        pthread_cancel(t);
        pthread_join(t, &r);
        ended += r == PTHREAD_CANCELED;
    }
    printf("ended %d\n", ended);
    // A thread that is cancelled before its push has no cleanup; no cleanup runs twice.
    printf("cleaned %d owned %d\n", cleaned <= 160 && cleaned > 60, owned <= 20);
}

// The same for the other cancellation points that are interposed: each thread waits in one for ever.
static pthread_t sleeper;
static void *sleeps(void *arg) { for (;;) pause(); return arg; }
static int brim[2], crowded = -1;
static struct sockaddr_un crowd;
static void *waits_longer(void *arg) {
    long how = (long)arg;
    static char c[1 << 16];
    struct iovec v = {c, sizeof c};
    struct msghdr message = {.msg_iov = &v, .msg_iovlen = 1};
    struct timespec real = in_ms(CLOCK_REALTIME, 100000), steady = in_ms(CLOCK_MONOTONIC, 100000);
    pthread_cond_t own = PTHREAD_COND_INITIALIZER;
    pthread_mutex_t held;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&held, &kind);
    FILE *f = how == 9 ? fdopen(dup(quiet[0]), "r") : 0;
    if (how < 2) pthread_mutex_lock(&held);
    pthread_cleanup_push(cleanup, how < 2 ? &held : 0);
    switch (how) {
    case 0: pthread_cond_timedwait(&own, &held, &real); break;
    case 1: pthread_cond_clockwait(&own, &held, CLOCK_MONOTONIC, &steady); break;
    case 2: sem_timedwait(&never, &real); break;
    case 3: sem_clockwait(&never, CLOCK_MONOTONIC, &steady); break;
    case 4: pthread_join(sleeper, 0); break;
    case 5: for (;;) if (write(brim[1], c, sizeof c) < 0) break; break;
    case 6: for (;;) if (sendmsg(brim[1], &message, 0) < 0) break; break;
    case 7: recvmsg(quiet[0], &message, 0); break;
    case 8: { int s = socket(AF_UNIX, SOCK_STREAM, 0); for (;;) { connect(s, (struct sockaddr *)&crowd, sizeof crowd); s = socket(AF_UNIX, SOCK_STREAM, 0); } }
    // A stream stays locked by a thread that is cancelled in it, so each has its own.
    case 9: if (f) fgets(c, sizeof c, f); break;
    case 10: accept4(crowded, 0, 0, 0); accept4(crowded, 0, 0, 0); for (;;) accept4(crowded, 0, 0, 0);
    case 11: { struct mmsghdr many = {.msg_hdr = message}; recvmmsg(quiet[0], &many, 1, 0, 0); break; }
    // Not cancelled while cancellation is disabled; then at the next cancellation point, which need not wait.
    default:
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, 0);
        steady = in_ms(CLOCK_MONOTONIC, 20);
        if (sem_clockwait(&never, CLOCK_MONOTONIC, &steady) != -1 || errno != ETIMEDOUT) exit(3);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, 0);
        for (;;) { sem_t full; sem_init(&full, 0, 1); sem_wait(&full); }
    }
    pthread_cleanup_pop(0);
    return 0;
}
static void cancels_more(void) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, quiet) || socketpair(AF_UNIX, SOCK_STREAM, 0, brim)) exit(1);
    sem_init(&never, 0, 0);
    pthread_create(&sleeper, 0, sleeps, 0);
    // A name in no file system, bound by the kernel.
    crowd.sun_family = AF_UNIX;
    socklen_t len = sizeof(sa_family_t);
    crowded = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(crowded, (struct sockaddr *)&crowd, len) || listen(crowded, 0)) exit(1);
    len = sizeof crowd;
    getsockname(crowded, (struct sockaddr *)&crowd, &len);
    int ended[13] = {0};
    for (long i = 0; i < 13 * 8; i++) {
        pthread_t t;
        void *r;
        pthread_create(&t, 0, waits_longer, (void *)(i % 13));
        usleep(300 * (useconds_t)(i % 5));
        pthread_cancel(t);
        pthread_join(t, &r);
        ended[i % 13] += r == PTHREAD_CANCELED;
    }
    for (int how = 0; how < 13; how++) printf("%d ended %d\n", how, ended[how]);
}

// Forked while threads wait in locks and calls: the single-threaded child uses all of them, and the parent's
// threads continue.
static int talk[2];
static _Atomic int over;
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t busy_rw = PTHREAD_RWLOCK_INITIALIZER;
static void prepare(void) { pthread_mutex_lock(&busy); pthread_rwlock_wrlock(&busy_rw); }
static void parent(void) { pthread_rwlock_unlock(&busy_rw); pthread_mutex_unlock(&busy); }
static void child(void) { pthread_rwlock_init(&busy_rw, 0); pthread_mutex_init(&busy, 0); }
static void *contends(void *arg) {
    char c[8];
    for (long i = 0; !over; i++) {
        pthread_mutex_lock(&busy);
        if (i % 16 == 0) usleep(50);
        pthread_mutex_unlock(&busy);
        pthread_rwlock_rdlock(&busy_rw);
        pthread_rwlock_unlock(&busy_rw);
        if (write(talk[1], c, 4) != 4 || read(talk[0], c, 4) != 4) exit(1);
        struct timespec t = in_ms(CLOCK_MONOTONIC, 1);
        pthread_mutex_lock(&cond_mutex);
        pthread_cond_clockwait(&cond, &cond_mutex, CLOCK_MONOTONIC, &t);
        pthread_mutex_unlock(&cond_mutex);
    }
    return arg;
}
static void *gives(void *arg) {
    usleep(1000);
    pthread_mutex_lock(&busy);
    sem_post(arg);
    pthread_mutex_unlock(&busy);
    return 0;
}
static int in_child(void) {
    char c[8];
    int p[2];
    sem_t s;
    struct timespec t = in_ms(CLOCK_REALTIME, 2);
    sem_init(&s, 0, 0);
    pthread_mutex_lock(&busy);
    pthread_t other;
    if (pthread_create(&other, 0, gives, &s)) return 1;
    if (pthread_mutex_timedlock(&busy, &t) != ETIMEDOUT) return 2;
    pthread_mutex_unlock(&busy);
    if (sem_wait(&s) || pthread_join(other, 0)) return 3;
    if (pipe(p) || write(p[1], "four", 4) != 4 || read(p[0], c, 8) != 4) return 4;
    FILE *f = tmpfile();
    if (!f || fputs("a line\n", f) < 0 || fflush(f) || fclose(f)) return 5;
    return 40;
}
static void forks_waiting(void) {
    pthread_t all[4];
    int counted[64] = {0};
    if (pipe(talk) || pthread_atfork(prepare, parent, child)) exit(1);
    for (int i = 0; i < 4; i++) pthread_create(&all[i], 0, contends, 0);
    for (int i = 0; i < 60; i++) {
        pid_t p = fork();
        if (p == 0) _exit(in_child());
        int status = 0;
        while (waitpid(p, &status, 0) != p) {}
        counted[WIFEXITED(status) ? WEXITSTATUS(status) & 63 : 63]++;
    }
    over = 1;
    for (int i = 0; i < 4; i++) pthread_join(all[i], 0);
    for (int i = 0; i < 64; i++) if (counted[i]) printf("children with %d: %d\n", i, counted[i]);
}

static _Atomic int destroyed;
static pthread_key_t key;
static void destroy(void *p) {
    free(p);
    pthread_mutex_lock(&cond_mutex);
    if (++destroyed % 3 == 0) pthread_setspecific(key, malloc(100));
    pthread_mutex_unlock(&cond_mutex);
}
static void *with_key(void *arg) { (void)arg; pthread_setspecific(key, malloc(50)); return 0; }
static void destructors(void) {
    pthread_key_create(&key, destroy);
    for (int i = 0; i < 300; i++) elsewhere(with_key, 0);
    printf("destroyed %d\n", destroyed);
}

static void on_pipe(int n) { (void)n; owned++; }
static void io(void) {
    char c[64] = "";
    struct iovec v[2] = {{c, 8}, {c + 8, 8}};
    struct sigaction a = {.sa_handler = on_pipe};
    sigaction(SIGPIPE, &a, 0);
    TELL(read(-1, c, 1));
    TELL(write(-1, c, 1));
    TELL(readv(0, v, -1));
    TELL(read(open("/", O_RDONLY), c, 1));
    int fd = open("/dev/zero", O_RDWR);
    TELL(read(fd, (void *)8, 16));
    TELL(read(fd, c, 0));
    TELL(readv(fd, v, 2));
    TELL(pread(fd, c, 16, -1));
    int full = open("/dev/full", O_WRONLY);
    TELL(write(full, c, 5));
    TELL(fsync(full));
    TELL(fdatasync(-1));
    int p[2];
    TELL(pipe2(p, O_NONBLOCK));
    TELL(read(p[0], c, 5));
    static char big[1 << 20];
    TELL(write(p[1], big, sizeof big));
    TELL(write(p[1], big, 1));
    TELL(close(p[0]));
    TELL(write(p[1], c, 1));
    int s[2];
    TELL(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    TELL(send(s[0], "hello", 5, 0));
    TELL(recv(s[1], c, 3, MSG_PEEK));
    TELL(recv(s[1], c, 64, 0));
    TELL(recv(s[1], c, 64, MSG_DONTWAIT));
    struct msghdr message = {.msg_iov = v, .msg_iovlen = 2};
    TELL(sendmsg(s[0], &message, 0));
    TELL(recvmsg(s[1], &message, 0));
    close(s[0]);
    TELL(recv(s[1], c, 1, 0));
    TELL(send(s[1], c, 1, MSG_NOSIGNAL));
    TELL(send(s[1], c, 1, 0));
    struct sockaddr_un nowhere = {AF_UNIX, "/no/such/socket"};
    int u = socket(AF_UNIX, SOCK_STREAM, 0);
    TELL(connect(u, (struct sockaddr *)&nowhere, sizeof nowhere));
    TELL(accept(u, 0, 0));
    TELL(close(-1));
    printf("pipes %d\n", owned);
    FILE *f = tmpfile();
    TELL(fputs("one\ntwo\nthree", f));
    TELL(fflush(f));
    rewind(f);
    char *line = 0;
    size_t room = 0;
    TELL(getline(&line, &room, f));
    TELL(fread(c, 1, 64, f));
    TELL(feof(f));
    TELL(fgetc(f));
    TELL(ungetc('x', f));
    TELL(fgets(c, 64, f) == c);
    TELL(fclose(f));
    free(line);
    f = fopen("/dev/full", "w");
    setvbuf(f, 0, _IONBF, 0);
    TELL(fwrite("abc", 1, 3, f));
    TELL(ferror(f));
    TELL(fclose(f));
    f = fopen("/dev/null", "r");
    TELL(fwrite("abc", 1, 3, f));
    TELL(fputc('c', f));
    TELL(fclose(f));
}

static void heap(void) {
    volatile size_t huge = SIZE_MAX / 2, none = 0;
    void *volatile p = 0;
    TELL(p = malloc(huge));
    TELL(calloc(huge, 4));
    TELL(reallocarray(0, huge, 4));
    TELL(posix_memalign((void **)&p, 3, 100));
    TELL(posix_memalign((void **)&p, 64, huge));
    TELL(memalign(64, huge));
    TELL((p = malloc(none)) != 0);
    TELL(realloc(p, none));
    TELL((p = realloc(0, 10)) != 0);
    TELL(realloc(p, huge));
    TELL((free(p), 0));
    TELL((free(0), 0));
    long bad = 0;
    for (unsigned i = 0; i < 20000; i++) {
        size_t size = (i * 2654435761u) % 9000, align = (size_t)16 << i % 8;
        char *q;
        switch (i % 6) {
        case 0: q = malloc(size); break;
        case 1: q = calloc(size ? size : 1, 1); for (size_t k = 0; k < size; k++) bad += q[k] != 0; break;
        case 2: if (posix_memalign((void **)&q, align, size)) q = 0; bad += (uintptr_t)q % align != 0; break;
        case 3: q = aligned_alloc(align, (size + align - 1) / align * align); bad += (uintptr_t)q % align != 0; break;
        case 4: q = memalign(align, size); bad += (uintptr_t)q % align != 0; break;
        default: q = strdup("text to keep"); q = realloc(q, 20 + size); bad += memcmp(q, "text to keep", 13) != 0; size += 20;
        }
        bad += !q || malloc_usable_size(q) < size || (uintptr_t)q % 16 != 0;
        memset(q, (int)i, size);
        if (i % 7 == 0) { q = reallocarray(q, 3, 5000); for (size_t k = 0; k < size && k < 15000; k++) bad += q[k] != (char)i; }
        free(q);
    }
    printf("bad %ld\n", bad);
    void *at = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TELL(at == MAP_FAILED);
    TELL((at = mremap(at, 1 << 20, 2 << 20, MREMAP_MAYMOVE)) == MAP_FAILED);
    TELL(munmap(at, 2 << 20));
    TELL(munmap((void *)1, 1));
    TELL(mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

int main(int argc, char **argv) {
    const char *c = argc > 1 ? argv[1] : "";
    setvbuf(stdout, 0, _IOFBF, 1 << 18);
    if (!strcmp(c, "mutexes")) mutexes();
    else if (!strcmp(c, "waits")) waits();
    else if (!strcmp(c, "cancels")) cancels();
    else if (!strcmp(c, "cancels-more")) cancels_more();
    else if (!strcmp(c, "forks-waiting")) forks_waiting();
    else if (!strcmp(c, "destructors")) destructors();
    else if (!strcmp(c, "io")) io();
    else if (!strcmp(c, "heap")) heap();
    else return 64;
    return 0;
}
