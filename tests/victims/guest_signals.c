// A program that uses the recorder's signals itself. One case per run: guest_signals CASE. It prints the
// results; the output and the exit status must be the same with and without a recorder.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile uint64_t sink;
static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
static void burn(double seconds) {
    double end = cpu() + seconds;
    while (cpu() < end)
        for (int i = 0; i < 2000; i++) sink = sink * 6364136223846793005u + 1442695040888963407u;
}
static volatile sig_atomic_t hits, last_code, last_value;
static void count(int s) { (void)s; hits++; }
static void count_info(int s, siginfo_t *i, void *c) {
    (void)s; (void)c;
    hits++;
    last_code = i->si_code;
    last_value = i->si_value.sival_int;
}
static void install(int s, void *f, int flags) {
    struct sigaction a = {0};
    a.sa_sigaction = (void (*)(int, siginfo_t *, void *))f;
    a.sa_flags = flags;
    sigaction(s, &a, 0);
}
static int blocked(int s) {
    sigset_t m;
    sigprocmask(SIG_BLOCK, 0, &m);
    return sigismember(&m, s);
}
static void say(const char *what, long value) { printf("%s %ld\n", what, value); }

static void own_handler(int s) {
    install(s, count_info, SA_SIGINFO | SA_RESTART);
    struct sigaction back;
    sigaction(s, 0, &back);
    say("handler is mine", back.sa_sigaction == count_info);
    say("flags", back.sa_flags & (SA_SIGINFO | SA_RESTART | SA_ONSTACK));
    burn(0.02);
    union sigval v = {.sival_int = 77};
    sigqueue(getpid(), s, v);
    say("hits", hits); say("code", last_code); say("value", last_value);
    burn(0.02);
    raise(s);
    say("hits", hits); say("code", last_code);
    burn(0.05);
    say("hits", hits);
    signal(s, SIG_IGN);
    raise(s);
    say("ignored", hits);
    say("signal returns", signal(s, SIG_DFL) == SIG_IGN);
    say("then", signal(s, count) == SIG_DFL);
}

// The program profiles itself: its interval timer delivers to its handler, about as often as without us. The kernel charges
// whole ticks, also for time that the host took, so there may be more than one hit in 10 ms of CPU time, but not in 10 ms of
// elapsed time. A machine whose ticks come late merges some: fewer than 30 were seen at a load of four on two processors.
static void itimer(void) {
    install(SIGPROF, count, SA_RESTART);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    struct itimerval t = {{0, 10000}, {0, 10000}};
    setitimer(ITIMER_PROF, &t, 0);
    burn(1.0);
    struct itimerval off = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &off, 0);
    clock_gettime(CLOCK_MONOTONIC, &to);
    long n = hits, ms = (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
    int right = n >= 10 && n <= ms / 10 + 2;
    say("about a hundred", right);
    if (!right) fprintf(stderr, "itimer: %ld hits in %ld ms\n", n, ms);
}

static void default_action(int s) { raise(s); burn(0.01); say("survived", s); }

static void masks(void) {
    sigset_t all, old, now;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    say("before prof", sigismember(&old, SIGPROF)); say("before trap", sigismember(&old, SIGTRAP));
    burn(0.05);
    pthread_sigmask(SIG_BLOCK, 0, &now);
    say("prof", sigismember(&now, SIGPROF)); say("trap", sigismember(&now, SIGTRAP));
    say("usr1", sigismember(&now, SIGUSR1)); say("kill", sigismember(&now, SIGKILL));
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGTRAP);
    sigprocmask(SIG_UNBLOCK, &one, &now);
    say("was", sigismember(&now, SIGTRAP)); say("trap", blocked(SIGTRAP)); say("prof", blocked(SIGPROF));
    sigprocmask(SIG_SETMASK, &old, &now);
    say("was prof", sigismember(&now, SIGPROF));
    say("prof", blocked(SIGPROF));
    say("bad how", sigprocmask(99, &one, 0)); say("errno", errno);
    say("bad how", pthread_sigmask(99, &one, 0));
}

