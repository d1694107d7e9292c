// Dies by a signal, or handles it, and checks the signal's information.
// usage: fatal die HOW | traced HOW | core HOW | handle WHAT
#include "truth.h"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <ucontext.h>

static volatile uint64_t sink;
static int *volatile nowhere;
static void (*volatile no_code)(void);

// ----- three threads: one runs, one sleeps, one waits -----

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static volatile int spinner, sleeper, waiter;

NOINLINE static void spin_here(void) {
    for (;;) sink++;
}
NOINLINE static void sleep_here(void) {
    for (;;) {
        struct timespec t = {1000, 0};
        nanosleep(&t, NULL);
        sink++;
    }
}
NOINLINE static void wait_here(void) {
    pthread_mutex_lock(&held);
    sink++;
}
static void *run_spinner(void *x) {
    spinner = (int)syscall(SYS_gettid);
    spin_here();
    return x;
}
static void *run_sleeper(void *x) {
    sleeper = (int)syscall(SYS_gettid);
    sleep_here();
    return x;
}
static void *run_waiter(void *x) {
    waiter = (int)syscall(SYS_gettid);
    wait_here();
    return x;
}

static void start_threads(void) {
    pthread_t t;
    pthread_mutex_lock(&held);
    pthread_create(&t, NULL, run_spinner, NULL);
    pthread_create(&t, NULL, run_sleeper, NULL);
    pthread_create(&t, NULL, run_waiter, NULL);
    while (!spinner || !sleeper || !waiter) sched_yield();
    until_asleep(sleeper);
    until_asleep(waiter);
    // Both threads of the pair wait in the kernel. Gives the third one some more processor time.
    for (int i = 0; i < 1000; i++) sched_yield();
}

// ----- ways to die -----

NOINLINE static uint64_t overflow_here(volatile uint64_t *above) {
    volatile uint64_t block[512];
    block[0] = above ? *above + 1 : 0;
    return overflow_here(block) + block[0];
}

// Keeps undefined behaviour that the compiler would remove.
NOINLINE static void divide(void) {
    int quotient = 1, rest = 0;
    __asm__ volatile("idivl %2" : "+a"(quotient), "+d"(rest) : "r"(0));
}

NOINLINE static void crash_here(const char *how) {
    if (!strcmp(how, "segv")) *nowhere = 1;
    else if (!strcmp(how, "jump")) no_code();
    else if (!strcmp(how, "general")) *(volatile int *)0x8000000000000000ull = 1;
    else if (!strcmp(how, "bus")) {
        int fd = memfd_create("short", 0);
        *(volatile char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) = 1;
    } else if (!strcmp(how, "ill")) __asm__ volatile("ud2");
    else if (!strcmp(how, "fpe")) divide();
    else if (!strcmp(how, "trap")) __asm__ volatile("int3");
    else if (!strcmp(how, "sys")) raise(SIGSYS);
    else if (!strcmp(how, "abort")) abort();
    else if (!strcmp(how, "kill")) kill(getpid(), SIGSEGV);
    else if (!strcmp(how, "queue")) {
        union sigval v = {.sival_int = 77};
        sigqueue(getpid(), SIGFPE, v);
    } else if (!strcmp(how, "overflow")) sink = overflow_here(NULL);
    else _exit(99);
    sink++;
}

// ----- a parent that sees every signal of its child -----

