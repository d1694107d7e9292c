// Checks at run time that the recorder's handlers do not allocate: malloc & co, __tls_get_addr and
// dl_iterate_phdr are this program's own and abort while a handler runs. To detect that, the program installs
// its own handler in front of the recorder's by the raw system call, sets a flag, and calls the recorder's.
// usage: in_handler SECONDS [break|MODULE.so...]     "break" makes the wrapper itself allocate, which must
// abort
#include "truth.h"
#include <dlfcn.h>
#include <link.h>
#include <signal.h>

static __thread volatile int inside __attribute__((tls_model("initial-exec")));
static volatile long runs;
static int break_it;
static volatile uint64_t sink;

static void must_be_outside(const char *what) {
    if (!inside) return;
    inside = 0;
    char line[96];
    int n = snprintf(line, sizeof line, "in a handler: %s\n", what);
    if (write(2, line, (size_t)n) != n) {}
    abort();
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

void *malloc(size_t n) { must_be_outside("malloc"); return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { must_be_outside("calloc"); return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { must_be_outside("realloc"); return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { must_be_outside("memalign"); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { must_be_outside("aligned_alloc"); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) {
    must_be_outside("posix_memalign");
    return (*p = __libc_memalign(a, n)) ? 0 : 12;
}
void free(void *p) { must_be_outside("free"); __libc_free(p); }

void *__tls_get_addr(void *index) {
    static void *(*real)(void *);
    must_be_outside("__tls_get_addr");
    if (!real) real = (void *(*)(void *))dlsym(RTLD_NEXT, "__tls_get_addr");
    return real(index);
}

int dl_iterate_phdr(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data) {
    static int (*real)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
    must_be_outside("dl_iterate_phdr");
    if (!real) real = (int (*)(int (*)(struct dl_phdr_info *, size_t, void *), void *))dlsym(RTLD_NEXT, "dl_iterate_phdr");
    return real(callback, data);
}

// The kernel's structure, on x86_64 and aarch64.
struct kernel_action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};
static struct kernel_action recorder[65];

static void in_front(int number, siginfo_t *info, void *context) {
    int was = inside;
    inside = 1;
    if (break_it) {
        void *volatile p = malloc(10); // volatile: or the compiler takes the pair away
        free(p);
    }
    recorder[number].handler(number, info, context);
    inside = was;
    __atomic_fetch_add(&runs, 1, __ATOMIC_RELAXED);
}

static int wrap(int number) {
    struct kernel_action action;
    if (syscall(SYS_rt_sigaction, number, 0, &action, 8)) abort();
    if ((uintptr_t)action.handler <= 1) return 0; // SIG_DFL, SIG_IGN
    recorder[number] = action;
    action.handler = in_front;
    if (syscall(SYS_rt_sigaction, number, &action, 0, 8)) abort();
    return 1;
}

NOINLINE uint64_t nested(int depth) {
    volatile char pad[64];
    pad[0] = 1;
    uint64_t x = depth ? nested(depth - 1) : SPIN(depth, 3000);
    return x + (uint64_t)pad[0];
}

static int64_t budget;
static void *worker(void *arg) {
    (void)arg;
    while (thread_cpu() < budget) {
        void *p[64];
        for (int i = 0; i < 64; i++) p[i] = malloc((size_t)(16 << (i % 10)));
        for (int i = 0; i < 64; i++) free(p[i]);
        sink += nested(100);
    }
    return 0;
}

int main(int argc, char **argv) {
    budget = (int64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9);
    break_it = argc > 2 && !strcmp(argv[2], "break");
    pthread_t early, late;
    pthread_create(&early, 0, worker, 0);
    int wrapped = wrap(SIGTRAP) + wrap(SIGPROF);
    pthread_create(&late, 0, worker, 0);
    while (thread_cpu() < budget) {
        for (int i = 2; i < argc && !break_it; i++) {
            void *module = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
            char name[32];
            snprintf(name, sizeof name, "module_work_%d", i - 2);
            uint64_t (*work)(uint64_t, void *) = (uint64_t(*)(uint64_t, void *))dlsym(module, name);
            if (!work) return 1;
            for (int n = 0; n < 20; n++) sink += work(sink, 0);
            dlclose(module);
        }
        sink += nested(30);
    }
    pthread_join(early, 0);
    pthread_join(late, 0);
    truth_count("wrapped", wrapped);
    truth_count("runs", runs);
    truth_thread("main");
    return 0;
}
