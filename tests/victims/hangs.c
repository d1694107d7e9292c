// Two threads in a deadlock, and the main thread that waits for one of them. Prints a line when the deadlock
// exists.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

__attribute__((noinline)) static void *takes_a_then_b(void *unused) {
    (void)unused;
    pthread_mutex_lock(&a);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&b);
    return NULL;
}

__attribute__((noinline)) static void *takes_b_then_a(void *unused) {
    (void)unused;
    pthread_mutex_lock(&b);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&a);
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    pthread_barrier_init(&both, NULL, 3);
    pthread_create(&threads[0], NULL, takes_a_then_b, NULL);
    pthread_create(&threads[1], NULL, takes_b_then_a, NULL);
    pthread_barrier_wait(&both);
    usleep(200000);
    puts("hangs");
    fflush(stdout);
    pthread_join(threads[0], NULL);
    return 0;
}
