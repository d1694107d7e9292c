// Threads, stacks and system calls that a faulty recorder would disturb. One case per run: guest_threads CASE
// [MODULE.so]. The output and the exit status must be the same with and without a recorder.
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile uint64_t sink;
static double clock_s(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
static void burn(double seconds) {
    double end = clock_s(CLOCK_THREAD_CPUTIME_ID) + seconds;
    while (clock_s(CLOCK_THREAD_CPUTIME_ID) < end)
        for (int i = 0; i < 2000; i++) sink = sink * 6364136223846793005u + 1442695040888963407u;
}
static void say(const char *what, long value) { printf("%s %ld\n", what, value); }

static void *six(void *arg) { burn(0.006); return (void *)((intptr_t)arg * 2); }
static void many(void) {
    long sum = 0;
    for (int round = 0; round < 25; round++) {
        pthread_t t[20];
        for (intptr_t i = 0; i < 20; i++) if (pthread_create(&t[i], 0, six, (void *)i)) abort();
        for (int i = 0; i < 20; i++) { void *r; pthread_join(t[i], &r); sum += (intptr_t)r; }
    }
    say("sum", sum);
}

// More threads than can start at the same time, and more than a small table holds.
static pthread_barrier_t barrier;
static void *parked(void *arg) { pthread_barrier_wait(&barrier); burn(0.0005); return arg; }
static void crowd(void) {
    enum { N = 1500 };
    static pthread_t t[N];
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 65536);
    pthread_barrier_init(&barrier, 0, N + 1);
    long bad = 0;
    for (intptr_t i = 0; i < N; i++) bad += pthread_create(&t[i], &a, parked, (void *)i) != 0;
    say("not started", bad);
    pthread_barrier_wait(&barrier);
    for (intptr_t i = 0; i < N; i++) { void *r; pthread_join(t[i], &r); bad += r != (void *)i; }
    say("bad", bad);
}

static pthread_key_t key;
static int destroyed;
static void destroy(void *v) { (void)v; __atomic_fetch_add(&destroyed, 1, __ATOMIC_RELAXED); burn(0.002); }
static void *leaves(void *arg) { pthread_setspecific(key, arg); burn(0.002); pthread_exit((void *)3); }
static void *waits(void *arg) { pthread_setspecific(key, arg); for (;;) { burn(0.001); pause(); } }
static void *busy(void *arg) {
    pthread_setspecific(key, arg);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    for (;;) sink++;
}
static int c11(void *arg) { burn(0.002); return *(int *)arg + 1; }
static void ends(void) {
    pthread_key_create(&key, destroy);
    pthread_t t;
    void *r;
    for (int i = 0; i < 20; i++) {
        pthread_create(&t, 0, leaves, &key);
        pthread_join(t, &r);
        if (r != (void *)3) say("exit", (long)r);
        pthread_create(&t, 0, waits, &key);
        usleep(2000);
        pthread_cancel(t);
        pthread_join(t, &r);
        if (r != PTHREAD_CANCELED) say("cancel", (long)r);
        pthread_create(&t, 0, busy, &key);
        usleep(3000);
        pthread_cancel(t);
        pthread_join(t, &r);
        if (r != PTHREAD_CANCELED) say("async", (long)r);
        thrd_t c;
        int v = i, got = 0;
        if (thrd_create(&c, c11, &v) != thrd_success) say("thrd", 0);
        thrd_join(c, &got);
        if (got != i + 1) say("c11", got);
    }
    say("destroyed", destroyed);
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < 20; i++) pthread_create(&t, &a, six, 0);
    usleep(300000);
    void *stack = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_init(&a);
    pthread_attr_setstack(&a, stack, 1 << 20);
    pthread_create(&t, &a, six, (void *)4);
    pthread_join(t, &r);
    say("own stack", (long)r);
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 16384);
    pthread_create(&t, &a, six, (void *)5);
    pthread_join(t, &r);
    say("small stack", (long)r);
    say("bad attr", pthread_attr_setstacksize(&a, 1));
}

// The main thread ends first.
static void *last(void *arg) {
    (void)arg;
    burn(0.05);
    say("last", 1);
    fflush(stdout);
    exit(6);
}
static void main_leaves(void) {
    pthread_t t;
    pthread_create(&t, 0, last, 0);
    pthread_exit(0);
}

