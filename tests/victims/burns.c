// Half a second of CPU time.
#include <stdio.h>
#include <time.h>

__attribute__((noinline)) static void burn(void) {
    struct timespec now;
    volatile long sum = 0;
    do {
        for (int i = 0; i < 100000; i++) sum += i;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while (now.tv_sec == 0 && now.tv_nsec < 500000000);
}

int main(void) {
    burn();
    puts("burned");
    return 0;
}
