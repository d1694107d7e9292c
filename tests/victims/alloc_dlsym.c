// A shared object whose dlsym allocates, like that of C libraries before glibc 2.34; some of its blocks live
// long.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*dlsym_t)(void *, const char *);

static char *kept[64];
static int count;

void *dlsym(void *handle, const char *name) {
    static dlsym_t real;
    static __thread int inside;
    if (!real) {
        real = (dlsym_t)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!real) real = (dlsym_t)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        if (!real) abort();
    }
    // Also nested: the first of these calls makes the recorder look up its functions, with this function.
    if (inside < 3 && count < 60) {
        inside++;
        char *a = malloc(100), *b = calloc(10, 10), *c = 0;
        if (!a || !b || posix_memalign((void **)&c, 64, 50) || (uintptr_t)c % 64) abort();
        for (int i = 0; i < 100; i++)
            if (b[i]) abort();
        strcpy(a, "early");
        a = realloc(a, 300);
        if (!a || strcmp(a, "early")) abort();
        free(b);
        kept[count++] = a;
        kept[count++] = c;
        inside--;
    }
    return real(handle, name);
}

// Blocks of early allocations are moved and freed late, when the real allocator has long been found.
__attribute__((destructor)) static void done(void) {
    if (count < 2) abort();
    for (int i = 0; i < count; i++) {
        if (i % 2 == 0) {
            kept[i] = realloc(kept[i], 100000);
            if (!kept[i] || strcmp(kept[i], "early")) abort();
        }
        free(kept[i]);
    }
}
