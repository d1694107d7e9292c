// Threads that use the CPU in different ways; each reports its own CPU clock as its last act.
// usage: conservation MILLISECONDS_OF_CPU
#include "truth.h"
#include <signal.h>
#include <sys/mman.h>

static int64_t budget;
static volatile uint64_t sink;

static void user_bound(void) {
    while (thread_cpu() < budget) sink += SPIN(sink, 100000);
}

// Long system calls: one read of 8 MiB of zeroes is about a millisecond in the kernel.
static void kernel_bound(void) {
    static __thread char *buffer;
    const size_t size = 8 << 20;
    buffer = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    while (thread_cpu() < budget)
        if (read(fd, buffer, size) < 0) abort();
    close(fd);
    munmap(buffer, size);
}

// One system call may take many periods, and so may the unmapping.
static void page_faults(void) {
    const size_t size = 64 << 20;
    while (thread_cpu() < budget) {
        char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (p == MAP_FAILED) abort();
        munmap(p, size);
        p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t i = 0; i < size; i += 4096) ((volatile char *)p)[i] = 1;
        munmap(p, size);
    }
}

// Blocks every signal by the raw system call, without a library function that could be interposed; half of
// the time.
static void signal_blocker(void) {
    uint64_t all = ~0ull, none = 0;
    while (thread_cpu() < budget) {
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, 0, 8);
        int64_t until = thread_cpu() + 30000000;
        while (thread_cpu() < until) sink += SPIN(sink, 100000);
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, 0, 8);
        until = thread_cpu() + 30000000;
        while (thread_cpu() < until) sink += SPIN(sink, 100000);
    }
}

// The same through the library function that a recorder may interpose.
static void mask_user(void) {
    sigset_t all, old;
    sigfillset(&all);
    while (thread_cpu() < budget) {
        pthread_sigmask(SIG_BLOCK, &all, &old);
        sink += SPIN(sink, 1000000);
        pthread_sigmask(SIG_SETMASK, &old, 0);
        sink += SPIN(sink, 1000000);
    }
}

// Little CPU time, many sleeps: samples are far apart in time.
static void sleeper(void) {
    struct timespec nap = {0, 2000000};
    for (int64_t until = thread_cpu() + budget / 20; thread_cpu() < until;) {
        nanosleep(&nap, 0);
        sink += SPIN(sink, 200000);
    }
}

static const struct { const char *name; void (*run)(void); } KIND[] = {
    {"user", user_bound}, {"kernel", kernel_bound}, {"faults", page_faults},
    {"blocker", signal_blocker}, {"masks", mask_user}, {"sleeper", sleeper}, {"idle", 0},
};
enum { KINDS = sizeof KIND / sizeof *KIND, SHORT = 40 };

static void *worker(void *arg) {
    int k = (int)(intptr_t)arg;
    pthread_setname_np(pthread_self(), KIND[k].name);
    if (KIND[k].run) KIND[k].run();
    truth_thread(KIND[k].name);
    return 0;
}

static void *brief(void *arg) {
    (void)arg;
    int64_t until = 6000000;
    while (thread_cpu() < until) sink += SPIN(sink, 20000);
    truth_thread("brief");
    return 0;
}

int main(int argc, char **argv) {
    budget = (argc > 1 ? atoll(argv[1]) : 1000) * 1000000;
    pthread_t thread[KINDS], one;
    for (int k = 0; k < KINDS; k++) pthread_create(&thread[k], 0, worker, (void *)(intptr_t)k);
    for (int i = 0; i < SHORT; i++) {
        pthread_create(&one, 0, brief, 0);
        pthread_join(one, 0);
    }
    for (int k = 0; k < KINDS; k++) pthread_join(thread[k], 0);
    user_bound();
    truth_thread("main");
    return 0;
}
