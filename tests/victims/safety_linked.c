// Linked with safety_library.c: runs for a while beside what its constructor has started, then ends it.
#include <stdio.h>

void safety_library_end(void);
static volatile long spin;

int main(int count, char **words) {
    (void)words;
    for (long i = 0; i < 800000000; i++) spin++;
    // What was opened goes away while threads are sampled.
    safety_library_end();
    for (long i = 0; i < 200000000; i++) spin++;
    puts(count > 1 ? "ended" : "done");
    return 0;
}
