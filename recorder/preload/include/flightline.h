/* Flightline: records this process's CPU samples into a JFR file.
 *
 * Link with -lflightline, or preload libflightline.so and set FLIGHTLINE_OUTPUT or
 * FLIGHTLINE_REPOSITORY instead of calling anything.
 * A separate process writes the recording. It is started here and is not a child of this one (wait() never
 * sees it). This process gets no additional thread and keeps no file descriptor open.
 *
 * All functions return 0 or a negated errno; none changes errno or throws. */
#ifndef FLIGHTLINE_H
#define FLIGHTLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Set all members to zero, then size and the options you need. Later versions add members at the end. */
struct flightline_options {
    size_t size;         /* sizeof(struct flightline_options) */
    const char *output;  /* file to write; %p is replaced by the process id. Ignored if repository is set */
    uint32_t rate_hz;    /* samples per second of CPU time, 1 to 10000; 0: the default, 99 */
    uint32_t reserved;   /* 0 */
    const char *engine;  /* "auto", "perf", "perf-user", "timer", "itimer"; NULL: auto */
    const char *program; /* path of the flightline program; NULL: FLIGHTLINE_BIN, next to the library, PATH */
    const char *events;  /* events to record, such as "cpu@10ms,wall,lock"; NULL: cpu */
    const char *repository; /* directory of a rolling repository, instead of a file */
    const char *max_age;    /* remove chunks older than this, such as "24h"; NULL: never */
    const char *max_size;   /* maximum size of the repository, such as "1g"; NULL: unlimited */
    const char *labels;     /* written to every chunk, such as "zone=eu-1,tier=web"; NULL: detected labels only */
};

/* Starts recording all threads of this process, existing and later ones. Waits at most 5 s.
 * Thread-safe; not async-signal-safe; not between fork and exec of a multi-threaded process.
 * -EALREADY: it is already recorded.  -ENOENT: no flightline program found.  -ETIMEDOUT, -EPROTO: it did not start
 * (and has printed the reason to stderr).  -EINVAL: invalid size, output or rate. */
int flightline_start(const struct flightline_options *options);

/* Stops recording and waits until the output is complete, at most 5 s (-ETIMEDOUT: it will be completed later).
 * Thread-safe; not async-signal-safe.  -ESRCH: no recording is active.
 * Without this call, the recording is completed when the process ends, however it ends. */
int flightline_stop(void);

/* Writes everything recorded so far to the output. Waits for that at most 5 s (-ETIMEDOUT).
 * Thread-safe, async-signal-safe.  -ESRCH: no recording is active. */
int flightline_dump(void);

/* Returns 1 while this library records this process, else 0. Thread-safe, async-signal-safe. */
int flightline_active(void);

/* Set all members to zero, then size and the options you need; a member that is NULL is read from the environment.
 * Later versions add members at the end. */
struct flightline_join_options {
    size_t size;            /* sizeof(struct flightline_join_options) */
    const char *service;    /* address; the default is "http://127.0.0.1:7070"; FLIGHTLINE_JOIN */
    const char *token_file; /* file with the service's token in its first line; FLIGHTLINE_JOIN_TOKEN_FILE */
    const char *ca_file;    /* certificates (PEM) that sign the service's; FLIGHTLINE_JOIN_CA_FILE */
    const char *labels;     /* such as "zone=eu-1,role=jobmanager"; FLIGHTLINE_LABELS */
    uint32_t rate_hz;       /* also record CPU time continuously, at this rate, 1 to 1000; 0: only on request; FLIGHTLINE_JOIN_RATE */
    uint32_t reserved;      /* 0 */
    const char *program;    /* path of the flightline program; NULL: FLIGHTLINE_BIN, next to the library, PATH */
};

/* Lets a profiling service (flightline serve) record this process on request, from now until it ends. Starts an agent process,
 * which is not a child of this one, and does not wait for it. The agent retries until it reaches the service.
 * Thread-safe; not async-signal-safe; not between fork and exec of a multi-threaded process.
 * -EALREADY: it has already joined.  -ENOENT: no flightline program found.  -ENOEXEC: it cannot be run.  -EINVAL: invalid
 * size or rate. */
int flightline_join(const struct flightline_join_options *options);

/* -- Spans: the work of a thread ----------------------------------------------------------------------------------------
 *
 * Each sample contains its span. For spans with samples the recording contains name, start, end and labels. The functions need no
 * active recording and no library: if no libflightline.so is in the process when the first of them is called, they do nothing and
 * return 0 or -ESRCH. (Define FLIGHTLINE_LINKED before including this header if you link with -lflightline.)
 * The thread's context has the layout of OpenTelemetry's OTEP 4947. Another tracer in the process has its own variable.
 *
 * All are thread-safe and concern the calling thread; none is async-signal-safe, changes errno or throws. */