// A blocked signal stays pending and is delivered when unblocked, exactly once.
static void pending(int s, int with_handler) {
    if (with_handler) install(s, count, 0);
    sigset_t one, was;
    sigemptyset(&one);
    sigaddset(&one, s);
    sigprocmask(SIG_BLOCK, &one, 0);
    kill(getpid(), s);
    burn(0.03);
    raise(s);
    burn(0.03);
    say("held", hits);
    sigpending(&was);
    say("pending", sigismember(&was, s));
    if (!with_handler) install(s, count, 0);
    burn(0.01);
    say("held", hits);
    sigprocmask(SIG_UNBLOCK, &one, 0);
    burn(0.01);
    say("delivered", hits > 0);
    say("blocked", blocked(s));
    int before = hits;
    burn(0.05);
    say("more", hits - before);
}

static void *sender(void *arg) {
    usleep(50000);
    kill(getpid(), (int)(intptr_t)arg);
    return 0;
}
static void waits(int s) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, s);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, 0);
    pthread_t t;
    pthread_create(&t, 0, sender, (void *)(intptr_t)s);
    burn(0.02);
    int got = 0;
    say("sigwait", sigwait(&one, &got)); say("got", got == s);
    pthread_join(t, 0);
    struct timespec limit = {0, 60000000}, a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    siginfo_t info;
    int r = sigtimedwait(&one, &info, &limit);
    say("timed", r); say("errno", errno);
    clock_gettime(CLOCK_MONOTONIC, &b);
    double took = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    say("whole time", took > 0.055);
    pthread_create(&t, 0, sender, (void *)(intptr_t)s);
    r = sigwaitinfo(&one, &info);
    say("info", r == s); say("code", info.si_code); say("pid", info.si_pid == getpid());
    pthread_join(t, 0);
    pthread_create(&t, 0, sender, (void *)(intptr_t)SIGUSR1);
    say("other", sigwaitinfo(&one, &info) == SIGUSR1);
    pthread_join(t, 0);
}

// The usual signal thread: everybody blocks everything, one thread waits.
static void *waiter(void *arg) {
    sigset_t all;
    sigfillset(&all);
    int got = 0;
    for (int i = 0; i < 3; i++) {
        if (sigwait(&all, &got)) return 0;
        ((int *)arg)[i] = got;
    }
    return 0;
}
static void signal_thread(void) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    int got[3] = {0};
    pthread_t t;
    pthread_create(&t, 0, waiter, got);
    int send[3] = {SIGPROF, SIGTRAP, SIGTERM};
    for (int i = 0; i < 3; i++) {
        burn(0.02);
        kill(getpid(), send[i]);
        usleep(30000);
    }
    pthread_join(t, 0);
    for (int i = 0; i < 3; i++) say("got", got[i]);
}

static void suspends(int s) {
    install(s, count, 0);
    sigset_t one, none;
    sigemptyset(&one);
    sigemptyset(&none);
    sigaddset(&one, s);
    sigprocmask(SIG_BLOCK, &one, 0);
    kill(getpid(), s);
    burn(0.02);
    say("held", hits);
    say("suspend", sigsuspend(&none)); say("errno", errno); say("hits", hits);
    kill(getpid(), s);
    struct timespec limit = {2, 0};
    say("ppoll", ppoll(0, 0, &limit, &none)); say("errno", errno); say("hits", hits);
    kill(getpid(), s);
    say("pselect", pselect(0, 0, 0, 0, &limit, &none)); say("errno", errno); say("hits", hits);
    kill(getpid(), s);
    struct epoll_event e;
    say("epoll", epoll_pwait(epoll_create1(0), &e, 1, 2000, &none)); say("errno", errno); say("hits", hits);
    say("blocked", blocked(s));
}

static void by_signalfd(int s) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, s);
    sigprocmask(SIG_BLOCK, &one, 0);
    int fd = signalfd(-1, &one, SFD_NONBLOCK | SFD_CLOEXEC);
    burn(0.03);
    struct signalfd_siginfo info;
    say("nothing", read(fd, &info, sizeof info)); say("errno", errno);
    kill(getpid(), s);
    burn(0.05);
    long r = read(fd, &info, sizeof info);
    say("one", r == sizeof info && (int)info.ssi_signo == s && info.ssi_code == SI_USER);
    burn(0.05);
    say("no more", read(fd, &info, sizeof info));
}