static int traced(const char *how) {
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        crash_here(how);
        _exit(98);
    }
    siginfo_t first, last;
    struct user_regs_struct first_regs, last_regs;
    int stops = 0, status;
    for (;;) {
        if (waitpid(child, &status, 0) != child) return 90;
        if (!WIFSTOPPED(status)) break;
        int signo = WSTOPSIG(status);
        if (signo != SIGSTOP && signo != SIGPROF && (signo != SIGTRAP || !strcmp(how, "trap"))) {
            siginfo_t info;
            if (ptrace(PTRACE_GETSIGINFO, child, 0, &info)) return 91;
            // A sample of the recorder is a trap too, with another si_code.
            if (!(signo == SIGTRAP && info.si_code == 6)) {
                struct user_regs_struct *to = stops ? &last_regs : &first_regs;
                if (ptrace(PTRACE_GETREGS, child, 0, to)) return 92;
                *(stops ? &last : &first) = info;
                stops++;
            }
        }
        ptrace(PTRACE_CONT, child, 0, signo == SIGSTOP ? 0 : signo);
    }
    if (stops == 1) last = first, last_regs = first_regs;
    truth_count("stops", stops);
    truth_count("status", status & ~0x80);
    truth_count("signal same", first.si_signo == last.si_signo && first.si_signo == WTERMSIG(status));
    truth_count("code same", first.si_code == last.si_code);
    truth_count("address same", first.si_addr == last.si_addr);
    truth_count("pc same", first_regs.rip == last_regs.rip);
    truth_count("sp same", first_regs.rsp == last_regs.rsp);
    truth_count("rbx same", first_regs.rbx == last_regs.rbx && first_regs.r12 == last_regs.r12);
    return 0;
}

// ----- a parent whose child writes a core file, if the system permits it -----

static int cored(const char *how) {
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {64 << 20, 64 << 20};
        setrlimit(RLIMIT_CORE, &limit);
        crash_here(how);
        _exit(98);
    }
    int status;
    if (waitpid(child, &status, 0) != child) return 90;
    truth_count("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    truth_count("core", WCOREDUMP(status) != 0);
    truth_count("child", child);
    return 0;
}

// ----- handlers of the program's own -----

static sigjmp_buf back;
static char *guard_page;
static volatile int wrong, seen;
static char alternate[65536];

static void expect(int ok, int number) {
    if (!ok && !wrong) wrong = number;
}

static uint64_t mask_now(void) {
    uint64_t mask = 0;
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    for (int i = 1; i < 32; i++)
        if (sigismember(&set, i)) mask |= 1ull << i;
    return mask;
}

static int on_alternate(void *at) { return (char *)at >= alternate && (char *)at < alternate + sizeof alternate; }

static void plain_handler(int signo, siginfo_t *info, void *context) {
    int here;
    expect(signo == SIGSEGV, 1);
    expect(info->si_signo == SIGSEGV && info->si_code == SEGV_ACCERR, 2);
    expect(info->si_addr == guard_page + 8, 3);
    expect(!on_alternate(&here), 4);
    expect(mask_now() == (1ull << SIGSEGV | 1ull << SIGUSR1), 5);
    expect(((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] != 0, 6);
    seen++;
    siglongjmp(back, 1);
}

static void alternate_handler(int signo, siginfo_t *info, void *context) {
    int here;
    (void)context, (void)info;
    expect(signo == SIGSEGV, 11);
    expect(on_alternate(&here), 12);
    expect(mask_now() == 0, 13);
    seen++;
    siglongjmp(back, 1);
}

static void short_handler(int signo) {
    expect(signo == SIGFPE, 21);
    seen++;
    siglongjmp(back, 1);
}

// As a runtime would: makes the page readable and returns.
static void mending_handler(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)context;
    mprotect(guard_page, 4096, PROT_READ | PROT_WRITE);
    expect(info->si_addr == guard_page + 8, 31);
    errno = 1234;
    seen++;
}

NOINLINE static void fault_here(void) { *(volatile int *)(guard_page + 8) = 1; }

static void again_handler(int signo) {
    // Here, and not when this handler returns.
    signal(signo, SIG_DFL);
    sigrelse(signo);
    raise(signo);
    sink++;
}

static void set(int signo, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    sigaddset(&a.sa_mask, SIGUSR1);
    if (flags & SA_NODEFER) sigemptyset(&a.sa_mask);
    if (sigaction(signo, &a, NULL)) abort();
}

