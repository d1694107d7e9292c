// Runs a program and writes its resource usage from the kernel: user and system CPU ns, peak resident kB, exit status, wall ns.
// usage: rusage OUT PROGRAM ARGS...
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long long start = now();
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    int status;
    struct rusage used;
    while (wait4(pid, &status, 0, &used) < 0) {}
    long long wall = now() - start;
    FILE *out = fopen(argv[1], "w");
    if (!out) return 1;
    fprintf(out, "%lld %lld %ld %d %lld\n", used.ru_utime.tv_sec * 1000000000LL + used.ru_utime.tv_usec * 1000LL,
            used.ru_stime.tv_sec * 1000000000LL + used.ru_stime.tv_usec * 1000LL, used.ru_maxrss, status, wall);
    fclose(out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