static sigjmp_buf out;
static int wanted = 20;
// One more may come before the timer is switched off: it jumps as well, and that is done again.
static void jump(int s) { (void)s; hits += hits < wanted; siglongjmp(out, 1); }
static void jumps(void) {
    install(SIGPROF, jump, 0);
    struct itimerval t = {{0, 4000}, {0, 4000}};
    setitimer(ITIMER_PROF, &t, 0);
    while (hits < 20)
        if (!sigsetjmp(out, 1)) burn(1);
    memset(&t, 0, sizeof t);
    setitimer(ITIMER_PROF, &t, 0);
    say("jumped", hits); say("blocked", blocked(SIGPROF));
    wanted = 40;
    install(SIGTRAP, jump, 0);
    for (int i = 0; i < 20; i++)
        if (!sigsetjmp(out, 1)) raise(SIGTRAP);
    say("jumped", hits); say("blocked", blocked(SIGTRAP));
    burn(0.05);
}

static volatile sig_atomic_t depth, deepest, was_blocked, other_blocked;
static void nested(int s) {
    if (++depth > deepest) deepest = depth;
    was_blocked = blocked(s);
    other_blocked = blocked(SIGUSR2);
    if (hits++ < 3) raise(s);
    burn(0.01);
    depth--;
}
static void flags(int s) {
    install(s, nested, SA_NODEFER);
    raise(s);
    say("nodefer depth", deepest); say("blocked inside", was_blocked);
    hits = 0; deepest = 0;
    struct sigaction a = {0};
    a.sa_handler = nested;
    sigaddset(&a.sa_mask, SIGUSR2);
    sigaction(s, &a, 0);
    raise(s);
    say("deferred depth", deepest); say("blocked inside", was_blocked); say("mask", other_blocked); say("hits", hits);
    say("blocked after", blocked(s) + blocked(SIGUSR2));
    hits = 0;
    install(s, count, SA_RESETHAND);
    raise(s);
    struct sigaction back;
    sigaction(s, 0, &back);
    say("once", hits); say("reset", back.sa_handler == SIG_DFL);
    signal(s, SIG_IGN);
    sigset_t one;
    sigemptyset(&one);
    say("sigset", sigset(s, count) == SIG_IGN);
    say("hold", sighold(s)); say("blocked", blocked(s));
    say("held", sigset(s, SIG_IGN) == SIG_HOLD); say("blocked", blocked(s));
    say("ignore", sigignore(s));
    sigaction(s, 0, &back);
    say("ignored", back.sa_handler == SIG_IGN);
}

// A handler that wants the thread's own stack gets it, although ours runs on the alternate one.
static volatile uintptr_t handler_sp;
static volatile int context_ok;
static void wide(int s, siginfo_t *i, void *c) {
    (void)s; (void)i;
    volatile char big[200000];
    for (size_t k = 0; k < sizeof big; k += 512) big[k] = (char)k;
    handler_sp = (uintptr_t)big;
    ucontext_t *u = c;
    context_ok = u->uc_mcontext.gregs[REG_RIP] != 0 && sigismember(&u->uc_sigmask, SIGUSR2) == 0;
    hits++;
}
static void stacks(int s, int onstack) {
    size_t bytes = onstack ? 1 << 20 : 16384;
    char *alt = mmap(0, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(alt, 4096, PROT_NONE);
    alt += 4096;
    stack_t st = {.ss_sp = alt, .ss_size = bytes}, back;
    sigaltstack(&st, 0);
    install(s, wide, SA_SIGINFO | (onstack ? SA_ONSTACK : 0));
    double f = 1.25, g = 0;
    for (int i = 0; i < 50; i++) {
        g += f * i;
        burn(0.001);
        raise(s);
    }
    uintptr_t low = (uintptr_t)alt;
    say("on alternate", handler_sp >= low && handler_sp < low + bytes);
    say("hits", hits); say("context", context_ok); say("sum", (long)g);
    sigaltstack(0, &back);
    say("same", back.ss_sp == alt && back.ss_size == bytes);
    say("blocked", blocked(s));
}

// The smallest alternate stack that a trivial handler needs.
static void tiny(void) {
    // Where a processor has AMX it is three pages, elsewhere one.
    size_t bytes = getauxval(AT_MINSIGSTKSZ) + 512, all = 8192 + bytes;
    char *m = mmap(0, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(m, 4096, PROT_NONE);
    memset(m + 4096, 0x5a, all - 4096);
    stack_t st = {.ss_sp = m + 8192, .ss_size = bytes}, back, old;
    say("set", sigaltstack(&st, &old)); say("old", old.ss_flags == SS_DISABLE);
    burn(0.1);
    sigaltstack(0, &back);
    say("same", back.ss_sp == st.ss_sp && back.ss_size == bytes && back.ss_flags == 0);
    long touched = 0;
    for (int i = 4096; i < 8192; i++) touched += m[i] != 0x5a;
    say("below untouched", touched);
    install(SIGUSR1, count, SA_ONSTACK);
    raise(SIGUSR1);
    say("hits", hits);
    stack_t off = {.ss_flags = SS_DISABLE};
    say("off", sigaltstack(&off, &back)); say("was", back.ss_sp == st.ss_sp && back.ss_size == bytes);
    burn(0.05);
    st.ss_size = 100;
    say("too small", sigaltstack(&st, 0)); say("errno", errno);
}

static void forced(int handler) {
    if (handler == 1) install(SIGTRAP, count, 0);
    if (handler == 2) signal(SIGTRAP, SIG_IGN);
    if (handler == 3) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, SIGTRAP);
        sigprocmask(SIG_BLOCK, &one, 0);
    }
    burn(0.02);
    fflush(stdout);
#if defined __x86_64__
    for (int i = 0; i < 5; i++) __asm__ volatile("int3");
#else
    raise(SIGTRAP);
#endif
    say("hits", hits);
    burn(0.02);
}

