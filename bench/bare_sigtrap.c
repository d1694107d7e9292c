// Preloaded library: a perf event at 1 kHz with an empty handler, the baseline for the interruptions by a recorder.
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void nothing(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
}

__attribute__((constructor)) static void start(void) {
    struct sigaction action = {.sa_sigaction = nothing, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigfillset(&action.sa_mask);
    sigaction(SIGTRAP, &action, NULL);
    struct perf_event_attr event;
    memset(&event, 0, sizeof event);
    event.size = sizeof event;
    event.type = PERF_TYPE_SOFTWARE;
    event.config = PERF_COUNT_SW_CPU_CLOCK;
    event.sample_period = 1000000;
    event.sigtrap = 1;
    event.remove_on_exec = 1;
    event.sig_data = 1;
    if (syscall(SYS_perf_event_open, &event, 0, -1, -1, PERF_FLAG_FD_CLOEXEC) < 0) perror("perf_event_open");
}
