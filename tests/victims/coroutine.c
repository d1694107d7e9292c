// A coroutine of makecontext that uses CPU time some calls deep.
// usage: coroutine MS
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>

static ucontext_t program, coroutine;
static volatile long sink;
static long ms;

__attribute__((noinline)) static void burn(void) {
    struct timespec t;
    do {
        for (int i = 0; i < 10000; i++)
            sink += i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < ms);
}

__attribute__((noinline)) static void deeper(int calls) {
    if (calls > 0)
        deeper(calls - 1);
    else
        burn();
    sink++;
}

static void body(void) {
    deeper(5);
    sink++;
}

int main(int argc, char **argv) {
    (void)argc;
    ms = atol(argv[1]);
    const size_t bytes = 1 << 20;
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = malloc(bytes);
    coroutine.uc_stack.ss_size = bytes;
    coroutine.uc_link = &program;
    makecontext(&coroutine, body, 0);
    swapcontext(&program, &coroutine);
    puts("done");
    return 0;
}
