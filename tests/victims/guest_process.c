// A program that forks, executes, spawns, drops rights and closes foreign descriptors. One case per run:
// guest_process CASE [N]. The output and the exit status must be the same with and without a recorder.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static volatile uint64_t sink;
static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
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
    if (waitpid(p, &s, 0) != p) return -1;
    return s;
}

static void storm(int n) {
    long sum = 0;
    for (int i = 0; i < n; i++) {
        pid_t p = fork();
        if (!p) {
            burn(0.001);
            _exit(i % 7);
        }
        sum += WEXITSTATUS(status_of(p));
    }
    say("sum", sum);
    say("no child left", wait(0) == -1 && errno == ECHILD);
}

// A tree of processes that fork at the same time, in threads too.
static void *forker(void *arg) {
    long bad = 0;
    for (int i = 0; i < 20; i++) {
        pid_t p = fork();
        if (!p) {
            burn(0.002);
            exit(3);
        }
        bad += status_of(p) != 3 << 8;
    }
    *(long *)arg = bad;
    return 0;
}
static void threads_fork(void) {
    pthread_t t[4];
    long bad[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, forker, &bad[i]);
    burn(0.2);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    say("bad", bad[0] + bad[1] + bad[2] + bad[3]);
}

static void chain(char **argv, int n) {
    burn(0.0003);
    if (n <= 0) { say("end", 0); return; }
    char rest[16];
    snprintf(rest, sizeof rest, "%d", n - 1);
    execl("/proc/self/exe", argv[0], "chain", rest, (char *)0);
    say("failed", errno);
    exit(9);
}

static volatile int stop_burning;
static void *burner(void *arg) {
    (void)arg;
    while (!stop_burning) sink++;
    return 0;
}
// exec from a process with busy threads, repeatedly.
static void chain_threads(char **argv, int n) {
    if (n <= 0) { say("end", 0); return; }
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, burner, 0);
    burn(0.003);
    char rest[16];
    snprintf(rest, sizeof rest, "%d", n - 1);
    char *const args[] = {argv[0], "chain-threads", rest, 0};
    execv("/proc/self/exe", args);
    exit(9);
}

static void failed_exec(void) {
    pthread_t t;
    pthread_create(&t, 0, burner, 0);
    for (int i = 0; i < 50; i++) {
        char *const none[] = {"x", 0};
        int a = execv("/no/such/program", none), e = errno;
        int b = execlp("no-such-program-anywhere", "x", (char *)0), f = errno;
        int c = execve("/etc/passwd", none, environ), g = errno;
        if (i == 0) { say("a", a); say("e", e); say("b", b); say("f", f); say("c", c); say("g", g); }
        burn(0.002);
    }
    stop_burning = 1;
    pthread_join(t, 0);
    burn(0.1);
    say("alive", 1);
}

static void all_exec(char **argv) {
    char *const args[] = {argv[0], "arguments", "1", "2", "3", "4", "5", "6", "7", "8", "9", 0};
    char *path = "/proc/self/exe";
    for (int way = 0; way < 9; way++) {
        char mark[32];
        snprintf(mark, sizeof mark, "MARK=%d", way);
        char *env[4096] = {0};
        int n = 0;
        for (char **e = environ; *e && n < 4000; e++) env[n++] = *e;
        env[n] = mark;
        fflush(stdout);
        pid_t p = fork();
        if (!p) {
            putenv(mark);
            switch (way) {
            case 0: execl(path, argv[0], "arguments", "1", "2", "3", "4", "5", "6", "7", "8", "9", (char *)0); break;
            case 1: execle(path, argv[0], "arguments", "1", "2", "3", "4", "5", "6", "7", "8", "9", (char *)0, env); break;
            case 2: execlp(path, argv[0], "arguments", (char *)0); break;
            case 3: execv(path, args); break;
            case 4: execve(path, args, env); break;
            case 5: execvp(path, args); break;
            case 6: execvpe(path, args, env); break;
            case 7: fexecve(open(path, O_RDONLY), args, env); break;
            case 8: execveat(AT_FDCWD, path, args, env, 0); break;
            }
            _exit(99);
        }
        say("way", way);
        say("status", status_of(p));
    }
    execlp("sh", "sh", "-c", "echo from sh $0 $1", "a", "b", (char *)0);
}
static void arguments(int argc, char **argv) {
    for (int i = 2; i < argc; i++) printf("%s ", argv[i]);
    const char *mark = getenv("MARK");
    printf("mark %s\n", mark ? mark : "none");
}

