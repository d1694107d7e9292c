// Something for every engine: CPU time, idle threads, allocations and a leak, contention, slow reads, exceptions, page faults.
#include "truth.h"
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

static void nap(int ms) {
    timespec t{ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&t, &t)) {}
}

static double cpu() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

volatile unsigned long sink;

__attribute__((noinline)) void burn(double seconds) {
    double end = cpu() + seconds;
    while (cpu() < end)
        for (int i = 0; i < 1000; i++) sink = sink * 3 + i;
}

__attribute__((noinline)) void leak(std::vector<char *> &kept) {
    for (int i = 0; i < 4000; i++) kept.push_back((char *)memset(malloc(4096), 1, 4096));
}

__attribute__((noinline)) void churn() {
    for (int i = 0; i < 20000; i++) free(memset(malloc(3000), 1, 3000));
}

static std::mutex mutex;

static std::atomic<int> waiter_tid, reader_tid;

__attribute__((noinline)) void wait_for_lock() {
    waiter_tid = (int)syscall(SYS_gettid);
    std::lock_guard<std::mutex> held(mutex);
    sink = sink + 1;
}

__attribute__((noinline)) void contend() {
    for (int i = 0; i < 3; i++) {
        mutex.lock();
        waiter_tid = 0;
        std::thread waiter(wait_for_lock);
        // Its wait must be 30 ms, whenever it starts.
        while (!waiter_tid) sched_yield();
        until_asleep(waiter_tid);
        nap(30);
        mutex.unlock();
        waiter.join();
    }
}

__attribute__((noinline)) void slow_reads() {
    int ends[2], sockets[2];
    if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) abort();
    reader_tid = (int)syscall(SYS_gettid);
    std::thread writer([&] {
        for (int i = 0; i < 2; i++) {
            until_asleep(reader_tid);
            nap(30);
            if (write(ends[1], "x", 1) != 1) abort();
            until_asleep(reader_tid);
            nap(30);
            if (send(sockets[1], "y", 1, 0) != 1) abort();
        }
    });
    char c;
    for (int i = 0; i < 2; i++)
        if (read(ends[0], &c, 1) != 1 || recv(sockets[0], &c, 1, 0) != 1) abort();
    writer.join();
}

__attribute__((noinline)) void throws() {
    for (int i = 0; i < 5; i++) {
        try {
            throw std::runtime_error("number " + std::to_string(i));
        } catch (const std::exception &) {
            sink = sink + 1;
        }
    }
}

__attribute__((noinline)) void fault() {
    const size_t bytes = 32 << 20;
    char *pages = (char *)mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(pages, bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < bytes; i += 4096) pages[i] = 1;
    munmap(pages, bytes);
}

int main() {
    std::thread idle([] { nap(700); });
    std::vector<char *> kept;
    burn(0.4);
    leak(kept);
    churn();
    contend();
    slow_reads();
    throws();
    fault();
    idle.join();
    return kept.size() != 4000;
}
