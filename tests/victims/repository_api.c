// A program that records itself into a repository through the C API. usage: repository_api ROOT
#include "../../recorder/preload/include/flightline.h"
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;
__attribute__((noipa)) static void api_work(double seconds) {
    struct timespec t;
    do {
        for (int i = 0; i < 5000; i++) sink = sink * 6364136223846793005u + 1442695040888963407u;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while ((double)t.tv_sec + (double)t.tv_nsec / 1e9 < seconds);
}

int main(int argc, char **argv) {
    if (argc != 2) return 64;
    struct flightline_options o = {.size = sizeof o, .rate_hz = 1000};
    printf("nowhere %d\n", flightline_start(&o) == -EINVAL);
    o.repository = argv[1];
    o.max_age = "1h";
    o.max_size = "4m";
    o.labels = "zone=eu-1,tier=web";
    printf("start %d\n", flightline_start(&o));
    api_work(0.3);
    printf("stop %d\n", flightline_stop());
    printf("image %d\n", getpid());
    return 0;
}
