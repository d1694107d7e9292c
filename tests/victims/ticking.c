// Fixed work, fixed output, fixed exit status: they must not change, whatever happens to the recorder.
// usage: ticking CPU_MILLISECONDS
#include "truth.h"

static volatile uint64_t sink;
static void *worker(void *arg) {
    int64_t until = (int64_t)(intptr_t)arg * 1000000;
    while (thread_cpu() < until) sink += SPIN(sink, 20000);
    truth_thread("worker");
    return 0;
}

int main(int argc, char **argv) {
    int64_t ms = argc > 1 ? atoll(argv[1]) : 500;
    pthread_t thread;
    pthread_create(&thread, 0, worker, (void *)(intptr_t)ms);
    for (int i = 1; i <= 10; i++) {
        while (thread_cpu() < i * ms * 100000) sink += SPIN(sink, 20000);
        printf("tick %d\n", i);
        fflush(stdout);
    }
    pthread_join(thread, 0);
    truth_thread("main");
    return 23;
}
