// A library whose constructor behaves like those of real libraries, as the environment selects:
//   SAFETY_CALLS=FUNCTION   starts a thread that calls the function once, and waits for it
//   SAFETY_THREAD=1         starts a thread that runs until `safety_library_end`
//   SAFETY_OPENS=PATH       opens another library, which `safety_library_end` closes
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static void *calls_once(void *name) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    if (!strcmp(name, "mutex")) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    } else if (!strcmp(name, "semaphore")) {
        sem_t semaphore;
        sem_init(&semaphore, 0, 1);
        sem_wait(&semaphore);
    } else if (!strcmp(name, "mask")) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
    } else if (!strcmp(name, "puts")) {
        puts("from the thread");
    } else if (!strcmp(name, "fwrite")) {
        fwrite("x\n", 1, 2, stdout);
    } else if (!strcmp(name, "name")) {
        prctl(PR_SET_NAME, "worker", 0, 0, 0);
    } else {
        abort();
    }
    return name;
}

static volatile long spin;
static volatile int stop;
static pthread_t thread;
static void *opened;

static void *spins_in_library_thread(void *argument) {
    while (!stop) spin++;
    return argument;
}

__attribute__((constructor)) static void begin(void) {
    char *calls = getenv("SAFETY_CALLS"), *opens = getenv("SAFETY_OPENS");
    if (calls) {
        pthread_t once;
        if (pthread_create(&once, NULL, calls_once, calls)) abort();
        pthread_join(once, NULL);
    }
    if (getenv("SAFETY_THREAD") && pthread_create(&thread, NULL, spins_in_library_thread, NULL)) abort();
    if (opens) opened = dlopen(opens, RTLD_NOW);
}

void safety_library_end(void) {
    stop = 1;
    if (thread) pthread_join(thread, NULL);
    if (opened) dlclose(opened);
}
