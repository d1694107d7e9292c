// A thread's labels by the ABI of custom-labels, version 1. This file defines the ABI's symbols, as a library
// (-DLIBRARY) or in the program.
// usage of the program: custom_labels MS
#include <stdint.h>
#include <stddef.h>

struct text { size_t len; const char *at; };
struct label { struct text key, value; };
struct set { struct label *storage; size_t count, capacity; };

#ifndef USER
const uint32_t custom_labels_abi_version = 1;
__thread struct set *custom_labels_current_set;
static __thread struct label storage[3];
static __thread struct set current;

void set_customer(const char *name, size_t len) {
    storage[1].key.at = NULL;
    __asm__ volatile("" ::: "memory");
    storage[0].key = (struct text){6, "region"}, storage[0].value = (struct text){2, "eu"};
    storage[1].value = (struct text){len, name}, storage[1].key.len = 8;
    __asm__ volatile("" ::: "memory");
    storage[1].key.at = "customer";
    // The second value of a key is ignored.
    storage[2] = (struct label){{6, "region"}, {2, "us"}};
    current.storage = storage, current.count = current.capacity = 3;
    __asm__ volatile("" ::: "memory");
    custom_labels_current_set = len ? &current : NULL;
}
#else
void set_customer(const char *name, size_t len);
#endif

#ifndef LIBRARY
#include "truth.h"
#include <sys/prctl.h>

static volatile uint64_t sink;
static void spend(int ms) {
    int64_t end = thread_cpu() + (int64_t)ms * 1000000;
    while (thread_cpu() < end)
        for (int i = 0; i < 5000; i++) sink += (uint64_t)i;
    usleep((useconds_t)ms * 1000);
}
NOINLINE void for_acme(int ms) { spend(ms); sink++; }
NOINLINE void for_umbrella(int ms) { spend(ms); sink++; }
NOINLINE void for_nobody(int ms) { spend(ms); sink++; }

int main(int argc, char **argv) {
    int ms = argc > 1 ? atoi(argv[1]) : 100;
    // Gives the drain time to scan the mappings.
    for_nobody(ms);
    for (int i = 0; i < 10; i++) {
        set_customer("acme", 4);
        for_acme(ms / 10);
        set_customer("umbrella", 8);
        for_umbrella(ms / 10);
        set_customer("", 0);
        for_nobody(ms / 10);
    }
    return 0;
}
#endif
