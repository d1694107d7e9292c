// The ground truth of a test program, written as tab-separated lines to the file named by TRUTH_FILE:
//   thread <tid> <name> <cpu ns>      a thread's own CPU clock, read as its last act
//   function <name> <cpu ns>          CPU time spent in a function, by the thread's own clock around it
//   count <name> <n>                  any other number
// It uses only the program's own clock readings, independently of the recorder.
#ifndef TRUTH_H
#define TRUTH_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static inline int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t thread_cpu(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

static inline int truth_fd(void) {
    static int fd = -2;
    if (fd == -2) {
        const char *path = getenv("TRUTH_FILE");
        fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    }
    return fd;
}

// One write per line: with O_APPEND, lines of several threads do not mix.
static inline void truth_line(const char *kind, const char *key, const char *name, int64_t value) {
    char line[256];
    int n = snprintf(line, sizeof line, "%s%s%s\t%s\t%lld\n", kind, *key ? "\t" : "", key, name, (long long)value);
    int fd = truth_fd();
    if (fd >= 0 && write(fd, line, (size_t)n) != n) abort();
}

static inline void truth_thread(const char *name) {
    char tid[16];
    snprintf(tid, sizeof tid, "%ld", syscall(SYS_gettid));
    truth_line("thread", tid, name, thread_cpu());
}

static inline void truth_function(const char *name, int64_t ns) { truth_line("function", "", name, ns); }
static inline void truth_count(const char *name, int64_t n) { truth_line("count", "", name, n); }

// From half to one and a half of n, pseudo-random: calls of one length would form a pattern, and a sampling
// period that is a multiple of it would hit the same ones.
static inline uint64_t about(uint64_t n, uint64_t seed) { return n / 2 + (seed * 0x9E3779B97F4A7C15u >> 32) % n; }

// Returns once a thread of this process sleeps in the kernel: only then is it certain to wait.
static inline void until_asleep(int tid) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    for (;;) {
        // By system calls, because some test programs measure the C library's functions.
        long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
        long n = fd < 0 ? 0 : syscall(SYS_read, fd, text, sizeof text - 1);
        if (fd >= 0) syscall(SYS_close, fd);
        if (n <= 0) abort();
        text[n] = 0;
        // The name is in brackets and may contain any character.
        const char *end = strrchr(text, ')');
        if (end && end[1] && end[2] == 'S') return;
        struct timespec t = {0, 200000};
        syscall(SYS_nanosleep, &t, NULL);
    }
}

// Registers only, no memory: all of the time is spent in this code.
#define SPIN(seed, rounds)                                                            \
    ({                                                                                \
        uint64_t x_ = (seed) | 1;                                                     \
        for (uint64_t i_ = 0; i_ < (uint64_t)(rounds); i_++) {                        \
            x_ ^= x_ << 13;                                                           \
            x_ ^= x_ >> 7;                                                            \
            x_ ^= x_ << 17;                                                           \
            __asm__ volatile("" : "+r"(x_));                                          \
        }                                                                             \
        x_;                                                                           \
    })
#endif
