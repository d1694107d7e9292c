// Counts with restartable sequences of its own (rseq(2)) while its threads enter and leave spans: one counter
// per processor, which is right only if the kernel aborts every sequence that it interrupts.
// usage: spans_rseq ROUNDS
#include "truth.h"
#include <sys/rseq.h>
#include "flightline.h"

enum { THREADS = 4, PROCESSORS = 4096 };
static struct { uint64_t n; char apart[56]; } counters[PROCESSORS];
static long rounds;

static void count(void) {
    struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    for (;;) {
        uint32_t cpu = *(volatile uint32_t *)&area->cpu_id_start;
        uint64_t *at = &counters[cpu].n;
        __asm__ goto volatile(
            ".pushsection __rseq_cs, \"aw\"\n .balign 32\n"
            "3: .long 0, 0\n .quad 1f, 2f - 1f, 4f\n .popsection\n"
            "leaq 3b(%%rip), %%rax\n movq %%rax, %0\n"
            "1: cmpl %1, %2\n jnz %l[again]\n movq (%3), %%rax\n addq $1, %%rax\n movq %%rax, (%3)\n"
            "2: .pushsection __rseq_failure, \"ax\"\n .byte 0x0f, 0xb9, 0x3d\n .long 0x53053053\n"
            "4: jmp %l[again]\n .popsection\n"
            ::"m"(area->rseq_cs), "r"(cpu), "m"(area->cpu_id), "r"(at) : "memory", "rax", "cc" : again);
        return;
    again:;
    }
}

static void *work(void *unused) {
    for (long i = 0; i < rounds; i++) {
        uint64_t span = flightline_span_begin("counting");
        for (int k = 0; k < 1000; k++) count();
        flightline_span_end(span);
        if (i % 64 == 0) usleep(1000);
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 2 || __rseq_size == 0) return 77;
    rounds = atol(argv[1]);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    uint64_t sum = 0;
    for (int i = 0; i < PROCESSORS; i++) sum += counters[i].n;
    uint64_t right = (uint64_t)rounds * THREADS * 1000;
    if (sum != right) return fprintf(stderr, "%lu, not %lu\n", (unsigned long)sum, (unsigned long)right), 1;
    return 0;
}
