// For a sanitizer, which reports an error at the start if another library precedes its own.
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    volatile long sum = 0;
    int *numbers = malloc(1000 * sizeof *numbers);
    for (int i = 0; i < 1000; i++) numbers[i] = i;
    for (long i = 0; i < 100000000; i++) sum += numbers[i % 1000];
    free(numbers);
    printf("sum %ld\n", (long)sum);
    return 0;
}
