// Programs that a recorder harmed before it was fixed: each case prints the same and ends the same as without
// one.
//   guest_safety CASE [ARGUMENT…]
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static volatile long spin;
NOINLINE static void burn(long rounds) { for (long i = 0; i < rounds; i++) spin++; }

// ----- alternate signal stacks ----------------------------------------------------------------------------------

static void busy_handler(int signo) {
    volatile char room[1024];
    memset((char *)room, signo, sizeof room);
    burn(100000000);
}

// The memory before a small stack belongs to the program. `nested`: signals arrive while a handler runs on
// it.
static int small_stack(size_t bytes, int nested) {
    enum { WHOLE = 1 << 20, BEFORE = 1 << 19 };
    char *memory = mmap(0, WHOLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 0x5a, BEFORE);
    stack_t stack = {.ss_sp = memory + BEFORE, .ss_size = bytes}, now;
    printf("set %d\n", sigaltstack(&stack, 0));
    sigaltstack(0, &now);
    printf("reads back %d\n", now.ss_sp == stack.ss_sp && now.ss_size == bytes);
    if (nested) {
        struct sigaction action = {0};
        action.sa_handler = busy_handler;
        action.sa_flags = SA_ONSTACK;
        sigaction(SIGUSR1, &action, 0);
        raise(SIGUSR1);
    } else {
        burn(100000000);
    }
    long overwritten = 0;
    for (long i = 0; i < BEFORE; i++) overwritten += memory[i] != 0x5a;
    printf("overwritten %ld\n", overwritten);
    return 0;
}

static char first[12000], second[12000];
static volatile int on_first;
static int in_first(const char *here) { return here >= first && here < first + sizeof first; }

static void looks_where(int signo) {
    char here;
    (void)signo;
    on_first = in_first(&here);
}

// A handler that checks whether it runs on the stack that the program set.
static int own_stack(void) {
    stack_t stack = {.ss_sp = first, .ss_size = sizeof first};
    sigaltstack(&stack, 0);
    struct sigaction action = {0};
    action.sa_handler = looks_where;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
    printf("on its own stack %d\n", on_first);
    return 0;
}

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

static size_t disarmed_bytes;
static void sets_another(int signo) {
    volatile char room[256];
    stack_t stack = {.ss_sp = second, .ss_size = disarmed_bytes, .ss_flags = SS_AUTODISARM};
    int set = sigaltstack(&stack, 0);
    memset((char *)room, signo, sizeof room);
    burn(20000000);
    char text[40];
    if (write(1, text, snprintf(text, sizeof text, "handler: set %d\n", set)) < 0) abort();
}

// With SS_AUTODISARM a handler may set another stack while it runs on the first, which is restored when it
// returns.
static int autodisarm(size_t bytes) {
    disarmed_bytes = bytes;
    stack_t stack = {.ss_sp = first, .ss_size = bytes, .ss_flags = SS_AUTODISARM}, now;
    fflush(stdout);
    sigaltstack(&stack, 0);
    struct sigaction action = {0};
    action.sa_handler = sets_another;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, 0);
    for (int i = 0; i < 3; i++) raise(SIGUSR1);
    sigaltstack(0, &now);
    printf("the first again %d\n", now.ss_sp == first && now.ss_size == bytes);
    return 0;
}

static void *has_small_stack(void *argument) {
    static __thread char bytes[8192];
    stack_t stack = {.ss_sp = bytes, .ss_size = sizeof bytes};
    sigaltstack(&stack, 0);
    return argument;
}

static long address_space_kb(void) {
    char line[256];
    long kb = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "VmSize: %ld", &kb);
    fclose(status);
    return kb;
}

// Ending threads must release the records of their stacks.
static int many_stacks(void) {
    pthread_t thread;
    long before = 0;
    for (int i = 0; i < 2000; i++) {
        if (pthread_create(&thread, 0, has_small_stack, 0)) abort();
        pthread_join(thread, 0);
        if (i == 20) before = address_space_kb();
    }
    printf("grown by less than 40 MB: %d\n", address_space_kb() - before < 40 << 10);
    return 0;
}

// ----- threads and stacks of other kinds ------------------------------------------------------------------------

static char raw_stack[1 << 16] __attribute__((aligned(16)));
static volatile int raw_runs = 1;
__attribute__((optimize("no-stack-protector"))) static int raw_body(void *argument) {
    (void)argument;
    for (long i = 0; i < 300000000; i++) spin++;
    return 0;
}

// A thread whose thread pointer is not the C library's, as in some runtimes.
static int foreign_thread_pointer(void) {
    char *block = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(block, 4096, PROT_NONE);
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                CLONE_CHILD_CLEARTID;
    if (clone(raw_body, raw_stack + sizeof raw_stack, flags, 0, 0, block + 4096, &raw_runs) < 0) abort();
    while (raw_runs) usleep(1000);
    puts("done");
    return 0;
}

static ucontext_t outside, inside;
static long work_at_end;
NOINLINE static long recurse(int depth) {
    volatile char room[200];
    room[0] = (char)depth;
    if (depth == 0) {
        burn(work_at_end);
        return 0;
    }
    return recurse(depth - 1) + room[0] * 0;
}
static int coroutine_depth;
static void coroutine_body(void) {
    recurse(coroutine_depth);
    swapcontext(&inside, &outside);
}

// A deep stack that is not registered.
static int coroutine(int depth, long rounds) {
    enum { BYTES = 8 << 20 };
    coroutine_depth = depth;
    work_at_end = rounds;
    char *stack = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = BYTES;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine_body, 0);
    swapcontext(&outside, &inside);
    puts("done");
    return 0;
}

static long leaf(void) {
    burn(work_at_end);
    return 0;
}

