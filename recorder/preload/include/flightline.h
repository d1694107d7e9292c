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

/* Starts recording all threads of this process, those that exist and later ones. Waits at most 5 s.
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

/* Set everything to zero, then size and what you want; what is NULL is taken from the environment. Later versions add members at the end. */
struct flightline_join_options {
    size_t size;            /* sizeof(struct flightline_join_options) */
    const char *service;    /* address, as "http://127.0.0.1:7070", which is the default; FLIGHTLINE_JOIN */
    const char *token_file; /* file whose first line is the service's token; FLIGHTLINE_JOIN_TOKEN_FILE */
    const char *ca_file;    /* certificates (PEM) that the service's is signed by; FLIGHTLINE_JOIN_CA_FILE */
    const char *labels;     /* as "zone=eu-1,role=jobmanager"; FLIGHTLINE_LABELS */
    uint32_t rate_hz;       /* record CPU time all the time, too, at this rate, 1 to 1000; 0: only when asked; FLIGHTLINE_JOIN_RATE */
    uint32_t reserved;      /* 0 */
    const char *program;    /* path of the flightline program; NULL: FLIGHTLINE_BIN, beside the library, PATH */
};

/* Has a profiling service (flightline serve) record this process whenever it is asked to, from now until it ends. An agent process
 * is started, which is no child of this one, and is not waited for; whether the service is there is its affair, it tries again.
 * Thread-safe; not async-signal-safe; not between fork and exec of a multi-threaded process.
 * -EALREADY: it has joined.  -ENOENT: no flightline program found.  -ENOEXEC: it cannot be run.  -EINVAL: size, or rate. */
int flightline_join(const struct flightline_join_options *options);

/* -- Spans: what a thread is working at ---------------------------------------------------------------------------------
 *
 * Samples know the span they were taken in; of spans with samples the recording has name, begin, end and labels. Needs no recording
 * to be going on, and no library: if no libflightline.so is in the process when the first of these is called, they do nothing and
 * return 0 or -ESRCH. (Define FLIGHTLINE_LINKED before including this if you link with -lflightline.)
 * The thread's context has the layout of OpenTelemetry's OTEP 4947. Another tracer in the process keeps a variable of its own.
 *
 * All are thread-safe and about the calling thread; none is async-signal-safe, changes errno or throws. */

/* Ids as bytes of W3C Trace Context; zeros: none. Set what you do not know to zero. */
struct flightline_span_context {
    uint8_t trace_id[16];
    uint8_t span_id[8];
    uint8_t local_root_span_id[8]; /* the outermost span of this trace in this process; zeros: found by nesting */
    uint8_t flags;                 /* trace flags; 1: sampled by whoever traces */
    uint8_t reserved[7];           /* 0 */
};

/* -- Scopes: labels of a unit of work, as a task attempt is ---------------------------------------------------------------
 *
 * Each sample that is taken in a scope carries its labels: on the thread that began it, on others that entered it, and in all spans
 * within. A scope that is begun within another one has that one's labels, too; of one key the last value counts. When it ends, the
 * recording has it with begin, end and labels. No heap, whether anybody records or not. */

struct flightline_scope_label {
    const char *key;   /* UTF-8, 1 to 63 bytes; at most 256 different ones in a process */
    const char *value; /* UTF-8 (other bytes become U+FFFD); one longer than 255 bytes ends in "..." (U+2026); NULL: empty */
};

/* Room for a scope, on the stack or anywhere; it must not be moved or copied. Set size and the rest to zero:
 * `struct flightline_scope scope = FLIGHTLINE_SCOPE_INIT;` */
struct flightline_scope {
    size_t size;            /* sizeof(struct flightline_scope) */
    uint64_t reserved[127]; /* 0 */
};
#define FLIGHTLINE_SCOPE_INIT {sizeof(struct flightline_scope), {0}}

#ifdef FLIGHTLINE_LINKED

/* Begins a scope with these labels and enters it on this thread. Returns how many labels are left out (their keys are wrong or too many,
 * there are more than 64, or more than 600 bytes of values and two for each): samples then have the label flightline.labels_left_out.
 * -EINVAL: no scope, its size, no labels. */
int flightline_scope_begin(struct flightline_scope *scope, const struct flightline_scope_label *labels, size_t count);

/* Enters it on another thread, while it lasts. Returns a token, 0 if it cannot be entered. */
uint64_t flightline_scope_enter(const struct flightline_scope *scope);

/* Leaves it there. -ESRCH: nothing of that token on this thread. */
int flightline_scope_exit(const struct flightline_scope *scope, uint64_t token);

/* Leaves and ends it, on the thread that began it and when all others have left it. -ESRCH: it is not begun, or not on this thread: then it
 * goes on. */
int flightline_scope_end(struct flightline_scope *scope);

/* Begins a span and enters it: a child of the thread's current one, or the first of a new trace. The name is copied (at most 255
 * bytes). Returns a token, 0 if it cannot be entered. */
uint64_t flightline_span_begin(const char *name);