static void *errno_worker(void *arg) {
    long bad = 0;
    double end = clock_s(CLOCK_THREAD_CPUTIME_ID) + 0.3;
    while (clock_s(CLOCK_THREAD_CPUTIME_ID) < end) {
        for (int e = 1; e < 100; e++) {
            errno = e;
            for (int i = 0; i < 50; i++) sink++;
            bad += errno != e;
        }
        bad += open("/no/such/file", O_RDONLY) != -1 || errno != ENOENT;
    }
    *(long *)arg = bad;
    return 0;
}
static void errnos(void) {
    long bad[3];
    pthread_t t[2];
    for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, errno_worker, &bad[i]);
    errno_worker(&bad[2]);
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    say("bad", bad[0] + bad[1] + bad[2]);
}

// Calls that end early when a signal arrives.
static void *slow_writer(void *arg) {
    for (int i = 0; i < 20; i++) { usleep(5000); if (write(*(int *)arg, "x", 1) != 1) return 0; }
    close(*(int *)arg);
    return 0;
}
static volatile int stop;
static void *spinner(void *arg) { (void)arg; while (!stop) sink++; return 0; }
static void interrupted(void) {
    long early = 0, failed = 0;
    pthread_t t;
    pthread_create(&t, 0, spinner, 0);
    for (int i = 0; i < 100; i++) {
        burn(0.0007);
        struct timespec ask = {0, 2000000}, left = {0, 0};
        double a = clock_s(CLOCK_MONOTONIC);
        failed += nanosleep(&ask, &left) != 0;
        early += clock_s(CLOCK_MONOTONIC) - a < 0.002;
        burn(0.0003);
        failed += poll(0, 0, 2) != 0;
        burn(0.0003);
        struct timeval tv = {0, 1000};
        failed += select(0, 0, 0, 0, &tv) != 0;
        static int e;
        if (!e) e = epoll_create1(0);
        struct epoll_event ev;
        failed += epoll_wait(e, &ev, 1, 1) != 0;
    }
    say("failed", failed); say("early", early);
    int fds[2];
    if (pipe(fds)) abort();
    pthread_t w;
    pthread_create(&w, 0, slow_writer, &fds[1]);
    char c;
    long got = 0, r;
    while ((r = read(fds[0], &c, 1)) > 0) { got++; burn(0.0005); }
    say("read", got); say("end", r);
    pthread_join(w, 0);
    stop = 1;
    pthread_join(t, 0);
}

static ucontext_t main_context, coroutine[3];
static int steps;
static void body(int me) {
    for (int i = 0; i < 300; i++) {
        burn(0.0004);
        steps++;
        swapcontext(&coroutine[me], &coroutine[(me + 1) % 3]);
    }
    setcontext(&main_context);
}
static void coroutines(void) {
    for (int i = 0; i < 3; i++) {
        getcontext(&coroutine[i]);
        char *m = mmap(0, 32768 + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(m, 4096, PROT_NONE);
        mprotect(m + 4096 + 32768, 4096, PROT_NONE);
        coroutine[i].uc_stack.ss_sp = m + 4096;
        coroutine[i].uc_stack.ss_size = 32768;
        coroutine[i].uc_link = &main_context;
        makecontext(&coroutine[i], (void (*)(void))body, 1, i);
    }
    swapcontext(&main_context, &coroutine[0]);
    say("steps", steps);
}

static long deep(int n) {
    volatile char *p = alloca((size_t)(64 + (n * 37) % 3000));
    p[0] = (char)n;
    if (n == 0) { burn(0.1); return 0; }
    long r = deep(n - 1);
    return r + p[0] * 0 + 1;
}

static void modules(char **files, int n, int rounds) {
    long bad = 0;
    for (int i = 0; i < rounds; i++) {
        for (int m = 0; m < n; m++) {
            void *h = dlopen(files[m], RTLD_NOW | RTLD_LOCAL);
            if (!h) { say("dlopen", i); printf("%s\n", dlerror()); exit(1); }
            char name[32];
            snprintf(name, sizeof name, "module_work_%d", m);
            uint64_t (*work)(uint64_t, void *) = (uint64_t(*)(uint64_t, void *))dlsym(h, name);
            if (!work) { bad++; continue; }
            sink += work(sink, 0);
            bad += dlclose(h) != 0;
        }
    }
    say("bad", bad);
    say("null", dlopen("/no/such/library.so", RTLD_NOW) != 0);
}

static void *dl_worker(void *arg) {
    char **a = arg;
    for (int i = 0; i < 200; i++) {
        void *h = dlopen(a[0], RTLD_NOW);
        burn(0.0003);
        if (!h || dlclose(h)) return (void *)1;
    }
    return 0;
}
static void dl_threads(char **files, int n) {
    if (n < 2) exit(1);
    pthread_t t[2];
    for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, dl_worker, &files[i]);
    pid_t p = 0;
    int bad = 0;
    for (int i = 0; i < 10; i++) {
        p = fork();
        if (!p) { burn(0.002); void *h = 0; (void)h; _exit(3); }
        int s;
        waitpid(p, &s, 0);
        bad += s != 3 << 8;
    }
    for (int i = 0; i < 2; i++) { void *r; pthread_join(t[i], &r); bad += r != 0; }
    say("bad", bad);
}

