// Exceptions of known types and numbers, thrown through frames with cleanups.
#include "truth.h"
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

namespace app {
struct Failure : std::runtime_error {
    explicit Failure(const std::string &what) : std::runtime_error(what) {}
};
struct Plain {
    int value;
};
} // namespace app

static int cleaned;
struct Guard {
    ~Guard() { cleaned++; }
};

#define THROWER(name, value)                                \
    NOINLINE static void name(int i) {                      \
        Guard guard;                                        \
        if (i >= 0) throw value;                            \
    }

THROWER(throw_failure, app::Failure("failure number " + std::to_string(i % 3)))
THROWER(throw_plain, app::Plain{i})
THROWER(throw_int, i)
THROWER(throw_alloc, std::bad_alloc())

template <class F> static int64_t caught(F f, int times) {
    int64_t n = 0;
    for (int i = 0; i < times; i++) {
        try {
            f(i);
        } catch (const app::Failure &e) {
            n += e.what() == "failure number " + std::to_string(i % 3);
        } catch (const app::Plain &e) {
            n += e.value == i;
        } catch (int value) {
            n += value == i;
        } catch (const std::bad_alloc &) {
            n++;
        }
    }
    return n;
}

NOINLINE static void again(int i) {
    try {
        throw_plain(i);
    } catch (...) {
        throw;
    }
}

static void *in_thread(void *) {
    truth_count("throw_failure", caught(throw_failure, 30));
    return nullptr;
}

int main() {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, in_thread, nullptr) || pthread_join(thread, nullptr)) abort();
    truth_count("throw_failure", caught(throw_failure, 300));
    truth_count("throw_plain", caught(throw_plain, 200) + caught(again, 50));
    truth_count("throw_int", caught(throw_int, 100));
    truth_count("throw_alloc", caught(throw_alloc, 40));
    truth_count("cleaned", cleaned);
    return cleaned == 720 ? 0 : 1;
}