static void inherits(char **argv, int ignored) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGPROF);
    sigprocmask(SIG_BLOCK, &one, 0);
    if (ignored) signal(SIGTRAP, SIG_IGN);
    burn(0.02);
    fflush(stdout);
    execl("/proc/self/exe", argv[0], "report", (char *)0);
}
static void report(void) {
    struct sigaction a;
    sigaction(SIGTRAP, 0, &a);
    say("trap ignored", a.sa_handler == SIG_IGN);
    say("prof blocked", blocked(SIGPROF)); say("trap blocked", blocked(SIGTRAP));
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "ShdPnd", 6) || !strncmp(line, "SigPnd", 6)) printf("%s", line);
}

// A handler without SA_RESTART ends system calls, always: otherwise a read under an alarm waits for ever.
static pthread_t reader;
// The round that the reader has begun, and the last one that it has ended. A late signal of one round may end the next one.
static volatile int reading, ended, lost_wakeups;
static int rescue, kick;
static void *kicker(void *arg) {
    for (int i = 1; i <= *(int *)arg; i++) {
        while (reading < i) sched_yield();
        for (volatile int k = 0; k < (i % 50) * 300; k++) { }
        pthread_kill(reader, kick);
        for (int ms = 0; ended < i && ms < 400; ms++) usleep(ms < 20 ? 100 : 1000);
        if (ended < i) {
            lost_wakeups++;
            if (write(rescue, "x", 1) != 1) abort();
        }
    }
    return 0;
}
static void interrupts(int s, int rounds) {
    int fds[2];
    kick = s;
    if (pipe(fds)) abort();
    rescue = fds[1];
    reader = pthread_self();
    install(s, count, 0);
    pthread_t t;
    pthread_create(&t, 0, kicker, &rounds);
    for (int i = 1; i <= rounds; i++) {
        char c;
        int before = hits;
        reading = i;
        // The signal may come before the read: then the next one would wait, as without a recorder.
        while (hits == before) {
            struct pollfd p = {fds[0], POLLIN, 0};
            if (poll(&p, 1, 0) > 0) { if (read(fds[0], &c, 1) != 1) abort(); break; }
            if (ppoll(0, 0, &(struct timespec){0, 200000}, 0) < 0) break;
            if (hits != before) break;
            long r = read(fds[0], &c, 1);
            if (r == 1) break;
        }
        ended = i;
    }
    pthread_join(t, 0);
    // The kernel holds one pending SIGTRAP or SIGPROF per thread: a second one is merged with it, whatever
    // its sender (signal(7)).
    if (s == SIGTRAP || s == SIGPROF) say("mostly delivered", hits >= rounds * 9 / 10 && hits <= rounds);
    else say("hits", hits);
    // A signal right before the read is lost without a recorder too: seldom.
    say("mostly woken", lost_wakeups <= rounds / 50);
    fprintf(stderr, "lost %d, delivered %d of %d\n", lost_wakeups, hits, rounds);
}

