// A program that records itself through the C API, twice. usage: guest_api FIRST.jfr SECOND.jfr
#include "../../recorder/preload/include/flightline.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;
static volatile int stop;
static void burn(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    double end = (double)t.tv_sec + (double)t.tv_nsec / 1e9 + seconds;
    do {
        for (int i = 0; i < 5000; i++) sink = sink * 6364136223846793005u + 1442695040888963407u;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while ((double)t.tv_sec + (double)t.tv_nsec / 1e9 < end);
}
__attribute__((noinline)) void existing_thread_work(void) { burn(0.01); sink++; }
__attribute__((noinline)) void later_thread_work(void) { burn(0.01); sink++; }
__attribute__((noinline)) void unrecorded_work(void) { burn(0.2); sink++; }
static void *existing(void *arg) { while (!stop) existing_thread_work(); return arg; }
static void *later(void *arg) { for (int i = 0; i < 30; i++) later_thread_work(); return arg; }
static long size_of(const char *file) { struct stat s; return stat(file, &s) ? -1 : (long)s.st_size; }
static void say(const char *what, long value) { printf("%s %ld\n", what, value); }

int main(int argc, char **argv) {
    if (argc < 3) return 64;
    pthread_t a, b;
    pthread_create(&a, 0, existing, 0);
    struct flightline_options o = {.size = sizeof o, .output = argv[1], .rate_hz = 1000};
    say("stop before", flightline_stop());
    say("dump before", flightline_dump());
    struct flightline_options bad = {.size = 4};
    say("bad size", flightline_start(&bad));
    bad = o;
    bad.rate_hz = 1000000;
    say("bad rate", flightline_start(&bad));
    say("null", flightline_start(0));
    errno = 77;
    for (int round = 0; round < 2; round++) {
        o.output = argv[1 + round];
        say("start", flightline_start(&o));
        say("active", flightline_active());
        say("again", flightline_start(&o));
        pthread_create(&b, 0, later, 0);
        burn(0.2);
        say("dump", flightline_dump());
        say("written", size_of(o.output) > 1000);
        pthread_join(b, 0);
        say("stop", flightline_stop());
        say("active", flightline_active());
        say("complete", size_of(o.output) > 1000);
        unrecorded_work();
    }
    say("errno", errno);
    stop = 1;
    pthread_join(a, 0);
    say("children", wait(0) == -1 && errno == ECHILD);
    struct sigaction s;
    sigaction(SIGTRAP, 0, &s);
    say("trap default", s.sa_handler == SIG_DFL);
    for (int fd = 3; fd < 100; fd++) if (fcntl(fd, 1 /* F_GETFD */) != -1) say("descriptor", fd);
    return 0;
}
