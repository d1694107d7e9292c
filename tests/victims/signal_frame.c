// Uses its time inside a signal handler: first on the thread's stack, then on an alternate one.
// usage: signal_frame SECONDS
#include "truth.h"
#include <signal.h>

static int64_t part;
static volatile uint64_t sink;

NOINLINE void in_handler(int64_t ns) {
    for (int64_t until = thread_cpu() + ns; thread_cpu() < until;) sink += SPIN(sink, 50000);
}
static void handler(int number) {
    (void)number;
    in_handler(20000000);
}
// The interrupted function: stacks must continue through the handler's frames to it and to main.
NOINLINE void interrupted(int number) {
    for (int64_t until = thread_cpu() + part; thread_cpu() < until;) {
        syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
        sink += SPIN(sink, 1000);
    }
}

int main(int argc, char **argv) {
    part = (int64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9 / 2);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, 0);
    stack_t alternate = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&alternate, 0);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, 0);
    interrupted(SIGUSR1);
    interrupted(SIGUSR2);
    truth_thread("main");
    return 0;
}