static void vforks(char **argv, int n) {
    long bad = 0;
    for (int i = 0; i < n; i++) {
        pid_t p = vfork();
        if (!p) {
            if (i % 3 == 0) _exit(5);
            if (i % 3 == 1) { execl("/no/such", "x", (char *)0); _exit(5); }
            execl("/proc/self/exe", argv[0], "five", (char *)0);
            _exit(6);
        }
        burn(0.0005);
        bad += status_of(p) != 5 << 8;
    }
    say("bad", bad);
    burn(0.05);
}

static volatile sig_atomic_t ticks;
static void count_tick(int signo) { (void)signo; ticks++; }

// Children of vfork reset every signal, as spawners do. The parent's handler of SIGPROF must stay.
static void vforks_reset_signals(char **argv, int n) {
    struct sigaction handler = {0};
    handler.sa_handler = count_tick;
    handler.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &handler, 0);
    struct itimerval every = {{0, 10000}, {0, 10000}};
    setitimer(ITIMER_PROF, &every, 0);
    long bad = 0, kept = 0;
    for (int i = 0; i < n; i++) {
        pid_t p = vfork();
        if (!p) {
            for (int s = 1; s < 32; s++) signal(s, i % 2 ? SIG_IGN : SIG_DFL);
            struct sigaction now;
            sigaction(SIGPROF, 0, &now);
            if (now.sa_handler != (i % 2 ? SIG_IGN : SIG_DFL)) _exit(6);
            // The executed program inherits ignored signals, and no others.
            execl("/proc/self/exe", argv[0], "ignores", (char *)0);
            _exit(7);
        }
        bad += status_of(p) != (i % 2) << 8;
        burn(0.02);
    }
    struct sigaction now;
    sigaction(SIGPROF, 0, &now);
    kept = now.sa_handler == count_tick;
    say("bad", bad);
    say("handler kept", kept);
    say("ticks", ticks > 0);
}

static void spawns(char **argv, int n) {
    long bad = 0;
    for (int i = 0; i < n; i++) {
        pid_t p;
        char *const args[] = {argv[0], "five", 0};
        int r = i % 2 ? posix_spawn(&p, "/proc/self/exe", 0, 0, args, environ)
                      : posix_spawnp(&p, "/proc/self/exe", 0, 0, args, environ);
        bad += r || status_of(p) != 5 << 8;
        burn(0.0005);
    }
    say("bad", bad);
    pid_t p;
    char *const none[] = {"x", 0};
    say("missing", posix_spawn(&p, "/no/such/program", 0, 0, none, environ));
    fflush(stdout);
    say("system", system("exit 7") >> 8);
    FILE *f = popen("echo piped", "r");
    char line[32] = "";
    if (f && fgets(line, sizeof line, f)) printf("%s", line);
    say("pclose", f ? pclose(f) : -1);
}

static void drop_rights(void) {
    pid_t p = fork();
    if (!p) {
        if (setgid(65534) || setuid(65534)) _exit(1);
        burn(0.05);
        pid_t q = fork();
        if (!q) { burn(0.05); _exit(4); }
        int s = status_of(q);
        pthread_t t;
        static long bad;
        if (pthread_create(&t, 0, forker, &bad) == 0) pthread_join(t, 0);
        fflush(stdout);
        execlp("sh", "sh", "-c", "exit $1", "sh", s == 4 << 8 && !bad ? "4" : "5", (char *)0);
        _exit(98);
    }
    say("status", status_of(p));
}

