// A program that works on command, by lines on its standard input:
//   work NAME MS   every thread burns MS of CPU time in NAME_work, then "done NAME" is printed
//   fork           prints the id of a child that takes over the commands; the parent waits for it
//   exec           executes itself again
//   restrict       gives up system calls it does not need (no_new_privs and an empty filter)
//   title          overwrites its arguments and its environment, like programs that change their title
//   poll           waits in poll(2) without limit until standard input can be read, and prints how often it
//                  was interrupted
//   end CODE       ends
// It prints how many of its reads and waits ended with EINTR: there must be none.
// With -DJOIN and the library it joins the profiling service that its first argument names.
#define _GNU_SOURCE
#ifdef JOIN
#define FLIGHTLINE_LINKED
#include "../../recorder/preload/include/flightline.h"
#endif
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 2
static volatile uint64_t sink[THREADS + 1][8];
static int interrupted;

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#define WORK(NAME)                                                                              \
    __attribute__((noinline)) static void NAME##_work(volatile uint64_t *to, uint64_t ns) {     \
        uint64_t end = cpu_ns() + ns;                                                           \
        do                                                                                      \
            for (int i = 0; i < 20000; i++) *to = *to * 6364136223846793005u + 1442695040888963407u; \
        while (cpu_ns() < end);                                                                 \
    }
WORK(before)
WORK(during)
WORK(paused)
WORK(resumed)
WORK(after)

typedef void work_t(volatile uint64_t *, uint64_t);
static const struct { const char *name; work_t *work; } works[] = {
    {"before", before_work}, {"during", during_work}, {"paused", paused_work},
    {"resumed", resumed_work}, {"after", after_work},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static unsigned turn, left;
static work_t *job;
static uint64_t job_ns;

static void *worker(void *arg) {
    unsigned seen = 0;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (turn == seen) pthread_cond_wait(&wake, &lock);
        seen = turn;
        work_t *work = job;
        pthread_mutex_unlock(&lock);
        work(sink[(intptr_t)arg], job_ns);
        pthread_mutex_lock(&lock);
        if (--left == 0) pthread_cond_signal(&finished);
    }
    return 0;
}

static void start_workers(void) {
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, worker, (void *)i);
    }
}

static void all_work(work_t *work, uint64_t ns) {
    pthread_mutex_lock(&lock);
    job = work;
    job_ns = ns;
    left = THREADS;
    turn++;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    work(sink[THREADS], ns);
    pthread_mutex_lock(&lock);
    while (left) pthread_cond_wait(&finished, &lock);
    pthread_mutex_unlock(&lock);
}

static int line(char *to, size_t size) {
    size_t n = 0;
    while (n + 1 < size) {
        ssize_t r = read(0, to + n, 1);
        if (r < 0 && errno == EINTR) { interrupted++; continue; }
        if (r <= 0) return 0;
        if (to[n] == '\n') break;
        n++;
    }
    to[n] = 0;
    return 1;
}

static void restrict_calls(void) {
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog all = {1, &allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    printf("restricted %d\n", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all));
}

extern char **environ;
static void write_title(char **argv) {
    char *end = argv[0];
    for (char **word = argv; *word; word++) end = *word + strlen(*word);
    for (char **word = environ; *word; word++)
        // Variables that were set later are stored elsewhere.
        if (*word == end + 1) end = *word + strlen(*word);
    memset(argv[0], 0, (size_t)(end - argv[0]));
    strcpy(argv[0], "title");
    printf("titled %d\n", getpid());
}

int main(int argc, char **argv) {
    (void)argc;
    setvbuf(stdout, 0, _IOLBF, 0);
    start_workers();
#ifdef JOIN
    struct flightline_join_options bad = {.size = 4};
    struct flightline_join_options o = {.size = sizeof o, .service = argv[1], .labels = "zone=eu-3"};
    errno = 77;
    printf("refused %d\n", flightline_join(&bad) == -EINVAL && flightline_join(0) == -EINVAL);
    printf("joined %d\n", flightline_join(&o));
    printf("again %d\n", flightline_join(&o) == -EALREADY);
    printf("errno %d\n", errno);
#endif
    printf("ready %d\n", getpid());
    char text[128], name[32];
    while (line(text, sizeof text)) {
        int number = 0;
        if (sscanf(text, "work %31s %d", name, &number) == 2) {
            for (size_t i = 0; i < sizeof works / sizeof *works; i++)
                if (!strcmp(works[i].name, name)) all_work(works[i].work, (uint64_t)number * 1000000u);
            printf("done %s\n", name);
        } else if (!strcmp(text, "fork")) {
            pid_t child = fork();
            if (child) {
                int status = 0;
                waitpid(child, &status, 0);
                return WEXITSTATUS(status);
            }
            // The parent's threads, which wait in these, do not exist in the child, and no work has been done
            // yet.
            lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
            wake = finished = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
            turn = left = 0;
            start_workers();
            printf("child %d\n", getpid());
        } else if (!strcmp(text, "exec")) {
            execl("/proc/self/exe", argv[0], (char *)0);
        } else if (!strcmp(text, "title")) {
            write_title(argv);
        } else if (!strcmp(text, "restrict")) {
            restrict_calls();
        } else if (!strcmp(text, "poll")) {
            struct pollfd in = {0, POLLIN, 0};
            int times = 0;
            printf("polling 1\n");
            while (poll(&in, 1, -1) < 0 && errno == EINTR) times++;
            printf("polled %d\n", times);
        } else if (sscanf(text, "end %d", &number) == 1) {
            printf("interrupted %d\n", interrupted);
            return number;
        }
    }
    return 99;
}
