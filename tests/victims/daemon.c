// daemon MS: becomes a daemon in the usual way (fork, setsid, fork, first and second process end), which
// burns MS of CPU time, writes its id to standard output, and prints "done" at its end.
// prefork N MS: a master whose N workers burn MS each; it replaces the first one that ends.
// again MS: burns MS in first_image, executes itself, and burns MS in second_image.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#define WORK(NAME)                                                                \
    __attribute__((noipa)) static void NAME(long ms) {                         \
        uint64_t end = cpu_ns() + (uint64_t)ms * 1000000u;                        \
        do                                                                        \
            for (int i = 0; i < 20000; i++) sink = sink * 6364136223846793005u + 1; \
        while (cpu_ns() < end);                                                   \
    }
WORK(daemon_work)
WORK(worker_work)
WORK(first_image)
WORK(second_image)

static pid_t worker(long ms) {
    pid_t pid = fork();
    if (pid) return pid;
    worker_work(ms);
    _exit(0);
}

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IOLBF, 0);
    if (argc == 3 && !strcmp(argv[1], "daemon")) {
        if (fork()) _exit(0);
        setsid();
        if (fork()) _exit(0);
        printf("daemon %d\n", getpid());
        daemon_work(atol(argv[2]));
        printf("done\n");
        return 0;
    }
    if (argc == 4 && !strcmp(argv[1], "prefork")) {
        int count = atoi(argv[2]);
        for (int i = 0; i < count; i++) printf("worker %d\n", worker(atol(argv[3])));
        for (int i = 0; i <= count; i++) {
            wait(0);
            if (i == 0) printf("worker %d\n", worker(atol(argv[3])));
        }
        return 0;
    }
    if (argc >= 3 && !strcmp(argv[1], "again")) {
        if (argc == 4) {
            second_image(atol(argv[2]));
            return 0;
        }
        first_image(atol(argv[2]));
        printf("image %d\n", getpid());
        execl("/proc/self/exe", argv[0], argv[1], argv[2], "second", (char *)0);
    }
    return 2;
}