static void floats(void) {
    double s = 0, e = clock_s(CLOCK_THREAD_CPUTIME_ID) + 0.3;
    long rounds = 0, bad = 0;
    double want = 0;
    for (int i = 1; i < 1000; i++) want += sin(i) / i;
    while (clock_s(CLOCK_THREAD_CPUTIME_ID) < e) {
        s = 0;
        for (int i = 1; i < 1000; i++) s += sin(i) / i;
        bad += s != want;
        rounds++;
    }
    say("bad", bad);
    (void)rounds;
}

static int red_zone_leaf(int n) {
    // Uses the red zone: no calls, more locals than registers.
    volatile long a[12];
    long bad = 0;
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < 12; i++) a[i] = k + i;
        for (int i = 0; i < 12; i++) bad += a[i] != k + i;
    }
    return (int)bad;
}
static void red_zone(void) { say("bad", red_zone_leaf(3000000)); }

// Threads whose attributes block other signals than their creator.
static void *says_mask(void *name) {
    sigset_t now;
    burn(0.01);
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    printf("%s: SIGPROF %d SIGTRAP %d SIGUSR1 %d\n", (const char *)name, sigismember(&now, SIGPROF),
           sigismember(&now, SIGTRAP), sigismember(&now, SIGUSR1));
    return NULL;
}
static void attribute_masks(void) {
#if __GLIBC_PREREQ(2, 32)
    sigset_t none, some;
    sigemptyset(&none);
    sigemptyset(&some);
    sigaddset(&some, SIGPROF);
    sigaddset(&some, SIGTRAP);
    for (int creator = 0; creator < 2; creator++) {
        pthread_sigmask(SIG_SETMASK, creator ? &some : &none, NULL);
        for (int own = 0; own < 3; own++) {
            pthread_attr_t a;
            pthread_t t;
            pthread_attr_init(&a);
            if (own) pthread_attr_setsigmask_np(&a, own == 1 ? &none : &some);
            pthread_create(&t, &a, says_mask, own == 0 ? "inherited" : own == 1 ? "none" : "some");
            pthread_join(t, NULL);
            pthread_attr_destroy(&a);
        }
    }
#endif
}

int main(int argc, char **argv) {
    const char *c = argc > 1 ? argv[1] : "";
    setvbuf(stdout, 0, _IOFBF, 65536);
    if (!strcmp(c, "many")) many();
    else if (!strcmp(c, "crowd")) crowd();
    else if (!strcmp(c, "ends")) ends();
    else if (!strcmp(c, "main-leaves")) main_leaves();
    else if (!strcmp(c, "errno")) errnos();
    else if (!strcmp(c, "interrupted")) interrupted();
    else if (!strcmp(c, "coroutines")) coroutines();
    else if (!strcmp(c, "deep")) say("depth", deep(3000));
    else if (!strcmp(c, "modules")) modules(argv + 2, argc - 2, 150);
    else if (!strcmp(c, "dl-threads")) dl_threads(argv + 2, argc - 2);
    else if (!strcmp(c, "floats")) floats();
    else if (!strcmp(c, "red-zone")) red_zone();
    else if (!strcmp(c, "attribute-masks")) attribute_masks();
    else return 64;
    return 0;
}
