// Publishes OpenTelemetry's thread context (OTEP 4947) itself, as another tracer does, and burns CPU time, sleeps and allocates
// within nested spans. Arguments: what to do, one after the other:
//   burn SPAN MS    sleep SPAN MS    alloc SPAN COUNT    open SPAN MS (burns, then leaves it active while it burns outside: never)
//   garbage MS      burns with pointers that lead nowhere, or to what is no record
// SPAN is its id, 0: none. Attributes: key 1 = "/span/<id>". Each thread of the program does all of it.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "truth.h"

struct record {
    unsigned char trace[16], span[8], valid, flags;
    uint16_t attrs_size;
    unsigned char attrs[612];
} __attribute__((packed, aligned(2)));

#ifdef LIBRARY
extern __thread void *otel_thread_ctx_v1 __attribute__((tls_model("global-dynamic")));
#endif
__thread void *otel_thread_ctx_v1;

static __thread struct record records[2];
static __thread int inactive;

static void publish(uint64_t span, int flags) {
    if (span == 0) {
        *(void *volatile *)&otel_thread_ctx_v1 = NULL;
        return;
    }
    struct record *r = &records[inactive];
    inactive = !inactive;
    for (int i = 0; i < 8; i++) {
        r->span[i] = (unsigned char)(span >> (56 - 8 * i));
        r->trace[i] = 0x11;
        r->trace[8 + i] = r->span[i];
    }
    r->valid = 1;
    r->flags = (unsigned char)flags;
    int n = snprintf((char *)r->attrs + 2, 64, "/span/%llu", (unsigned long long)span);
    r->attrs[0] = 1;
    r->attrs[1] = (unsigned char)n;
    r->attrs_size = (uint16_t)(n + 2);
    __asm__ volatile("" ::: "memory");
    *(void *volatile *)&otel_thread_ctx_v1 = r;
}