/* Ids as bytes of W3C Trace Context; zeros: none. Set unknown members to zero. */
struct flightline_span_context {
    uint8_t trace_id[16];
    uint8_t span_id[8];
    uint8_t local_root_span_id[8]; /* the outermost span of this trace in this process; zeros: determined by nesting */
    uint8_t flags;                 /* trace flags; 1: sampled by the tracer */
    uint8_t reserved[7];           /* 0 */
};

/* -- Scopes: labels of a unit of work, such as a task attempt -------------------------------------------------------------
 *
 * Each sample in a scope has its labels: on the thread that began it, on threads that entered it, and in all spans within. A scope
 * that begins within another one also has the outer labels; for each key the last value counts. When it ends, its start, end and
 * labels are recorded. Scopes use no heap, with or without a recording. */

struct flightline_scope_label {
    const char *key;   /* UTF-8, 1 to 63 bytes; at most 256 different keys in a process */
    const char *value; /* UTF-8 (other bytes become U+FFFD); a value longer than 255 bytes ends in "..." (U+2026); NULL: empty */
};

/* Memory for a scope, on the stack or elsewhere. It must not be moved or copied. Set size, and the rest to zero:
 * `struct flightline_scope scope = FLIGHTLINE_SCOPE_INIT;` */
struct flightline_scope {
    size_t size;            /* sizeof(struct flightline_scope) */
    uint64_t reserved[127]; /* 0 */
};
#define FLIGHTLINE_SCOPE_INIT {sizeof(struct flightline_scope), {0}}

#ifdef FLIGHTLINE_LINKED

/* Begins a scope with these labels and enters it on this thread. Returns the number of labels that are left out: their keys are
 * invalid or too many, there are more than 64 labels, or more than 600 bytes of values with two more for each. Samples then have the
 * label flightline.labels_left_out.  -EINVAL: no scope, a wrong size, or no labels. */
int flightline_scope_begin(struct flightline_scope *scope, const struct flightline_scope_label *labels, size_t count);

/* Enters the scope on another thread, before it ends. Returns a token, 0 if it cannot be entered. */
uint64_t flightline_scope_enter(const struct flightline_scope *scope);

/* Leaves it on that thread. -ESRCH: this thread did not get that token. */
int flightline_scope_exit(const struct flightline_scope *scope, uint64_t token);

/* Leaves and ends the scope, on the thread that began it and after all others have left it. -ESRCH: it has not begun, or not on this
 * thread; then it continues. */
int flightline_scope_end(struct flightline_scope *scope);

/* Begins a span and enters it: a child of the thread's current one, or the first of a new trace. The name is copied (at most 255
 * bytes). Returns a token, 0 if it cannot be entered. */
uint64_t flightline_span_begin(const char *name);

/* Leaves and ends the span, on the thread where it began. Spans that began within it may end later. -ESRCH: no such span on this
 * thread, as in a child that was forked in the meantime. */
int flightline_span_end(uint64_t token);

/* Enters a span of another library, or a span that several threads work at. Returns a token, 0 if it cannot be entered. */
uint64_t flightline_enter(const struct flightline_span_context *context);

/* Leaves it. -ESRCH: this thread did not get that token. */
int flightline_exit(uint64_t token);

/* Sets a label of the thread's current span and of spans that begin within it. The value is UTF-8, and is cut at 255 bytes.
 * -ESRCH: no span.  -EINVAL: the key is empty, longer than 63 bytes, or the process already has 256 keys.  -ENOSPC: more than 612
 * bytes of labels. */
int flightline_label(const char *key, const char *value);

/* Returns the ids of the thread's current span, for messages and for flightline_enter on another thread. -ESRCH: none. */
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

/* The same functions, looked up once in each file that includes this header. Needs -ldl with glibc before 2.34. */
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

/* A span for the duration of a block: `flightline::span span("checkout");`. */
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

/* Enters another library's span for the duration of a block. */
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

/* A unit of work for the duration of a block: `flightline::work attempt({{"task", id}, {"attempt", "0"}});` */
class work {
  public:
    explicit work(std::initializer_list<flightline_scope_label> labels) noexcept {
        left_out_ = flightline_scope_begin(&scope_, labels.begin(), labels.size());
    }
    work(const work &) = delete;
    work &operator=(const work &) = delete;
    ~work() { flightline_scope_end(&scope_); }
    /* Returns the number of labels that were left out. */
    int left_out() const noexcept { return left_out_; }

    /* Enters it on another thread for the duration of a block: `flightline::work::inside here(attempt);` */
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
