// A wrong wall clock, preloaded into the recorder: it runs 0.1 % fast, and every five minutes it is set an hour forward or
// back, alternately. DRIFT_START is the time in ns at which this starts.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static int64_t wrong(int64_t now) {
    static int64_t start;
    if (!start) {
        const char *told = getenv("DRIFT_START");
        start = told ? atoll(told) : now;
    }
    int64_t gone = now - start;
    return now + gone / 1000 + (gone / (300 * SECOND) % 2 ? 3600 * SECOND : 0);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    long failed = syscall(SYS_clock_gettime, clock, out);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t now = wrong(out->tv_sec * SECOND + out->tv_nsec);
        out->tv_sec = now / SECOND;
        out->tv_nsec = now % SECOND;
    }
    return (int)failed;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
