// Runs a program and writes what the kernel says it used: user and system CPU ns, peak resident kB, exit status.
// usage: rusage OUT PROGRAM ARGS...
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    int status;
    struct rusage used;
    while (wait4(pid, &status, 0, &used) < 0) {}
    FILE *out = fopen(argv[1], "w");
    if (!out) return 1;
    fprintf(out, "%lld %lld %ld %d\n", used.ru_utime.tv_sec * 1000000000LL + used.ru_utime.tv_usec * 1000LL,
            used.ru_stime.tv_sec * 1000000000LL + used.ru_stime.tv_usec * 1000LL, used.ru_maxrss, status);
    fclose(out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
