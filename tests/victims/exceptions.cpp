// Throws and catches through several frames; the time is spent in the C++ runtime's own unwinder.
// usage: exceptions SECONDS
#include "truth.h"
#include <stdexcept>
#include <string>
#include <vector>

static volatile uint64_t sink;

namespace victim {
struct Guard {
    uint64_t &n;
    ~Guard() { n++; }
};
template <typename T> NOINLINE T thrower(T depth, uint64_t &n) {
    Guard guard{n};
    if (depth == 0) throw std::runtime_error("bottom");
    return thrower<T>(depth - 1, n) + 1;
}
NOINLINE uint64_t catcher(uint64_t &n) {
    try {
        return thrower<int>(8, n);
    } catch (const std::runtime_error &error) {
        return std::string(error.what()).size();
    }
}
NOINLINE void sorter() {
    std::vector<uint64_t> v(2000);
    for (auto &x : v) x = SPIN(sink + v.size(), 3);
    std::vector<std::string> s;
    for (auto x : v) s.push_back(std::to_string(x));
    sink += s.back().size();
}
} // namespace victim

int main(int argc, char **argv) {
    int64_t until = (int64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9);
    uint64_t n = 0, caught = 0;
    while (thread_cpu() < until) {
        for (int i = 0; i < 200; i++) caught += victim::catcher(n);
        victim::sorter();
    }
    truth_count("guards", (int64_t)(n % 9)); // every throw runs nine destructors
    truth_count("caught", (int64_t)caught);
    truth_thread("main");
    return caught ? 0 : 1;
}
