// Publishes OpenTelemetry's thread context (OTEP 4947) itself, like another tracer. It burns CPU time, sleeps
// and allocates in span 1 (sampled) and span 2 (not sampled), then burns CPU time while its variable points
// to invalid records.
// usage: spans_foreign MS
#include "truth.h"
#include <sys/mman.h>

struct record {
    unsigned char trace[16], span[8], valid, flags;
    uint16_t attrs_size;
    unsigned char attrs[612];
} __attribute__((packed, aligned(2)));

__thread void *otel_thread_ctx_v1;

static __thread struct record records[2];
static __thread int inactive;
static int ms = 200;

static void point_at(void *at) {
    __asm__ volatile("" ::: "memory");
    *(void *volatile *)&otel_thread_ctx_v1 = at;
}

static void publish(uint64_t span, int flags) {
    struct record *r = &records[inactive];
    inactive = !inactive;
    memset(r->trace, 0x11, 8);
    for (int i = 0; i < 8; i++) r->trace[8 + i] = r->span[i] = (unsigned char)(span >> (56 - 8 * i));
    r->valid = 1;
    r->flags = (unsigned char)flags;
    int n = snprintf((char *)r->attrs + 2, 64, "/span/%llu", (unsigned long long)span);
    r->attrs[0] = 1;
    r->attrs[1] = (unsigned char)n;
    r->attrs_size = (uint16_t)(n + 2);
    point_at(r);
}

static volatile uint64_t sink;

static void burn(int share) {
    int64_t end = thread_cpu() + (int64_t)ms * 1000000 / share;
    while (thread_cpu() < end)
        for (int i = 0; i < 5000; i++) sink += (uint64_t)i;
}

static void work(void) {
    burn(2);
    for (int i = 0; i < 2000; i++) {
        void *volatile p = malloc(4096);
        free(p);
    }
    struct timespec nap = {0, 5000000};
    for (int i = 0; i < 10; i++) clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, 0);
}

NOINLINE void in_first(void) { work(), sink++; }
NOINLINE void in_second(void) { work(), sink++; }
NOINLINE void in_garbage(void) { burn(8), sink++; }

static void *thread(void *_) {
    publish(1, 1);
    in_first();
    publish(2, 0);
    in_second();
    // Unmapped; not aligned; the last bytes of a page; a record without end; one that is not valid.
    unsigned char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    struct record *cut = (struct record *)(pages + 4096 - 64);
    cut->valid = 1;
    cut->span[0] = 9;
    cut->attrs_size = 500;
    struct record *endless = &records[0];
    endless->attrs_size = 0xffff;
    struct record *invalid = &records[1];
    invalid->valid = 0;
    void *at[] = {(void *)8, (void *)0xdeadbeefdead0000, (void *)(uintptr_t)-1, pages + 4096, pages + 4095, pages + 4032 - 1,
                  cut, endless, invalid};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        point_at(at[i]);
        in_garbage();
    }
    point_at(0);
    return _;
}

int main(int argc, char **argv) {
    if (argc > 1) ms = atoi(argv[1]);
    pthread_t other;
    if (pthread_create(&other, 0, thread, 0)) abort();
    thread(0);
    pthread_join(other, 0);
    return 0;
}
