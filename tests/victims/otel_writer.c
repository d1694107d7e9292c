// A library that publishes thread contexts as OTEP 4947 specifies, for programs to open. -DPAD=BYTES adds
// thread-local bytes. With more than a few hundred, the loader finds no room for them next to those of the
// program, so each thread's are elsewhere.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct record {
    unsigned char trace[16], span[8], valid, flags;
    uint16_t attrs_size;
    unsigned char attrs[612];
} __attribute__((packed, aligned(2)));

static __thread struct record records[2];
static __thread int inactive;
static __thread volatile char pad[PAD];
__thread void *otel_thread_ctx_v1;

static void point_at(void *at) {
    __asm__ volatile("" ::: "memory");
    *(void *volatile *)&otel_thread_ctx_v1 = at;
}

void writer_enter(uint64_t span) {
    struct record *r = &records[inactive];
    inactive = !inactive;
    pad[PAD - 1]++;
    memset(r->trace, 0x11, 8);
    for (int i = 0; i < 8; i++) r->trace[8 + i] = r->span[i] = (unsigned char)(span >> (56 - 8 * i));
    r->valid = r->flags = 1;
    char *attrs = (char *)r->attrs;
    int n = sprintf(attrs + 20, "/span/%llu", (unsigned long long)span);
    memcpy(attrs, "\x00\x10" "0000000000000001\x01", 19);
    attrs[19] = (char)n;
    memcpy(attrs + 20 + n, "\x07\x01x", 3);
    r->attrs_size = (uint16_t)(20 + n + 3);
    point_at(r);
}

void writer_leave(void) { point_at(0); }
