// A C program that opens a C++ module with RTLD_LOCAL, twice.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc < 2) return 64;
    for (int i = 0; i < 2; i++) {
        void *module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!module) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        int (*call)(int) = (int (*)(int))dlsym(module, "throw_and_catch");
        if (!call) abort();
        printf("caught %d\n", call(50));
        dlclose(module);
    }
    return 0;
}
