// Waits of the C++ standard library whose length the program measures: another thread ends them 4 ms after
// this one has gone to sleep. Most of them use the futex system call inside inlined templates.
#include "truth.h"
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <future>
#include <latch>
#include <mutex>
#include <optional>
#include <semaphore>
#include <shared_mutex>
#include <thread>

enum { ROUNDS = 12 };
static int64_t waited, sure, possible;
template <typename Call> static void timed(Call call) {
    int64_t took = clock_ns(CLOCK_MONOTONIC);
    call();
    took = clock_ns(CLOCK_MONOTONIC) - took;
    waited += took;
    sure += took >= 3000000;
    possible += took >= 1000000;
}

static std::atomic<int> number;
static std::atomic<bool> flag;
static std::counting_semaphore<8> counting(0);
static std::binary_semaphore binary(0);
static std::optional<std::latch> gate;
static std::optional<std::barrier<>> meeting;
static std::mutex mutex;
static std::shared_mutex shared;
static std::condition_variable changed;
static bool ready;
static std::optional<std::promise<int>> promise;
static std::future<int> result;
static std::atomic<bool> held;

NOINLINE static void atomic_wait() { timed([] { number.wait(0); }); number = 0; }
// Not four bytes: the library waits on a word of its own.
NOINLINE static void proxy_wait() { timed([] { flag.wait(false); }); flag = false; }
NOINLINE static void counting_wait() { timed([] { counting.acquire(); }); }
NOINLINE static void binary_wait() { timed([] { binary.acquire(); }); }
NOINLINE static void binary_late() {
    timed([] { if (binary.try_acquire_for(std::chrono::milliseconds(40))) abort(); });
}
NOINLINE static void latch_wait() { timed([] { gate->wait(); }); }
NOINLINE static void barrier_wait() { timed([] { meeting->arrive_and_wait(); }); }
NOINLINE static void future_wait() { timed([] { if (result.get() != 5) abort(); }); }
NOINLINE static void mutex_wait() { timed([] { mutex.lock(); }); mutex.unlock(); }
NOINLINE static void shared_wait() { timed([] { shared.lock_shared(); }); shared.unlock_shared(); }
NOINLINE static void condition_wait() {
    std::unique_lock lock(mutex);
    while (!ready) timed([&] { changed.wait(lock); });
    ready = false;
}
// A local static that another thread is initialising.
struct Slow { Slow() noexcept; };
template <int N> static Slow &made() { static Slow slow; return slow; }
static Slow &(*const make[])() = {made<0>, made<1>, made<2>, made<3>, made<4>, made<5>, made<6>, made<7>, made<8>, made<9>, made<10>, made<11>};
static int round_number;
NOINLINE static void guard_wait() { timed([] { make[round_number](); }); }

static void nap() {
    until_asleep(getpid());
    timespec t = {0, 4000000};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}
static void hold() { held = true; nap(); }
Slow::Slow() noexcept { hold(); }

template <typename Other> static void run(const char *name, void (*wait)(), Other other) {
    char text[64];
    for (round_number = 0; round_number < ROUNDS; round_number++) {
        gate.emplace(1);
        meeting.emplace(2);
        promise.emplace();
        result = promise->get_future();
        held = false;
        std::thread thread(other);
        while (!held) std::this_thread::yield();
        wait();
        thread.join();
    }
    truth_function(name, waited);
    truth_count(name, possible);
    snprintf(text, sizeof text, "%s sure", name);
    truth_count(text, sure);
    waited = sure = possible = 0;
}

int main() {
    run("atomic_wait", atomic_wait, [] { hold(); number = 1; number.notify_all(); });
    run("proxy_wait", proxy_wait, [] { hold(); flag = true; flag.notify_all(); });
    run("counting_wait", counting_wait, [] { hold(); counting.release(); });
    run("binary_wait", binary_wait, [] { hold(); binary.release(); });
    run("binary_late", binary_late, [] { held = true; });
    run("latch_wait", latch_wait, [] { hold(); gate->count_down(); });
    run("barrier_wait", barrier_wait, [] { hold(); meeting->arrive_and_wait(); });
    run("future_wait", future_wait, [] { hold(); promise->set_value(5); });
    run("mutex_wait", mutex_wait, [] { std::lock_guard lock(mutex); hold(); });
    run("shared_wait", shared_wait, [] { std::lock_guard lock(shared); hold(); });
    run("condition_wait", condition_wait, [] { hold(); mutex.lock(); ready = true; mutex.unlock(); changed.notify_one(); });
    run("guard_wait", guard_wait, [] { make[round_number](); });
    return 0;
}