static int handle(const char *what) {
    struct sigaction old;
    guard_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int times = 3000;
    if (!strcmp(what, "plain") || !strcmp(what, "overflow") || !strcmp(what, "alternate")) {
        int other = strcmp(what, "plain");
        stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
        if (sigaltstack(&stack, NULL)) return 80;
        // An alternate stack is installed, but this handler does not use it.
        set(SIGSEGV, other ? alternate_handler : plain_handler, other ? SA_ONSTACK | SA_NODEFER : 0);
        if (sigaction(SIGSEGV, NULL, &old)) return 81;
        expect(old.sa_sigaction == (other ? alternate_handler : plain_handler), 40);
        expect((old.sa_flags & SA_ONSTACK) == (other ? SA_ONSTACK : 0), 41);
        expect(sigismember(&old.sa_mask, SIGUSR1) == !other && !sigismember(&old.sa_mask, SIGPROF), 42);
        if (!strcmp(what, "overflow")) times = 20;
        for (volatile int i = 0; i < times; i++)
            if (!sigsetjmp(back, 1)) {
                if (!strcmp(what, "overflow")) sink = overflow_here(NULL);
                else fault_here();
                expect(0, 43);
            }
    } else if (!strcmp(what, "signal")) {
        // Old interfaces, one of which resets the handler.
        expect(signal(SIGFPE, short_handler) == SIG_DFL, 50);
        expect(signal(SIGFPE, SIG_IGN) == short_handler, 51);
        raise(SIGFPE);
        expect(signal(SIGFPE, SIG_DFL) == SIG_IGN, 52);
        expect(sigset(SIGFPE, short_handler) == SIG_DFL, 53);
        expect(siginterrupt(SIGFPE, 1) == 0, 54);
        sigaction(SIGFPE, NULL, &old);
        expect(old.sa_handler == short_handler && !(old.sa_flags & SA_RESTART), 55);
        expect(sysv_signal(SIGFPE, short_handler) == short_handler, 56);
        times = 1;
        if (!sigsetjmp(back, 1)) divide();
        expect(signal(SIGFPE, SIG_DFL) == SIG_DFL, 57);
    } else if (!strcmp(what, "mend")) {
        set(SIGSEGV, mending_handler, SA_RESTART);
        for (int i = 0; i < times; i++) {
            mprotect(guard_page, 4096, PROT_NONE);
            fault_here();
            expect(*(int *)(guard_page + 8) == 1, 60);
        }
    } else if (!strcmp(what, "again")) {
        signal(SIGSEGV, again_handler);
        crash_here("segv");
    } else if (!strcmp(what, "once")) {
        // The one-shot handler returns, and the fault repeats.
        set(SIGSEGV, NULL, 0);
        struct sigaction a = {.sa_sigaction = mending_handler, .sa_flags = SA_SIGINFO | (int)SA_RESETHAND};
        sigaction(SIGSEGV, &a, NULL);
        fault_here();
        sigaction(SIGSEGV, NULL, &old);
        expect(old.sa_handler == SIG_DFL, 70);
        if (wrong) return wrong;
        crash_here("segv");
    } else if (!strcmp(what, "spawn")) {
        // Children start with the default actions, and change them in shared memory.
        set(SIGSEGV, mending_handler, 0);
        for (int i = 0; i < 50; i++) {
            int status;
            pid_t child = vfork();
            if (child == 0) {
                struct sigaction d = {.sa_handler = SIG_DFL};
                sigaction(SIGSEGV, &d, NULL);
                execl("/bin/sh", "sh", "-c", "kill -SEGV $$", (char *)NULL);
                _exit(97);
            }
            waitpid(child, &status, 0);
            expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, 72);
            sigaction(SIGSEGV, NULL, &old);
            expect(old.sa_sigaction == mending_handler, 73);
        }
        times = 0;
    } else {
        return 82;
    }
    if (seen != times) expect(0, 44);
    truth_count("handled", seen);
    return wrong;
}

int main(int argc, char **argv) {
    if (argc < 3) return 89;
    if (!strcmp(argv[1], "traced")) return traced(argv[2]);
    if (!strcmp(argv[1], "core")) return cored(argv[2]);
    if (!strcmp(argv[1], "handle")) return handle(argv[2]);
    start_threads();
    truth_count("spinner", spinner);
    truth_count("sleeper", sleeper);
    truth_count("waiter", waiter);
    crash_here(argv[2]);
    return 88;
}
