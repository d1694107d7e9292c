// Machine code in anonymous memory, as a JIT compiler makes it: no file, no unwind information.
// usage: anonymous_code SECONDS
#include "truth.h"
#include <sys/mman.h>

static volatile uint64_t sink;

#if defined __x86_64__
static const unsigned char CODE[] = {
    0x55,                         // push rbp
    0x48, 0x89, 0xe5,             // mov rbp, rsp
    0x48, 0x89, 0xf8,             // mov rax, rdi
    0x48, 0xff, 0xc8,             // 1: dec rax
    0x75, 0xfb,                   // jnz 1b
    0x5d,                         // pop rbp
    0xc3,                         // ret
};
#elif defined __aarch64__
static const uint32_t CODE[] = {
    0xa9bf7bfd, // stp x29, x30, [sp, #-16]!
    0x910003fd, // mov x29, sp
    0xf1000400, // 1: subs x0, x0, #1
    0x54ffffe1, // b.ne 1b
    0xa8c17bfd, // ldp x29, x30, [sp], #16
    0xd65f03c0, // ret
};
#endif

NOINLINE void call_generated(uint64_t (*generated)(uint64_t), int64_t ns) {
    for (int64_t until = thread_cpu() + ns; thread_cpu() < until;) sink += generated(100000);
}

int main(int argc, char **argv) {
    int64_t ns = (int64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9);
    void *code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, CODE, sizeof CODE);
    mprotect(code, 4096, PROT_READ | PROT_EXEC);
    __builtin___clear_cache(code, (char *)code + sizeof CODE);
    call_generated((uint64_t(*)(uint64_t))code, ns);
    truth_thread("main");
    return 0;
}
