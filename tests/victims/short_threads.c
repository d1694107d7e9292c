// Many threads, each shorter than a sampling period. usage: short_threads THREADS MILLISECONDS_EACH
#include "truth.h"

static int64_t each;
static volatile uint64_t sink;

NOINLINE static void *brief(void *arg) {
    (void)arg;
    while (thread_cpu() < each) sink += SPIN(sink, 5000);
    truth_thread("brief");
    return 0;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 500;
    each = (int64_t)((argc > 2 ? atof(argv[2]) : 6) * 1e6);
    for (int i = 0; i < threads; i += 2) {
        pthread_t a, b;
        pthread_create(&a, 0, brief, 0);
        pthread_create(&b, 0, brief, 0);
        pthread_join(a, 0);
        pthread_join(b, 0);
    }
    truth_thread("main");
    return 0;
}
