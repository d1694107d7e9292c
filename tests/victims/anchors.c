// Cases that recorders of native programs get wrong. One case per run: anchors CASE; the ground truth is
// written to TRUTH_FILE.
//   fork    the parent works on after a child that left by exit(); both print their CPU time
//   crash   works for 0.4 s, then dereferences a null pointer
//   named   threads with names of their own that end long before the program does
//   churn   a million small blocks, allocated and freed
#include "truth.h"
#include <sys/wait.h>

NOINLINE static void before(int64_t until) { while (thread_cpu() < until) SPIN(1, 5000); }
NOINLINE static void after(int64_t until) { while (thread_cpu() < until) SPIN(5, 5000); }
NOINLINE static void in_child(int64_t until) { while (thread_cpu() < until) SPIN(9, 5000); }

static void *named(void *arg) {
    char name[16];
    snprintf(name, sizeof name, "short-lived-%ld", (long)arg);
    pthread_setname_np(pthread_self(), name);
    before(30000000);
    truth_thread(name);
    return 0;
}

int main(int argc, char **argv) {
    const char *c = argc > 1 ? argv[1] : "";
    if (!strcmp(c, "fork")) {
        before(300000000);
        pid_t p = fork();
        if (!p) {
            in_child(200000000);
            truth_thread("child");
            exit(3);
        }
        int status = 0;
        waitpid(p, &status, 0);
        after(900000000);
        truth_thread("parent");
        return WEXITSTATUS(status);
    }
    if (!strcmp(c, "crash")) {
        before(400000000);
        truth_thread("main");
        int *volatile nowhere = 0;
        *nowhere = 1;
    }
    if (!strcmp(c, "named")) {
        for (long i = 0; i < 20; i++) {
            pthread_t t;
            pthread_create(&t, 0, named, (void *)i);
            pthread_join(t, 0);
        }
        after(2000000000);
        return 0;
    }
    if (!strcmp(c, "churn")) {
        for (int i = 0; i < 1000000; i++) {
            char *volatile p = malloc(64 + i % 64);
            *p = 1;
            free(p);
        }
        return 0;
    }
    return 64;
}