static void new_root(void) {
    pid_t p = fork();
    if (!p) {
        if (chroot("/proc/self/fdinfo") && chroot("/usr/share")) _exit(1);
        if (chdir("/")) _exit(2);
        burn(0.02);
        pid_t q = fork();
        if (!q) { burn(0.02); _exit(4); }
        _exit(WEXITSTATUS(status_of(q)));
    }
    say("status", status_of(p));
}

static void *starter(void *arg) { burn(0.001); return arg; }
static long start_threads(int n) {
    long bad = 0;
    for (int i = 0; i < n; i++) {
        pthread_t t;
        void *r = 0;
        if (pthread_create(&t, 0, starter, (void *)7)) { bad++; continue; }
        pthread_join(t, &r);
        bad += r != (void *)7;
    }
    return bad;
}

static void close_all(void) {
    long open_before = 0;
    for (int i = 3; i < 1024; i++) open_before += fcntl(i, F_GETFD) != -1;
    say("open", open_before);
    int fd = open("/dev/null", O_RDONLY);
    say("next", fd);
    close_range(3, ~0u, 0);
    burn(0.05);
    say("threads", start_threads(20));
    for (int i = 3; i < 1024; i++) close(i);
    burn(0.05);
    pid_t p = fork();
    if (!p) { burn(0.02); _exit(2); }
    say("child", status_of(p));
    close(0);
    fd = open("/dev/null", O_RDONLY);
    say("lowest", fd);
    burn(0.02);
}

static void few_descriptors(void) {
    struct rlimit l = {3, 3};
    setrlimit(RLIMIT_NOFILE, &l);
    burn(0.05);
    say("threads", start_threads(20));
    pid_t p = fork();
    if (!p) { burn(0.05); _exit(2); }
    say("child", status_of(p));
    say("open", open("/dev/null", O_RDONLY)); say("errno", errno);
}

static void strict(void) {
    fflush(stdout);
    pid_t p = fork();
    if (!p) {
        burn(0.01);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) _exit(1);
        for (volatile long i = 0; i < 30000000; i++) sink++;
        syscall(SYS_write, 1, "strict\n", 7);
        syscall(SYS_exit, 3);
    }
    int s = status_of(p);
    say("signal", WIFSIGNALED(s) ? WTERMSIG(s) : 0);
    say("exit", WIFEXITED(s) ? WEXITSTATUS(s) : -1);
}

// A filter that kills for all system calls except for those that this program needs.
#define ALLOW(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (n), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
static void *filtered_thread(void *arg) { burn(0.03); return arg; }
static void filtered(int by_syscall) {
    fflush(stdout);
    pid_t p = fork();
    if (!p) {
        struct sock_filter f[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
            ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_exit), ALLOW(SYS_clock_gettime), ALLOW(SYS_mmap),
            ALLOW(SYS_munmap), ALLOW(SYS_mprotect), ALLOW(SYS_madvise), ALLOW(SYS_futex), ALLOW(SYS_clone3),
            ALLOW(SYS_clone), ALLOW(SYS_rt_sigprocmask), ALLOW(SYS_set_robust_list), ALLOW(SYS_rseq),
            ALLOW(SYS_rt_sigreturn), ALLOW(SYS_brk), ALLOW(SYS_rt_sigaction), ALLOW(SYS_getrandom), ALLOW(SYS_prlimit64),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        };
        struct sock_fprog prog = {sizeof f / sizeof *f, f};
        burn(0.01);
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        long r = by_syscall ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog)
                            : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0);
        if (r) _exit(1);
        burn(0.05);
        pthread_t t;
        void *got = 0;
        if (pthread_create(&t, 0, filtered_thread, (void *)9) || pthread_join(t, &got)) _exit(2);
        _exit(got == (void *)9 ? 11 : 3);
    }
    int s = status_of(p);
    say("signal", WIFSIGNALED(s) ? WTERMSIG(s) : 0);
    say("exit", WIFEXITED(s) ? WEXITSTATUS(s) : -1);
    errno = 0;
    say("bad seccomp", syscall(SYS_seccomp, 1, 0, 0)); say("errno", errno);
    burn(0.02);
}