/* Leaves and ends it, on the thread where it began. Others that were begun meanwhile may end later. -ESRCH: no such span on this
 * thread, as in a child that was forked meanwhile. */
int flightline_span_end(uint64_t token);

/* Enters a span that somebody else made, or that is being worked at on several threads. Returns a token, 0 if it cannot be entered. */
uint64_t flightline_enter(const struct flightline_span_context *context);

/* Leaves it. -ESRCH: nothing of that token on this thread. */
int flightline_exit(uint64_t token);

/* Sets a label of the thread's current span and of those that will begin within it: value cut at 255 bytes, UTF-8. -ESRCH: no span.
 * -EINVAL: the key is empty, longer than 63 bytes, or the process has 256 keys already. -ENOSPC: more than 612 bytes of labels. */
int flightline_label(const char *key, const char *value);

/* The ids of the thread's current span: for messages, and for flightline_enter on another thread. -ESRCH: none. */
int flightline_current(struct flightline_span_context *context);

#else

#ifdef __cplusplus
}
#endif
#include <dlfcn.h>
#include <errno.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The same functions, looked for once in each file that includes this. Needs -ldl with glibc before 2.34. */
#define FLIGHTLINE_LOOKED_UP(result, name, parameters, arguments, absent)                                  \
    static inline result name parameters {                                                                 \
        static result(*found) parameters;                                                                  \
        static int looked;                                                                                 \
        if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {                                                 \
            void *at = dlsym((void *)0 /* RTLD_DEFAULT */, #name);                                         \
            __atomic_store((void **)&found, &at, __ATOMIC_RELAXED);                                        \
            __atomic_store_n(&looked, 1, __ATOMIC_RELEASE);                                                \
        }                                                                                                  \
        return found ? found arguments : (absent);                                                         \
    }

FLIGHTLINE_LOOKED_UP(uint64_t, flightline_span_begin, (const char *name), (name), 0)
FLIGHTLINE_LOOKED_UP(int, flightline_span_end, (uint64_t token), (token), -ESRCH)
FLIGHTLINE_LOOKED_UP(uint64_t, flightline_enter, (const struct flightline_span_context *context), (context), 0)
FLIGHTLINE_LOOKED_UP(int, flightline_exit, (uint64_t token), (token), -ESRCH)
FLIGHTLINE_LOOKED_UP(int, flightline_label, (const char *key, const char *value), (key, value), -ESRCH)
FLIGHTLINE_LOOKED_UP(int, flightline_current, (struct flightline_span_context *context), (context), -ESRCH)
FLIGHTLINE_LOOKED_UP(int, flightline_scope_begin,
                     (struct flightline_scope *scope, const struct flightline_scope_label *labels, size_t count),
                     (scope, labels, count), ((void)scope, (void)labels, (void)count, 0))
FLIGHTLINE_LOOKED_UP(uint64_t, flightline_scope_enter, (const struct flightline_scope *scope), (scope), 0)
FLIGHTLINE_LOOKED_UP(int, flightline_scope_exit, (const struct flightline_scope *scope, uint64_t token), (scope, token), -ESRCH)
FLIGHTLINE_LOOKED_UP(int, flightline_scope_end, (struct flightline_scope *scope), (scope), -ESRCH)

#endif

#ifdef __cplusplus
}
#include <initializer_list>

namespace flightline {

/* A span as long as a block is: `flightline::span span("checkout");`. */
class span {
  public:
    explicit span(const char *name) noexcept : token_(flightline_span_begin(name)) {}
    span(const span &) = delete;
    span &operator=(const span &) = delete;
    ~span() {
        if (token_ != 0)
            flightline_span_end(token_);
    }

  private:
    uint64_t token_;
};

/* Works at somebody else's span as long as a block is. */
class scope {
  public:
    explicit scope(const flightline_span_context &context) noexcept : token_(flightline_enter(&context)) {}
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    ~scope() {
        if (token_ != 0)
            flightline_exit(token_);
    }

  private:
    uint64_t token_;
};

/* A unit of work as long as a block is: `flightline::work attempt({{"task", id}, {"attempt", "0"}});` */
class work {
  public:
    explicit work(std::initializer_list<flightline_scope_label> labels) noexcept {
        left_out_ = flightline_scope_begin(&scope_, labels.begin(), labels.size());
    }
    work(const work &) = delete;
    work &operator=(const work &) = delete;
    ~work() { flightline_scope_end(&scope_); }
    /* How many labels found no place. */
    int left_out() const noexcept { return left_out_; }

    /* Works at it on another thread as long as a block is: `flightline::work::inside here(attempt);` */
    class inside {
      public:
        explicit inside(const work &of) noexcept : of_(&of.scope_), token_(flightline_scope_enter(of_)) {}
        inside(const inside &) = delete;
        inside &operator=(const inside &) = delete;
        ~inside() {
            if (token_ != 0)
                flightline_scope_exit(of_, token_);
        }

      private:
        const flightline_scope *of_;
        uint64_t token_;
    };

  private:
    flightline_scope scope_ = FLIGHTLINE_SCOPE_INIT;
    int left_out_ = 0;
};

} // namespace flightline
#endif
#endif
