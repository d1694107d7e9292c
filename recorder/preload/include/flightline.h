/* Flightline: records this process's CPU samples into a JFR file.
 *
 * Link with -lflightline, or preload libflightline.so and set FLIGHTLINE_OUTPUT or
 * FLIGHTLINE_REPOSITORY instead of calling anything.
 * The recording is written by a separate process, which is started here and is no child of this one (wait() never
 * sees it). This process gets no thread and keeps no file descriptor.
 *
 * All functions return 0 or a negated errno; none changes errno, none throws. */
#ifndef FLIGHTLINE_H
#define FLIGHTLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Set everything to zero, then size and what you want. Later versions add members at the end. */
struct flightline_options {
    size_t size;         /* sizeof(struct flightline_options) */
    const char *output;  /* file to write; %p stands for the process id. Not looked at if there is a repository */
    uint32_t rate_hz;    /* samples per second of CPU time, 1 to 10000; 0: the default, 99 */
    uint32_t reserved;   /* 0 */
    const char *engine;  /* "auto", "perf", "perf-user", "timer", "itimer"; NULL: auto */
    const char *program; /* path of the flightline program; NULL: FLIGHTLINE_BIN, beside the library, PATH */
    const char *events;  /* what to record, as "cpu@10ms,wall,lock"; NULL: cpu */
    const char *repository; /* a rolling repository instead of a file: its folder */
    const char *max_age;    /* chunks older than this are removed, as "24h"; NULL: none is */
    const char *max_size;   /* the repository never takes more disk than this, as "1g"; NULL: without limit */
    const char *labels;     /* told in every chunk, as "zone=eu-1,tier=web"; NULL: what is found by itself */
};

/* Starts recording all threads of this process, those that exist and later ones. Waits at most 500 ms.
 * Thread-safe; not async-signal-safe; not between fork and exec of a multi-threaded process.
 * -EALREADY: it is being recorded.  -ENOENT: no flightline program found.  -ETIMEDOUT, -EPROTO: it did not start
 * (and has said why on stderr).  -EINVAL: size, output or rate. */
int flightline_start(const struct flightline_options *options);

/* Stops recording and waits until the output is complete, at most 5 s (-ETIMEDOUT; it is completed later then).
 * Thread-safe; not async-signal-safe.  -ESRCH: nothing is being recorded.
 * Without it the recording is completed when the process ends, however it ends. */
int flightline_stop(void);

/* Has everything recorded so far written to the output, and waits for that at most 5 s (-ETIMEDOUT).
 * Thread-safe, async-signal-safe.  -ESRCH: nothing is being recorded. */
int flightline_dump(void);

/* 1 while this process is recorded by this library, else 0. Thread-safe, async-signal-safe. */
int flightline_active(void);

#ifdef __cplusplus
}
#endif
#endif