// Generated code without frame pointers: recursion, then many plain instructions, then the return.
static int generated(int depth, int plain, long rounds) {
    work_at_end = rounds;
    unsigned char *code = mmap(0, 1 << 20, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *at = code;
    // sub $8,%rsp; test %rdi,%rdi; jnz +4; call *%rsi; jmp +8; dec %rdi; call code
    static const unsigned char head[] = {0x48, 0x83, 0xec, 8, 0x48, 0x85, 0xff, 0x75, 4,
                                         0xff, 0xd6, 0xeb, 8, 0x48, 0xff, 0xcf, 0xe8};
    memcpy(at, head, sizeof head);
    at += sizeof head;
    int back = (int)(code - (at + 4));
    memcpy(at, &back, 4);
    at += 4;
    // add $1,%rax
    for (int i = 0; i < plain; i++, at += 4) memcpy(at, "\x48\x83\xc0\x01", 4);
    // add $8,%rsp; ret
    memcpy(at, "\x48\x83\xc4\x08\xc3", 5);
    ((long (*)(long, long (*)(void)))code)(depth, leaf);
    puts("done");
    return 0;
}

static __thread sigjmp_buf back;
static long caught;
static void on_overflow(int signo) {
    (void)signo;
    burn(300000);
    __sync_fetch_and_add(&caught, 1);
    siglongjmp(back, 1);
}
NOINLINE static long deep(long n) {
    volatile char room[3000];
    room[0] = (char)n;
    return deep(n + 1) + room[n % 3000];
}
static void *overflows(void *argument) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, 0);
    for (volatile int i = 0; i < 20; i++)
        if (!sigsetjmp(back, 1)) deep(0);
    return argument;
}

// Handlers of a stack overflow, whose interrupted stack is full.
static int overflow(void) {
    struct sigaction action = {0};
    action.sa_handler = on_overflow;
    action.sa_flags = SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, 0);
    pthread_t thread;
    pthread_create(&thread, 0, overflows, 0);
    pthread_join(thread, 0);
    printf("caught %ld\n", caught);
    return 0;
}

// ----- children -------------------------------------------------------------------------------------------------

static volatile int stop;
static void nothing(int signo) { (void)signo; }
static void *changes_dispositions(void *argument) {
    struct sigaction action = {0};
    action.sa_handler = nothing;
    while (!stop) {
        action.sa_flags ^= SA_RESTART;
        sigaction(SIGPROF, &action, 0);
    }
    return argument;
}

// Children that run no fork handler, made while other threads change state that such a child has copied.
static int raw_children(int count) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(threads + i, 0, changes_dispositions, 0);
    int hung = 0;
    for (int i = 0; i < count && hung < 3; i++) {
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            struct sigaction action = {0};
            action.sa_handler = SIG_DFL;
            sigaction(SIGPROF, &action, 0);
            sigaction(SIGTRAP, &action, 0);
            _exit(0);
        }
        int tries = 0;
        while (waitpid(child, 0, WNOHANG) != child && ++tries < 20000) usleep(tries < 100 ? 50 : 1000);
        if (tries == 20000) {
            hung++;
            kill(child, SIGKILL);
            waitpid(child, 0, 0);
        }
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    printf("hung %d\n", hung);
    return 0;
}

static void *burns(void *argument) {
    burn(20000000);
    return argument;
}

// The first process of a pid namespace creates the first one of another, as container runtimes do: both have
// pid 1.
static int nested(void) {
    pid_t first_child = fork();
    if (first_child == 0) {
        printf("pid %d\n", getpid());
        fflush(stdout);
        burn(100000000);
        long child = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            pthread_t thread;
            pthread_create(&thread, 0, burns, 0);
            pthread_join(thread, 0);
            execl("/bin/true", "true", (char *)0);
            _exit(3);
        }
        int status = -1;
        waitpid((pid_t)child, &status, 0);
        printf("child %x\n", status);
        burn(400000000);
        struct timespec used;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        fprintf(stderr, "nested: %ld ms\n", used.tv_sec * 1000 + used.tv_nsec / 1000000);
        _exit(fflush(stdout));
    }
    int status = -1;
    waitpid(first_child, &status, 0);
    printf("status %x\n", status);
    return 0;
}

// ----- libraries ------------------------------------------------------------------------------------------------

// The library's constructor starts a thread that calls a function, and waits for it.
static int constructor_waits(const char *library, const char *calls) {
    setenv("SAFETY_CALLS", calls, 1);
    puts(dlopen(library, RTLD_NOW) ? "opened" : dlerror());
    return 0;
}

int main(int count, char **words) {
    const char *name = count > 1 ? words[1] : "";
    long number = count > 2 ? atol(words[2]) : 0;
    if (!strcmp(name, "small-stack")) return small_stack((size_t)number, 0);
    if (!strcmp(name, "small-stack-nested")) return small_stack((size_t)number, 1);
    if (!strcmp(name, "own-stack")) return own_stack();
    if (!strcmp(name, "autodisarm")) return autodisarm((size_t)number);
    if (!strcmp(name, "many-stacks")) return many_stacks();
    if (!strcmp(name, "foreign-thread-pointer")) return foreign_thread_pointer();
    if (!strcmp(name, "coroutine")) return coroutine((int)number, atol(words[3]));
    if (!strcmp(name, "generated")) return generated((int)number, atoi(words[3]), atol(words[4]));
    if (!strcmp(name, "overflow")) return overflow();
    if (!strcmp(name, "raw-children")) return raw_children((int)number);
    if (!strcmp(name, "nested")) return unshare(CLONE_NEWPID) ? 65 : nested();
    if (!strcmp(name, "constructor-waits")) return constructor_waits(words[2], words[3]);
    return 64;
}
