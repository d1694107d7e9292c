// The work of a program for months, on command: each line of input is `KIND COUNT`, answered by `done`.
//   stacks MS        burns MS of CPU time in each of two threads, and never repeats a stack
//   threads N        starts and ends N threads, each with a name of its own
//   modules N        loads, uses and unloads N copies of MODULE, each a file of its own in DIRECTORY
//   processes N      starts N children, which end at once; every eighth executes this program again
// usage: endless DIRECTORY MODULE
#include "truth.h"
#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

typedef uint64_t (*work_fn)(uint64_t, uint64_t (*)(uint64_t));

static __thread uint64_t way = 88172645463325252;
static volatile uint64_t sink;
static int64_t each;

static uint64_t turn(void) {
    way ^= way << 13;
    way ^= way >> 7;
    way ^= way << 17;
    return way;
}

#define DEPTH 120
static uint64_t down(int depth);
#define STEP(n)                                        \
    NOINLINE static uint64_t step_##n(int depth) {     \
        uint64_t x = down(depth - 1);                  \
        __asm__ volatile("" : "+r"(x));                \
        return x + n;                                  \
    }
STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)

NOINLINE static uint64_t down(int depth) {
    if (depth <= 0) return SPIN(way, 4000);
    switch (turn() >> 20 & 7) {
    case 0: return step_0(depth) ^ 1;
    case 1: return step_1(depth) ^ 1;
    case 2: return step_2(depth) ^ 1;
    case 3: return step_3(depth) ^ 1;
    case 4: return step_4(depth) ^ 1;
    case 5: return step_5(depth) ^ 1;
    case 6: return step_6(depth) ^ 1;
    default: return step_7(depth) ^ 1;
    }
}

static void *burn(void *arg) {
    way = (uint64_t)clock_ns(CLOCK_MONOTONIC) | 1 | (uint64_t)(uintptr_t)arg << 40;
    int64_t until = thread_cpu() + each;
    while (thread_cpu() < until) sink += down(DEPTH);
    return 0;
}

static void *brief(void *arg) {
    char name[16];
    snprintf(name, sizeof name, "t%lu", (unsigned long)(uintptr_t)arg);
    prctl(PR_SET_NAME, name);
    sink += SPIN(sink, 20000);
    return 0;
}

static void threads(long count) {
    static unsigned long number;
    for (long i = 0; i < count; i += 4) {
        pthread_t ids[4];
        for (int k = 0; k < 4; k++)
            if (pthread_create(&ids[k], 0, brief, (void *)(uintptr_t)number++)) abort();
        for (int k = 0; k < 4; k++) pthread_join(ids[k], 0);
    }
}

NOINLINE static uint64_t called_back(uint64_t x) { return SPIN(x, 20000); }

static void copy(const char *from, const char *to) {
    char buffer[65536];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    if (in < 0 || out < 0) abort();
    for (ssize_t n; (n = read(in, buffer, sizeof buffer)) > 0;)
        if (write(out, buffer, (size_t)n) != n) abort();
    close(in);
    close(out);
}

static void modules(const char *folder, const char *module, long count) {
    static long number, first;
    char path[4096];
    // Files of the previous command: the recorder may still read them there.
    for (; first < number; first++) {
        snprintf(path, sizeof path, "%s/copy%ld.so", folder, first);
        unlink(path);
    }
    for (long i = 0; i < count; i++, number++) {
        snprintf(path, sizeof path, "%s/copy%ld.so", folder, number);
        copy(module, path);
        void *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        work_fn work = loaded ? (work_fn)dlsym(loaded, "module_work_0") : 0;
        if (!work) abort();
        // Long enough to be seen, however fast the machine is.
        int64_t until = thread_cpu() + 1000000 + (int64_t)(turn() >> 20) % 2000000;
        while (thread_cpu() < until) sink += work(sink, called_back);
        dlclose(loaded);
    }
}

static void processes(char **argv, long count) {
    for (long i = 0; i < count; i++) {
        pid_t child = fork();
        if (child < 0) abort();
        if (!child) {
            sink += SPIN(sink, 20000);
            if (i % 8 == 0) execl("/proc/self/exe", argv[0], (char *)0);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) abort();
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 0;
    printf("ready %d\n", getpid());
    fflush(stdout);
    char kind[32];
    long count;
    while (scanf("%31s %ld", kind, &count) == 2) {
        if (!strcmp(kind, "stacks")) {
            each = count * 1000000;
            pthread_t other;
            if (pthread_create(&other, 0, burn, (void *)1)) abort();
            burn(0);
            pthread_join(other, 0);
        } else if (!strcmp(kind, "threads")) {
            threads(count);
        } else if (!strcmp(kind, "modules")) {
            modules(argv[1], argv[2], count);
        } else if (!strcmp(kind, "processes")) {
            processes(argv, count);
        } else {
            abort();
        }
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
