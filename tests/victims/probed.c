// Calls a function a known number of times: in threads that wait for the end of the standard input, in many
// short threads after that, and in child processes before and after exec. Counts threads and processes that
// could not be started.
// usage: probed SHORT_THREADS
#include "truth.h"
#include <sys/wait.h>

enum { EARLY = 3, EARLY_CALLS = 200, SHORT_CALLS = 3, CHILDREN = 10, CHILD_CALLS = 5, EXEC_CALLS = 7 };

static pthread_barrier_t start;

NOINLINE int answer(int n) {
    __asm__ volatile("" : "+r"(n));
    return n + 1;
}

NOINLINE void call(int times) {
    for (int i = 0; i < times; i++) answer(i);
}

static void *early(void *unused) {
    pthread_barrier_wait(&start);
    call(EARLY_CALLS);
    return unused;
}

static void *brief(void *unused) {
    call(SHORT_CALLS);
    return unused;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 100;
    if (count == 0) {
        call(EXEC_CALLS);
        return 0;
    }
    pthread_t thread[EARLY];
    int64_t failed = 0;
    pthread_barrier_init(&start, 0, EARLY + 1);
    for (int i = 0; i < EARLY; i++)
        if (pthread_create(&thread[i], 0, early, 0) != 0) abort();
    while (getchar() != EOF) {}
    pthread_barrier_wait(&start);
    for (int i = 0; i < EARLY; i++) pthread_join(thread[i], 0);
    for (int i = 0; i < count; i++) {
        pthread_t one;
        if (pthread_create(&one, 0, brief, 0) == 0) pthread_join(one, 0);
        else failed++;
    }
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            call(CHILD_CALLS);
            execl("/proc/self/exe", "probed", "0", (char *)0);
            _exit(126);
        }
        int status = 1;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) failed++;
    }
    truth_count("answer", EARLY * EARLY_CALLS + (int64_t)count * SHORT_CALLS + CHILDREN * (CHILD_CALLS + EXEC_CALLS));
    truth_count("failed", failed);
    truth_thread("main");
    return 0;
}
