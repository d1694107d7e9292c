// A program that stresses threads, forks, limits and jumps. One case per run: stress_process CASE. The output
// and the exit status must be the same with and without a recorder, whatever it records.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static volatile uint64_t sink;
static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
static void burn(double seconds) {
    double end = cpu() + seconds;
    while (cpu() < end)
        for (int i = 0; i < 2000; i++) sink = sink * 6364136223846793005u + 1442695040888963407u;
}
static void say(const char *what, long value) { printf("%s %ld\n", what, value); }
static int status_of(pid_t p) {
    int s = -1;
    while (waitpid(p, &s, 0) != p)
        if (errno != EINTR) return -1;
    return s;
}
// Uses a little of everything that an engine records: heap, lock, file. Returns the expected result.
static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
static long work(unsigned seed) {
    long good = 0;
    char *kept[8] = {0};
    for (unsigned i = 0; i < 400; i++) {
        size_t size = 1 + (seed * 7919u + i * 104729u) % 3000u;
        char *p = i % 3 ? malloc(size) : calloc(1, size);
        if (i % 5 == 0) p = realloc(p, size * 2);
        p[0] = (char)i;
        p[size - 1] = (char)i;
        unsigned at = i % 8;
        free(kept[at]);
        kept[at] = p;
        pthread_mutex_lock(&shared);
        sink++;
        pthread_mutex_unlock(&shared);
    }
    for (int i = 0; i < 8; i++) good += kept[i] && kept[i][0] == (char)(392 + i), free(kept[i]);
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    char bytes[256];
    memset(bytes, 1, sizeof bytes);
    if (fd >= 0) {
        good += read(fd, bytes, sizeof bytes) == sizeof bytes && bytes[255] == 0;
        close(fd);
    } else
        good++;
    return good; // 9
}

static void *worker(void *arg) {
    long n = 0;
    for (int i = 0; i < 3; i++) n += work((unsigned)(uintptr_t)arg + (unsigned)i);
    return (void *)n;
}
static void *starter(void *arg) {
    long n = 0;
    for (int i = 0; i < 40; i++) {
        pthread_t t;
        void *r = 0;
        if (pthread_create(&t, 0, worker, arg)) continue;
        pthread_join(t, &r);
        n += (long)r;
    }
    return (void *)n;
}
static void storm(void) {
    pthread_t t[6];
    long n = 0;
    for (long i = 0; i < 6; i++) pthread_create(&t[i], 0, starter, (void *)(i * 1000));
    for (int i = 0; i < 6; i++) {
        void *r;
        pthread_join(t[i], &r);
        n += (long)r;
    }
    say("work", n);
}

// Forks while other threads allocate, lock and read: the locks that they hold must not block the child.
static volatile int stop;
static void *busy(void *arg) {
    long n = 0;
    while (!stop) n += work((unsigned)(uintptr_t)arg);
    return (void *)(n % 9);
}
static void forks(int by_vfork) {
    pthread_t t[4];
    volatile long bad = 0;
    for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, busy, (void *)i);
    for (volatile int i = 0; i < 60; i++) {
        pid_t p = by_vfork ? vfork() : fork();
        if (!p) {
            if (by_vfork) {
                execl("/bin/sh", "sh", "-c", "exit 9", (char *)0);
                _exit(1);
            }
            // The mutex may be held by a thread that does not exist here.
            pthread_mutex_init(&shared, 0);
            char *volatile p1 = malloc(5000);
            free(p1);
            burn(0.001);
            if (i % 2) exit((int)work((unsigned)i));
            _exit((int)work((unsigned)i));
        }
        bad += status_of(p) != 9 << 8;
    }
    stop = 1;
    for (int i = 0; i < 4; i++) {
        void *r;
        pthread_join(t[i], &r);
        bad += (long)r;
    }
    say("bad", bad);
}

static void spawns(void) {
    long bad = 0;
    for (int i = 0; i < 30; i++) {
        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attributes;
        sigset_t set, none;
        int to[2];
        if (pipe(to)) exit(1);
        sigfillset(&set);
        sigemptyset(&none);
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, to[1], 1);
        posix_spawn_file_actions_addclose(&actions, to[0]);
        posix_spawnattr_init(&attributes);
        posix_spawnattr_setsigdefault(&attributes, &set);
        posix_spawnattr_setsigmask(&attributes, i % 2 ? &set : &none);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | (i % 3 ? POSIX_SPAWN_SETPGROUP : 0));
        char *const args[] = {"sh", "-c", "echo spawned; exit 5", 0};
        pid_t p;
        int r = posix_spawnp(&p, "sh", &actions, &attributes, args, environ);
        close(to[1]);
        char text[32] = "";
        ssize_t n = 0, m;
        while ((m = read(to[0], text + n, sizeof text - 1 - (size_t)n)) > 0) n += m;
        bad += r || status_of(p) != 5 << 8 || strcmp(text, "spawned\n");
        close(to[0]);
        posix_spawn_file_actions_destroy(&actions);
        posix_spawnattr_destroy(&attributes);
    }
    say("bad", bad);
}

