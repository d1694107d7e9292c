// Allocates through operator new, containers and strings; its own count by a function that every site reports to.
// usage: alloc_new ROUNDS
#include "truth.h"
#include <memory>
#include <string>
#include <vector>

static int64_t objects, arrays, leaked;

struct Object { char bytes[200]; };

extern "C" NOINLINE void new_objects(long n) {
    for (long i = 0; i < n * 100; i++) {
        auto object = std::make_unique<Object>();
        __asm__ volatile("" : : "r"(object.get()) : "memory");
        objects += sizeof(Object);
    }
}

extern "C" NOINLINE void new_arrays(long n) {
    for (long i = 0; i < n * 10; i++) {
        std::vector<double> values(1000 + i % 3);
        __asm__ volatile("" : : "r"(values.data()) : "memory");
        arrays += (int64_t)(values.size() * sizeof(double));
    }
}

static Object *kept[10000];

extern "C" NOINLINE void new_leak(long n) {
    for (long i = 0; i < n * 5; i++) {
        kept[i] = new Object;
        __asm__ volatile("" : : "r"(kept[i]) : "memory");
        leaked += sizeof(Object);
    }
}

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 10;
    new_objects(n), new_arrays(n), new_leak(n);
    truth_count("new_objects", objects);
    truth_count("new_arrays", arrays);
    truth_count("new_leak", leaked);
    return 0;
}
