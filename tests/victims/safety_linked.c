// Linked with safety_library.c: runs for a while together with the threads that the library's constructor has
// started, then ends them.
#include <stdio.h>

void safety_library_end(void);
static volatile long spin;

int main(int count, char **words) {
    (void)words;
    for (long i = 0; i < 800000000; i++) spin++;
    // The opened modules are closed while threads are sampled.
    safety_library_end();
    for (long i = 0; i < 200000000; i++) spin++;
    puts(count > 1 ? "ended" : "done");
    return 0;
}
