// Exceptions through all code that is interposed by a recorder of exceptions, locks and allocations. One case
// per run: stress_throw CASE. The output and the exit status must be the same with and without a recorder.
#include "truth.h"
#include <csetjmp>
#include <csignal>
#include <dlfcn.h>
#include <exception>
#include <fcntl.h>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <semaphore.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

static std::atomic<long> destroyed;
struct Counted {
    std::string text = "longer than what fits into the object itself";
    ~Counted() { destroyed++; }
};
struct Own : std::runtime_error {
    int code;
    explicit Own(int code) : std::runtime_error("own " + std::to_string(code)), code(code) {}
};
struct Wide { char bytes[20000]; int value; };

NOINLINE static int down(int depth, int kind) {
    Counted counted;
    if (depth > 0) return down(depth - 1, kind) + (int)counted.text.size();
    switch (kind % 6) {
    case 0: throw Own(kind);
    case 1: throw kind;
    case 2: throw "text";
    case 3: throw Wide{{}, kind};
    case 4: std::vector<int>().at((size_t)kind); break;
    default: throw std::make_shared<Counted>();
    }
    return 0;
}

static long catches(int kind) {
    try {
        down(kind % 20, kind);
    } catch (const Own &own) {
        return own.code == kind && own.what() == "own " + std::to_string(kind) ? 1 : -1000000;
    } catch (int value) {
        return value == kind ? 2 : -1000000;
    } catch (const char *text) {
        return !strcmp(text, "text") ? 3 : -1000000;
    } catch (const Wide &wide) {
        return wide.value == kind ? 4 : -1000000;
    } catch (const std::out_of_range &) {
        return 5;
    } catch (...) {
        return 6;
    }
    return -1000000;
}

static void storm() {
    std::vector<std::thread> threads;
    std::atomic<long> sum{0};
    for (int t = 0; t < 8; t++)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 1500; i++) sum += catches(t * 1500 + i);
        });
    // Children throw as well, with only one thread.
    for (int i = 0; i < 10; i++) {
        pid_t p = fork();
        if (p == 0) {
            long own = 0;
            for (int k = 0; k < 60; k++) own += catches(k);
            _exit(own == 210 ? 21 : 1);
        }
        int status = 0;
        while (waitpid(p, &status, 0) != p) {}
        printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    for (auto &thread : threads) thread.join();
    printf("sum %ld destroyed %ld\n", sum.load(), destroyed.load());
}

static void kinds() {
    // Rethrown, stored, passed to another thread, nested.
    long again = 0, nested = 0;
    for (int i = 0; i < 300; i++) {
        std::exception_ptr kept;
        try {
            try {
                down(5, i);
            } catch (...) {
                again++;
                throw;
            }
        } catch (...) {
            kept = std::current_exception();
        }
        std::thread([&] {
            try {
                std::rethrow_exception(kept);
            } catch (...) {
                again++;
            }
        }).join();
        try {
            try {
                down(3, 0);
            } catch (...) {
                std::throw_with_nested(std::runtime_error("outer"));
            }
        } catch (const std::exception &outer) {
            try {
                std::rethrow_if_nested(outer);
            } catch (const Own &) {
                nested++;
            }
        }
    }
    printf("again %ld nested %ld\n", again, nested);
    // In a destructor during unwinding; in a handler; in a function-try-block.
    struct Busy {
        ~Busy() {
            try {
                down(2, 1);
            } catch (int) {
                destroyed += std::uncaught_exceptions() == 1;
            }
        }
    };
    long both = 0;
    for (int i = 0; i < 200; i++) try {
        Busy busy;
        down(1, 0);
    } catch (const Own &) {
        both += catches(i) > 0;
    }
    printf("both %ld uncaught %d\n", both, std::uncaught_exceptions());
    // Out of memory: the C++ library has an emergency pool.
    long none = 0;
    for (int i = 0; i < 100; i++) try {
        volatile size_t bytes = (size_t)1 << 60;
        std::unique_ptr<char[]> p(new char[bytes]);
    } catch (const std::bad_alloc &) {
        none++;
    }
    auto broken = std::async(std::launch::async, []() -> int { return down(4, 0); });
    try {
        broken.get();
    } catch (const Own &own) {
        printf("%s\n", own.what());
    }
    printf("none %ld destroyed %ld\n", none, destroyed.load());
}