// A timer's signals in every thread, some with SA_RESTART, some without; interrupted calls are restarted by
// hand.
static _Atomic long alarms;
static void on_alarm(int n) { (void)n; alarms++; }
static void *reader(void *arg) {
    int fd = *(int *)arg;
    long total = 0;
    char c[64];
    for (;;) {
        ssize_t n = read(fd, c, sizeof c);
        if (n > 0) total += n;
        else if (n == 0) return (void *)total;
        else if (errno != EINTR) return (void *)-1;
    }
}
static void signals(int flags) {
    struct sigaction a = {.sa_handler = on_alarm, .sa_flags = flags};
    sigaction(SIGALRM, &a, 0);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &every, 0);
    int pipes[3][2];
    pthread_t t[3];
    for (int i = 0; i < 3; i++) {
        if (pipe(pipes[i])) exit(1);
        pthread_create(&t[i], 0, reader, &pipes[i][0]);
    }
    long sent = 0;
    for (int i = 0; i < 300; i++) {
        char text[100];
        memset(text, 'x', sizeof text);
        for (int k = 0; k < 3; k++)
            for (size_t done = 0; done < sizeof text;) {
                ssize_t n = write(pipes[k][1], text + done, sizeof text - done);
                if (n > 0) done += (size_t)n, sent += n;
                else if (errno != EINTR) exit(2);
            }
        burn(0.0003);
        work((unsigned)i);
    }
    long got = 0;
    for (int i = 0; i < 3; i++) {
        void *r;
        close(pipes[i][1]);
        pthread_join(t[i], &r);
        got += (long)r;
    }
    struct itimerval off = {0};
    setitimer(ITIMER_REAL, &off, 0);
    say("sent", sent);
    say("got", got);
    say("alarms", alarms > 20);
}

// Jumps out of a handler, repeatedly; the jump restores the mask.
static sigjmp_buf back;
static volatile long jumps_made;
static void jump(int n) { (void)n; siglongjmp(back, 1); }
static void jumps(void) {
    struct sigaction a = {.sa_handler = jump};
    sigaction(SIGUSR1, &a, 0);
    for (volatile int i = 0; i < 2000; i++) {
        if (!sigsetjmp(back, 1)) {
            for (volatile int k = 0; k < 2000; k++) sink++;
            raise(SIGUSR1);
        }
        jumps_made++;
    }
    sigset_t now;
    sigprocmask(0, 0, &now);
    say("jumps", jumps_made);
    say("blocked", sigismember(&now, SIGUSR1));
    work(1);
    say("work", work(2));
}
// Faults that the program handles itself, on the smallest possible stack.
static void fault(int n) { (void)n; jumps_made++; siglongjmp(back, 1); }
static void *faults(void *arg) {
    (void)arg;
    // The kernel's frame, and the registers a second time: the linker saves them to resolve `siglongjmp`,
    // which the handler calls first.
    size_t size = 2 * (size_t)sysconf(_SC_MINSIGSTKSZ) + 4096;
    stack_t s = {.ss_sp = malloc(size), .ss_size = size};
    say("stack", sigaltstack(&s, 0));
    struct sigaction a = {.sa_handler = fault, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &a, 0);
    int *volatile nowhere = 0;
    for (volatile int i = 0; i < 1500; i++) {
        if (!sigsetjmp(back, 1)) *(volatile int *)nowhere = 1;
        burn(0.0001);
    }
    s.ss_flags = SS_DISABLE;
    say("off", sigaltstack(&s, 0));
    free(s.ss_sp);
    return 0;
}
static void tiny_stack(void) {
    pthread_t t;
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, (size_t)sysconf(_SC_THREAD_STACK_MIN));
    // Printed after the thread has ended, because it prints too.
    long created = pthread_create(&t, &a, faults, 0);
    pthread_join(t, 0);
    say("create", created);
    say("faults", jumps_made);
}

static void limit(const char *which) {
    static const struct { const char *name; int what; rlim_t value; } limits[] = {
        {"nofile", RLIMIT_NOFILE, 4}, {"sigpending", RLIMIT_SIGPENDING, 0}, {"memlock", RLIMIT_MEMLOCK, 0},
        {"stack", RLIMIT_STACK, 160 << 10}, {"fsize", RLIMIT_FSIZE, 0}, {"msgqueue", RLIMIT_MSGQUEUE, 0},
        {"core", RLIMIT_CORE, 0}, {"data", RLIMIT_DATA, 64 << 20},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (strcmp(which, limits[i].name)) continue;
        struct rlimit l = {limits[i].value, limits[i].value};
        say("limit", setrlimit(limits[i].what, &l));
        say("work", work(3));
        say("threads", (long)starter((void *)5));
        pid_t p = fork();
        if (!p) {
            burn(0.02);
            _exit((int)work(4) + ((long)starter((void *)6) == 40 * 27 ? 0 : 50));
        }
        say("child", status_of(p) >> 8);
        fflush(stdout);
        p = fork();
        if (!p) {
            execl("/proc/self/exe", "stress_process", "fine", (char *)0);
            _exit(99);
        }
        say("image", status_of(p));
        burn(0.05);
        return;
    }
    exit(64);
}

