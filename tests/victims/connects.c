// Connections whose duration the program determines: to a listener whose queue is full until another thread
// accepts, or until the socket's own time-out; and immediate ones. Each is a function of its own.
#include "truth.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum { ROUNDS = 8, NAP_US = 6000 };
static int64_t waited, count;

#define TIMED(call)                                    \
    ({                                                 \
        int64_t from_ = clock_ns(CLOCK_MONOTONIC);     \
        int r_ = (call);                               \
        waited += clock_ns(CLOCK_MONOTONIC) - from_;   \
        count++;                                       \
        r_;                                            \
    })

static struct sockaddr_un path = {.sun_family = AF_UNIX, .sun_path = "listener"};
static struct sockaddr_in full, closed;
// Functions with the same code must not be merged.
#define OWN NOINLINE __attribute__((no_icf))
#define AT(a) (struct sockaddr *)&(a), sizeof(a)

OWN static int unix_connect(int fd) { return TIMED(connect(fd, AT(path))); }
OWN static int tcp_connect(int fd) { return TIMED(connect(fd, AT(full))); }
OWN static int late_connect(int fd) { return TIMED(connect(fd, AT(full))); }
OWN static int refused_connect(int fd) { return TIMED(connect(fd, AT(closed))); }
OWN static int waitless_connect(int fd) { return TIMED(connect(fd, AT(full))); }
OWN static int waitless_unix_connect(int fd) { return TIMED(connect(fd, AT(path))); }

static void tell(const char *name) {
    truth_function(name, waited);
    truth_count(name, count);
    waited = count = 0;
}

static int listener(int family, struct sockaddr *at, socklen_t len) {
    int fd = socket(family, SOCK_STREAM, 0);
    if (bind(fd, at, len) || listen(fd, 0) || getsockname(fd, at, &len)) abort();
    return fd;
}

// Until the queue is full: the next connection waits.
static void fill(int family, struct sockaddr *at, socklen_t len) {
    for (int i = 0; i < 4; i++) {
        int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fd, at, len);
    }
}

static volatile int connected;
static void *acceptor(void *arg) {
    int fd = *(int *)arg;
    until_asleep(getpid());
    struct timespec t = {0, NAP_US * 1000};
    while (nanosleep(&t, &t) && errno == EINTR) {}
    // Accepts several connections until the expected one has come.
    do {
        int got = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (got >= 0) close(got);
        else usleep(1000);
    } while (!connected && fcntl(fd, F_GETFL) & O_NONBLOCK);
    return NULL;
}

static void check(int r, int error) {
    if (error ? r != -1 || errno != error : r != 0) {
        fprintf(stderr, "%d, errno %d, not %d\n", r, errno, error);
        abort();
    }
}

int main(void) {
    pthread_t thread;
    int by_path = listener(AF_UNIX, AT(path));
    fill(AF_UNIX, AT(path));
    for (int i = 0; i < ROUNDS; i++) {
        if (pthread_create(&thread, NULL, acceptor, &by_path)) abort();
        check(unix_connect(socket(AF_UNIX, SOCK_STREAM, 0)), 0);
        pthread_join(thread, NULL);
    }
    tell("unix_connect");
    check(waitless_unix_connect(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)), EAGAIN);
    tell("waitless_unix_connect");

    full.sin_family = closed.sin_family = AF_INET;
    full.sin_addr.s_addr = closed.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int by_port = listener(AF_INET, AT(full));
    truth_count("full port", ntohs(full.sin_port));
    fill(AF_INET, AT(full));
    for (int i = 0; i < ROUNDS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct timeval limit = {0, NAP_US};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        check(late_connect(fd), EINPROGRESS);
        close(fd);
    }
    tell("late_connect");
    check(waitless_connect(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), EINPROGRESS);
    tell("waitless_connect");
    // The kernel retries after a second.
    fcntl(by_port, F_SETFL, O_NONBLOCK);
    if (pthread_create(&thread, NULL, acceptor, &by_port)) abort();
    check(tcp_connect(socket(AF_INET, SOCK_STREAM, 0)), 0);
    connected = 1;
    pthread_join(thread, NULL);
    tell("tcp_connect");

    // Bound but not listening, so that no other program has the port.
    int deaf = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof closed;
    if (bind(deaf, AT(closed)) || getsockname(deaf, (struct sockaddr *)&closed, &len)) abort();
    truth_count("closed port", ntohs(closed.sin_port));
    check(refused_connect(socket(AF_INET, SOCK_STREAM, 0)), ECONNREFUSED);
    tell("refused_connect");
    unlink("listener");
    return 0;
}