// A cancelled thread runs the destructors, and code that catches everything must rethrow.
static void cancelled() {
    static sem_t never;
    static std::atomic<long> passed, destructed;
    sem_init(&never, 0, 0);
    long ended = 0;
    for (int i = 0; i < 60; i++) {
        std::atomic<bool> in{false};
        struct Arg { std::atomic<bool> *in; int kind; } arg{&in, i % 3};
        pthread_t thread;
        pthread_create(&thread, nullptr, [](void *p) -> void * {
            auto *arg = static_cast<Arg *>(p);
            int kind = arg->kind;
            struct Here { ~Here() { destructed++; } } here;
            try {
                catches(kind);
                *arg->in = true;
                if (kind == 0) for (;;) sem_wait(&never);
                if (kind == 1) for (;;) { char c; if (read(-1, &c, 1) >= 0) break; }
                pthread_exit(nullptr);
            } catch (...) {
                passed++;
                throw;
            }
            return nullptr;
        }, &arg);
        while (!in) std::this_thread::yield();
        if (i % 3 != 2) pthread_cancel(thread);
        void *result = nullptr;
        pthread_join(thread, &result);
        ended += result == PTHREAD_CANCELED;
    }
    printf("ended %ld passed %ld destructed %ld\n", ended, passed.load(), destructed.load());
}

static long compared;
static int compare(const void *a, const void *b) {
    if (++compared % 50 == 0) throw Own((int)compared);
    return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}
static jmp_buf back;
static void callbacks() {
    // Through frames of the C library.
    long through = 0;
    for (int i = 0; i < 100; i++) {
        std::vector<int> v;
        for (int k = 0; k < 64; k++) v.push_back((k * 7919 + i) % 64);
        try {
            qsort(v.data(), v.size(), sizeof(int), compare);
        } catch (const Own &) {
            through++;
        }
    }
    printf("through %ld\n", through);
    // A failed attempt may be repeated.
    std::once_flag once;
    int attempts = 0;
    for (int i = 0; i < 5; i++) try {
        std::call_once(once, [&] { if (++attempts < 4) throw Own(attempts); });
    } catch (const Own &) {
    }
    printf("attempts %d\n", attempts);
    // Jumps out of an exception handler while signals arrive.
    long jumped = 0;
    signal(SIGUSR1, [](int) { destroyed += catches(1) == 2; });
    for (int i = 0; i < 100; i++) {
        if (setjmp(back) == 0) {
            catches(i);
            raise(SIGUSR1);
            longjmp(back, 1);
        }
        jumped++;
    }
    printf("jumped %ld destroyed %ld\n", jumped, destroyed.load());
}

static void modules(const char *path) {
    long caught = 0, failed = 0;
    for (int i = 0; i < 60; i++) {
        void *module = dlopen(path, i % 2 ? RTLD_NOW : RTLD_LAZY | RTLD_LOCAL);
        if (!module) {
            failed++;
            caught += catches(i) > 0;
            continue;
        }
        auto *call = reinterpret_cast<int (*)(int)>(dlsym(module, "throw_and_catch"));
        std::thread([&] { caught += call(5); }).join();
        caught += call(3);
        dlclose(module);
        caught += catches(i) > 0;
    }
    printf("caught %ld failed %ld\n", caught, failed);
}

int main(int argc, char **argv) {
    std::string name = argc > 1 ? argv[1] : "";
    if (name == "storm") storm();
    else if (name == "kinds") kinds();
    else if (name == "cancelled") cancelled();
    else if (name == "callbacks") callbacks();
    else if (name == "modules" && argc > 2) modules(argv[2]);
    else if (name == "uncaught" || name == "noexcept") {
        // Ends by SIGABRT, and the exception is still available to a handler.
        rlimit none{0, 0};
        setrlimit(RLIMIT_CORE, &none);
        std::set_terminate([] {
            try {
                std::rethrow_exception(std::current_exception());
            } catch (const Own &own) {
                printf("ends with %s\n", own.what());
                fflush(stdout);
            }
            abort();
        });
        if (name == "uncaught") down(3, 6);
        else [](int kind) noexcept { down(3, kind); }(12);
    } else return 64;
    return 0;
}