// Timers of this process, as the kernel lists them.
static int timers(void) {
    char line[256];
    int n = 0;
    FILE *f = fopen("/proc/self/timers", "r");
    while (f && fgets(line, sizeof line, f)) n += !strncmp(line, "ID:", 3);
    if (f) fclose(f);
    return n;
}
// Tries to install a seccomp filter and is refused: the state does not change.
static void refused(void) {
    say("timers", timers());
    errno = 0;
    say("refused", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0, 0, 0)); say("errno", errno);
    say("timers", timers());
    burn(0.2);
    say("survived", 1);
}

static int in_clone(void *arg) { (void)arg; burn(0.01); return 6; }
static void raw_fork(void) {
    long p = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!p) { burn(0.05); _exit(8); }
    say("clone", status_of((pid_t)p));
    static char stack[65536] __attribute__((aligned(16)));
    pid_t c = clone(in_clone, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, 0);
    say("clone vm", status_of(c));
    burn(0.05);
}

static void memory(void) {
    // The same number of mapped bytes after many forks as before: a fork leaves no mapping.
    for (int round = 0; round < 2; round++) {
        FILE *f = fopen("/proc/self/statm", "r");
        long pages = 0;
        if (f && fscanf(f, "%ld", &pages) == 1) fclose(f);
        static long before;
        if (round) say("grown", (pages - before) * 4096 > 1 << 20);
        before = pages;
        if (!round) {
            pid_t chain_of = 0;
            for (int i = 0; i < 30; i++) {
                pid_t p = fork();
                if (p) { int s = status_of(p); if (i) _exit(s >> 8); chain_of = p; break; }
            }
            if (!chain_of) {
                f = fopen("/proc/self/statm", "r");
                long now = 0;
                if (f && fscanf(f, "%ld", &now) == 1) fclose(f);
                _exit((now - before) * 4096 > 1 << 20);
            }
        }
    }
}

int main(int argc, char **argv) {
    const char *c = argc > 1 ? argv[1] : "";
    int n = argc > 2 ? atoi(argv[2]) : 100;
    setvbuf(stdout, 0, _IOFBF, 65536);
    if (!strcmp(c, "storm")) storm(n);
    else if (!strcmp(c, "threads-fork")) threads_fork();
    else if (!strcmp(c, "chain")) chain(argv, n);
    else if (!strcmp(c, "chain-threads")) chain_threads(argv, n);
    else if (!strcmp(c, "failed-exec")) failed_exec();
    else if (!strcmp(c, "all-exec")) all_exec(argv);
    else if (!strcmp(c, "arguments")) arguments(argc, argv);
    else if (!strcmp(c, "five")) { burn(0.001); return 5; }
    else if (!strcmp(c, "ignores")) { struct sigaction now; sigaction(SIGPROF, 0, &now); return now.sa_handler == SIG_IGN; }
    else if (!strcmp(c, "vfork")) vforks(argv, n);
    else if (!strcmp(c, "vfork-signals")) vforks_reset_signals(argv, n);
    else if (!strcmp(c, "spawn")) spawns(argv, n);
    else if (!strcmp(c, "drop-rights")) drop_rights();
    else if (!strcmp(c, "chroot")) new_root();
    else if (!strcmp(c, "close-all")) close_all();
    else if (!strcmp(c, "few-descriptors")) few_descriptors();
    else if (!strcmp(c, "seccomp")) strict();
    else if (!strcmp(c, "filter")) filtered(0);
    else if (!strcmp(c, "filter-all")) filtered(1);
    else if (!strcmp(c, "refused")) refused();
    else if (!strcmp(c, "raw-fork")) raw_fork();
    else if (!strcmp(c, "memory")) memory();
    else return 64;
    return 0;
}
