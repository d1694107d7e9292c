// Opens a library that publishes OpenTelemetry's thread context (OTEP 4947) while threads run, and works in
// its spans. Before that it publishes the names of its labels (process context, OTEP 4719).
// usage: spans_opened LIBRARY MS [deep]; deep: uses the library's own variable, even if another module has
// one of that name
#define _GNU_SOURCE
#include "truth.h"
#include <dlfcn.h>
#include <sys/mman.h>

static const unsigned char payload[] =
    "\x12\x5d\n\x1dthreadlocal.attribute_key_map\x12\x3c*\x3a\n\x1c\n\x1a" "datadog.local_root_span_id" "\n\x0c\n\nhttp.route" "\n\x0c\n\nhttp.agent";

struct head {
    char signature[8];
    uint32_t version, size;
    uint64_t published_ns;
    const void *payload;
};

static void publish_names(void) {
    int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
    if (ftruncate(fd, 4096)) abort();
    struct head *head = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    close(fd);
    head->version = 2, head->size = sizeof payload - 1, head->payload = payload;
    head->published_ns = 1;
    memcpy(head->signature, "OTEL_CTX", 8);
}

static void (*enter)(uint64_t);
static void (*leave)(void);
static int ms;
static volatile uint64_t sink;
static pthread_barrier_t opened;

static void burn(int share) {
    int64_t end = thread_cpu() + (int64_t)ms * 1000000 / share;
    while (thread_cpu() < end)
        for (int i = 0; i < 5000; i++) sink += (uint64_t)i;
}

static void work(void) {
    burn(1);
    struct timespec nap = {0, 5000000};
    for (int i = 0; i < 10; i++) clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, 0);
}

NOINLINE void in_first(void) { work(), sink++; }
NOINLINE void in_second(void) { work(), sink++; }
NOINLINE void in_none(void) { burn(2), sink++; }

static void *spans(void *early) {
    if (early) pthread_barrier_wait(&opened);
    enter(1);
    in_first();
    enter(2);
    in_second();
    leave();
    in_none();
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    ms = atoi(argv[2]);
    publish_names();
    pthread_barrier_init(&opened, 0, 2);
    pthread_t early, late;
    if (pthread_create(&early, 0, spans, argv)) abort();
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (argc > 3 ? RTLD_DEEPBIND : 0));
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    enter = (void (*)(uint64_t))dlsym(library, "writer_enter");
    leave = (void (*)(void))dlsym(library, "writer_leave");
    pthread_barrier_wait(&opened);
    if (pthread_create(&late, 0, spans, 0)) abort();
    spans(0);
    pthread_join(early, 0);
    pthread_join(late, 0);
    return 0;
}
