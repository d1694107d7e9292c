// An allocator to preload whose malloc calls calloc, as memory fillers and debug allocators do.
#include <stdlib.h>
#include <string.h>

void *malloc(size_t size) {
    void *memory = calloc(1, size);
    if (memory)
        memset(memory, 0xff, size);
    return memory;
}