// Allocates until there is no more memory: then the program continues with less.
static void no_memory(void) {
    struct rlimit l = {400ul << 20, 400ul << 20};
    say("limit", setrlimit(RLIMIT_AS, &l));
    static void *all[100000];
    for (size_t size = 1 << 20; size >= 1 << 16; size >>= 2) {
        size_t n = 0;
        while (n < 100000 && (all[n] = malloc(size))) n++;
        say("refused", n < 100000 && errno == ENOMEM);
        void *m = mmap(0, 512ul << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        say("map", m == MAP_FAILED && errno == ENOMEM);
        pthread_attr_t a;
        pthread_attr_init(&a);
        pthread_attr_setstacksize(&a, 256 << 20);
        pthread_t t;
        say("thread", pthread_create(&t, &a, worker, 0));
        pid_t p = fork();
        if (!p) {
            burn(0.005);
            _exit(7);
        }
        say("child", status_of(p) >> 8);
        burn(0.02);
        while (n) free(all[--n]);
    }
    say("work", work(5));
}

static void rights(void) {
    if (geteuid()) return;
    for (int i = 0; i < 5; i++) {
        say("away", seteuid(65534));
        say("work", work(6));
        pid_t p = fork();
        if (!p) {
            burn(0.01);
            _exit((int)work(7));
        }
        say("child", status_of(p) >> 8);
        say("threads", (long)starter((void *)8));
        say("back", seteuid(0));
    }
    pid_t p = fork();
    if (!p) {
        if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) _exit(1);
        say("threads", (long)starter((void *)9));
        fflush(stdout);
        execl("/bin/sh", "sh", "-c", "exit 3", (char *)0);
        _exit(99);
    }
    say("exec", status_of(p) >> 8);
}

static void dumpable(void) {
    say("dumpable", prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    say("privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    say("threads", (long)starter((void *)1));
    pid_t p = fork();
    if (!p) _exit((int)work(1));
    say("child", status_of(p) >> 8);
    fflush(stdout);
    execl("/bin/sh", "sh", "-c", "exit 4", (char *)0);
}

// Every descriptor belongs to the program: numbers come without gaps, and a file stays at the number where
// the program puts it.
static void descriptors(void) {
    long bad = 0;
    close_range(3, ~0u, 0);
    for (int round = 0; round < 3; round++) {
        int first = open("/dev/null", O_RDONLY);
        for (int i = first + 1; i < 200; i++) bad += open(i % 2 ? "/dev/null" : "/dev/zero", O_RDONLY) != i;
        pthread_t t;
        void *r = 0;
        pthread_create(&t, 0, worker, 0);
        pthread_join(t, &r);
        bad += (long)r != 27;
        for (int i = first + 1; i < 200; i++) {
            char c = 1;
            bad += read(i, &c, 1) != (i % 2 ? 0 : 1) || c != i % 2;
            dup2(first, i);
        }
        pid_t p = fork();
        if (!p) {
            closefrom(3);
            burn(0.005);
            _exit(open("/dev/null", O_RDONLY));
        }
        bad += status_of(p) >> 8 != 3;
        close_range((unsigned)first, ~0u, 0);
    }
    say("bad", bad);
}

int main(int argc, char **argv) {
    const char *c = argc > 1 ? argv[1] : "";
    setvbuf(stdout, 0, _IOFBF, 65536);
    if (!strcmp(c, "storm")) storm();
    else if (!strcmp(c, "forks")) forks(0);
    else if (!strcmp(c, "vforks")) forks(1);
    else if (!strcmp(c, "spawns")) spawns();
    else if (!strcmp(c, "signals")) signals(0);
    else if (!strcmp(c, "signals-restart")) signals(SA_RESTART);
    else if (!strcmp(c, "jumps")) jumps();
    else if (!strcmp(c, "tiny-stack")) tiny_stack();
    else if (!strcmp(c, "limit") && argc > 2) limit(argv[2]);
    else if (!strcmp(c, "no-memory")) no_memory();
    else if (!strcmp(c, "rights")) rights();
    else if (!strcmp(c, "dumpable")) dumpable();
    else if (!strcmp(c, "descriptors")) descriptors();
    else if (!strcmp(c, "fine")) return 0;
    else return 64;
    return 0;
}
