// A thread that is named after its present work: three phases of equal CPU time. With "by-another" the main
// thread names it.
// usage: renamed MS_PER_PHASE self|prctl|by-another
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static const char *const phases[] = {"phase-one", "phase-two", "phase-three"};
static volatile long sink;
static long ms;
static const char *how;
static sem_t wanted, named;

static void *work(void *unused) {
    (void)unused;
    for (int phase = 0; phase < 3; phase++) {
        if (strcmp(how, "by-another") == 0) {
            sem_post(&wanted);
            sem_wait(&named);
        } else if (strcmp(how, "prctl") == 0) {
            prctl(PR_SET_NAME, phases[phase]);
        } else {
            pthread_setname_np(pthread_self(), phases[phase]);
        }
        struct timespec t;
        do {
            for (int i = 0; i < 10000; i++)
                sink += i;
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        } while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < ms * (phase + 1));
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    ms = atol(argv[1]);
    how = argv[2];
    sem_init(&wanted, 0, 0);
    sem_init(&named, 0, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    for (int phase = 0; phase < 3 && strcmp(how, "by-another") == 0; phase++) {
        sem_wait(&wanted);
        pthread_setname_np(thread, phases[phase]);
        sem_post(&named);
    }
    pthread_join(thread, NULL);
    return 0;
}
