// Spans in C++. Links with no library and runs with or without the recorder:
//   c++ -std=c++17 -O2 -I recorder/preload/include recorder/preload/examples/spans.cpp -o spans -pthread -ldl
//   flightline record -o spans.jfr -- ./spans && flightline spans spans.jfr
#include <flightline.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

static unsigned long work(unsigned long n) {
    volatile unsigned long sum = 0;
    for (unsigned long i = 0; i < n; i++)
        sum = sum + i * i;
    return sum;
}

static void print(const char *where) {
    flightline_span_context now{};
    int found = flightline_current(&now);
    std::printf("%s %d ", where, found);
    for (unsigned char byte : now.span_id)
        std::printf("%02x", byte);
    std::printf("\n");
}

static void charge(unsigned long n) {
    flightline::span span("charge card");
    print("charge");
    // A unit of work: each sample has its labels, on a helper's thread too.
    flightline::work attempt({{"task", "charge"}, {"attempt", "0"}});
    std::thread helper([&attempt, n] {
        flightline::work::inside here(attempt);
        work(n);
    });
    work(n);
    helper.join();
}

int main(int argc, char **argv) {
    unsigned long n = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 50000000;
    print("before");
    {
        flightline::span checkout("checkout");
        flightline_label("tenant", "acme");
        print("checkout");
        charge(n);
        print("checkout");
        // Another thread enters the same span.
        flightline_span_context context{};
        if (flightline_current(&context) == 0) {
            std::thread([&context, n] {
                flightline::scope scope(context);
                print("thread");
                work(n);
            }).join();
        }
    }
    print("after");
}
