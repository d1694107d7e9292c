// Gets stuck in the way that its argument selects:
//   run    one thread runs in one function for ever
//   lock   a thread waits for a mutex that is never released; the first thread waits for work that never
//          comes
//   idle   threads wait for work that never comes, and nothing else
// It prints "ready PID" and ends when its standard input does.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static volatile uint64_t sink;

__attribute__((noinline)) static void *spin_for_ever(void *arg) {
    (void)arg;
    for (;;) sink = sink * 6364136223846793005u + 1;
    return 0;
}

__attribute__((noinline)) static void *wait_for_lock(void *arg) {
    (void)arg;
    pthread_mutex_lock(&lock);
    return 0;
}

__attribute__((noinline)) static void *wait_for_work(void *arg) {
    (void)arg;
    pthread_mutex_lock(&other);
    for (;;) pthread_cond_wait(&never, &other);
    return 0;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "idle";
    pthread_t thread;
    pthread_create(&thread, 0, wait_for_work, 0);
    pthread_mutex_lock(&lock);
    if (!strcmp(how, "run")) pthread_create(&thread, 0, spin_for_ever, 0);
    if (!strcmp(how, "lock")) pthread_create(&thread, 0, wait_for_lock, 0);
    printf("ready %d\n", getpid());
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
