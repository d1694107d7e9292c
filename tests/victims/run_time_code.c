// Machine code generated at run time, and the ways to name it.
// usage: run_time_code map|late|dump|reused SECONDS
//   map     /tmp/perf-<pid>.map, before the code runs
//   late    the same, written at the end
//   dump    jitdump in the working directory, with lines
//   reused  other code at the same addresses from half-time on, with its name in the map
#include "truth.h"
#include <sys/mman.h>

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

#define FUNCTIONS 3
static const char *const FIRST[FUNCTIONS] = {"py::alpha:/srv/a.py", "JS:*beta /srv/b.js:3:1", "gamma"};
static const char *const SECOND[FUNCTIONS] = {"delta", "epsilon", "zeta with spaces"};

static char *code;
static volatile uint64_t sink;

static char *at(int i) { return code + i * 64; }

static void tell(FILE *map, const char *const *names) {
    for (int i = 0; i < FUNCTIONS; i++) fprintf(map, "%lx %zx %s\n", (unsigned long)at(i), sizeof CODE, names[i]);
    fflush(map);
}

static void put(FILE *file, const void *bytes, size_t len) {
    if (fwrite(bytes, 1, len, file) != len) abort();
}

static void put32(FILE *file, uint32_t word) { put(file, &word, 4); }
static void put64(FILE *file, uint64_t word) { put(file, &word, 8); }

static void dump(void) {
    char name[64];
    snprintf(name, sizeof name, "jit-%d.dump", (int)getpid());
    FILE *file = fopen(name, "w+");
    if (!file) abort();
    // magic, version, size, machine, 0, pid, time, flags
    put32(file, 0x4a695444), put32(file, 1), put32(file, 40), put32(file, 62), put32(file, 0);
    put32(file, (uint32_t)getpid()), put64(file, (uint64_t)clock_ns(CLOCK_MONOTONIC)), put64(file, 0);
    for (int i = 0; i < FUNCTIONS; i++) {
        uint64_t address = (uint64_t)at(i), now = (uint64_t)clock_ns(CLOCK_MONOTONIC);
        // lines: kind 2; everything is line 100 + i
        put32(file, 2), put32(file, 16 + 16 + 16 + 6), put64(file, now);
        put64(file, address), put64(file, 1);
        put64(file, address), put32(file, 100 + (uint32_t)i), put32(file, 0), put(file, "x.lua", 6);
        // code: kind 0
        size_t len = strlen(FIRST[i]) + 1;
        put32(file, 0), put32(file, (uint32_t)(16 + 40 + len + sizeof CODE)), put64(file, now);
        put32(file, (uint32_t)getpid()), put32(file, (uint32_t)getpid()), put64(file, address), put64(file, address);
        put64(file, sizeof CODE), put64(file, (uint64_t)i), put(file, FIRST[i], len), put(file, at(i), sizeof CODE);
    }
    fflush(file);
    // Tools find the file by this executable mapping of one of its pages.
    if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0) == MAP_FAILED) abort();
}

static void run(const char *const *names, int64_t until) {
    int64_t spent[FUNCTIONS] = {0};
    while (thread_cpu() < until)
        for (int i = 0; i < FUNCTIONS; i++) {
            int64_t start = thread_cpu();
            sink += ((uint64_t(*)(uint64_t))at(i))((uint64_t)50000 << i);
            spent[i] += thread_cpu() - start;
        }
    for (int i = 0; i < FUNCTIONS; i++) truth_function(names[i], spent[i]);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "map";
    int64_t ns = (int64_t)((argc > 2 ? atof(argv[2]) : 1) * 1e9);
    code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < FUNCTIONS; i++) memcpy(at(i), CODE, sizeof CODE);
    mprotect(code, 4096, PROT_READ | PROT_EXEC);
    __builtin___clear_cache(code, code + 4096);
    char name[64];
    snprintf(name, sizeof name, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = strcmp(how, "dump") ? fopen(name, "w") : NULL;
    if (!strcmp(how, "map") || !strcmp(how, "reused")) tell(map, FIRST);
    if (!strcmp(how, "dump")) dump();
    int halves = !strcmp(how, "reused") ? 2 : 1;
    int64_t start = thread_cpu();
    run(FIRST, start + ns / halves);
    if (halves == 2) {
        tell(map, SECOND);
        // The recorder looks up the old code's name at its next scan; gives it time to do so, also on a busy machine.
        usleep(1500000);
        run(SECOND, start + ns);
    }
    if (!strcmp(how, "late")) tell(map, FIRST);
    if (map) fclose(map);
    truth_thread("main");
    return 0;
}
