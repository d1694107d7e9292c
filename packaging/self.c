/* A program that records itself: cc self.c $(pkg-config --cflags --libs flightline) -o self && ./self self.jfr */
#include <flightline.h>
#include <stdio.h>
#include <string.h>

static double work(long rounds) {
    volatile double sum = 0;
    for (long i = 1; i < rounds; i++)
        sum += 1.0 / (double)i;
    return sum;
}

int main(int argc, char **argv) {
    struct flightline_options options = {.size = sizeof options, .output = argc > 1 ? argv[1] : "self.jfr", .rate_hz = 999};
    int refused = flightline_start(&options);
    if (refused) {
        fprintf(stderr, "not recorded: %s\n", strerror(-refused));
        return 1;
    }
    printf("%f\n", work(200000000));
    return flightline_stop() ? 1 : 0;
}
