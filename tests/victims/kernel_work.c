// Half of the CPU time in a system call that only copies, half in the program.
// usage: kernel_work SECONDS
#include "truth.h"

static volatile uint64_t sink;

NOINLINE void in_kernel(int fd, char *buffer, size_t len) {
    if (read(fd, buffer, len) < 0) abort();
    __asm__ volatile("" ::: "memory");
}

NOINLINE uint64_t in_program(uint64_t n) { return SPIN(n, about(400000, n)) + 1; }

int main(int argc, char **argv) {
    int64_t goal = (int64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9);
    static char buffer[2 << 20];
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    int64_t kernel = 0, program = 0;
    while (kernel + program < goal) {
        int64_t from = thread_cpu();
        if (kernel <= program) {
            in_kernel(fd, buffer, about(sizeof buffer / 2, (uint64_t)from));
            kernel += thread_cpu() - from;
        } else {
            sink += in_program((uint64_t)from);
            program += thread_cpu() - from;
        }
    }
    truth_function("in_kernel", kernel);
    truth_function("in_program", program);
    truth_thread("main");
    return 0;
}