// Handlers without SA_RESTART for signals that are never sent: no write may end early.
static void *slow_reader(void *arg) {
    static char buffer[1 << 16];
    int fd = *(int *)arg;
    while (read(fd, buffer, sizeof buffer) > 0) usleep(200);
    return 0;
}
static void unused_handlers(void) {
    static char block[1 << 16];
    int fds[2];
    if (pipe(fds)) abort();
    install(SIGPROF, count, 0);
    install(SIGTRAP, count, 0);
    pthread_t t;
    pthread_create(&t, 0, slow_reader, &fds[0]);
    long interrupted = 0;
    double end = cpu() + 0.5;
    while (cpu() < end)
        for (size_t at = 0; at < sizeof block;) {
            ssize_t n = write(fds[1], block + at, sizeof block - at);
            if (n < 0 && errno == EINTR) interrupted++;
            else if (n < 0) abort();
            else at += n;
        }
    close(fds[1]);
    pthread_join(t, 0);
    say("interrupted", interrupted);
    say("hits", hits);
}

int main(int argc, char **argv) {
    const char *c = argc > 1 ? argv[1] : "";
    setvbuf(stdout, 0, _IOFBF, 65536);
    if (!strcmp(c, "handler-prof")) own_handler(SIGPROF);
    else if (!strcmp(c, "handler-trap")) own_handler(SIGTRAP);
    else if (!strcmp(c, "itimer")) itimer();
    else if (!strcmp(c, "default-prof")) default_action(SIGPROF);
    else if (!strcmp(c, "default-trap")) default_action(SIGTRAP);
    else if (!strcmp(c, "masks")) masks();
    else if (!strcmp(c, "pending-prof")) pending(SIGPROF, 1);
    else if (!strcmp(c, "pending-trap")) pending(SIGTRAP, 1);
    else if (!strcmp(c, "pending-prof-late")) pending(SIGPROF, 0);
    else if (!strcmp(c, "pending-trap-late")) pending(SIGTRAP, 0);
    else if (!strcmp(c, "wait-prof")) waits(SIGPROF);
    else if (!strcmp(c, "wait-trap")) waits(SIGTRAP);
    else if (!strcmp(c, "signal-thread")) signal_thread();
    else if (!strcmp(c, "suspend-prof")) suspends(SIGPROF);
    else if (!strcmp(c, "suspend-trap")) suspends(SIGTRAP);
    else if (!strcmp(c, "signalfd-prof")) by_signalfd(SIGPROF);
    else if (!strcmp(c, "signalfd-trap")) by_signalfd(SIGTRAP);
    else if (!strcmp(c, "longjmp")) jumps();
    else if (!strcmp(c, "flags-prof")) flags(SIGPROF);
    else if (!strcmp(c, "flags-trap")) flags(SIGTRAP);
    else if (!strcmp(c, "stack-own")) stacks(SIGPROF, 0);
    else if (!strcmp(c, "stack-alternate")) stacks(SIGTRAP, 1);
    else if (!strcmp(c, "stack-tiny")) tiny();
    else if (!strcmp(c, "int3")) forced(0);
    else if (!strcmp(c, "int3-handled")) forced(1);
    else if (!strcmp(c, "int3-ignored")) forced(2);
    else if (!strcmp(c, "int3-blocked")) forced(3);
    else if (!strcmp(c, "inherit")) inherits(argv, 1);
    else if (!strcmp(c, "interrupt")) interrupts(SIGUSR1, 1500);
    else if (!strcmp(c, "interrupt-prof")) interrupts(SIGPROF, 300);
    else if (!strcmp(c, "interrupt-trap")) interrupts(SIGTRAP, 300);
    else if (!strcmp(c, "unused-handlers")) unused_handlers();
    else if (!strcmp(c, "report")) report();
    else return 64;
    return 0;
}
