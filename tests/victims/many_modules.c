// Loads modules while it runs, works in each for the same CPU time, calls back through them, and unloads
// half.
// usage: many_modules SECONDS MODULE.so...      (module i exports module_work_<i>)
#include "truth.h"
#include <dlfcn.h>

typedef uint64_t (*work_fn)(uint64_t, uint64_t (*)(uint64_t));

static volatile uint64_t sink;
NOINLINE uint64_t called_back(uint64_t x) { return SPIN(x, 20000); }

int main(int argc, char **argv) {
    double seconds = atof(argv[1]);
    int modules = argc - 2;
    int64_t each = (int64_t)(seconds * 1e9 / modules);
    for (int i = 0; i < modules; i++) {
        void *module = dlopen(argv[i + 2], RTLD_NOW | RTLD_LOCAL);
        if (!module) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        char name[32];
        snprintf(name, sizeof name, "module_work_%d", i);
        work_fn work = (work_fn)dlsym(module, name);
        int64_t from = thread_cpu();
        while (thread_cpu() - from < each) sink += work(sink, called_back);
        truth_function(name, thread_cpu() - from);
        if (i % 2) dlclose(module);
    }
    truth_thread("main");
    return 0;
}
