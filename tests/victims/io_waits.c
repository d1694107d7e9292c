// Reads and writes that wait 6 ms for another thread, with the clock read right around the call. Each case is
// a function of its own. The ground truth has its path or peer by the function's name.
#include "truth.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>

enum { ROUNDS = 8, NAP_US = 6000 };
static int64_t waited[64], moved, count;
static int to_feed;

// The main thread waits first.
static void nap(void) {
    until_asleep(getpid());
    struct timespec t = {0, NAP_US * 1000};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}

#define TIMED(call)                                    \
    ({                                                 \
        int64_t from_ = clock_ns(CLOCK_MONOTONIC);     \
        __typeof__(call) r_ = (call);                  \
        if (count == 64) abort();                      \
        waited[count++] = clock_ns(CLOCK_MONOTONIC) - from_; \
        r_;                                            \
    })

static void *feeder(void *line) {
    nap();
    if (write(to_feed, line, strlen(line)) < 0) abort();
    return NULL;
}

static pthread_t feed(int fd, char *line) {
    pthread_t thread;
    to_feed = fd;
    if (pthread_create(&thread, NULL, feeder, line)) abort();
    return thread;
}

static int ends[2];
static FILE *stream;
static char buffer[1 << 16];
static char line[] = "0123456789abcde\n";

NOINLINE static ssize_t pipe_read(void) { return TIMED(read(ends[0], buffer, sizeof buffer)); }
NOINLINE static ssize_t pipe_readv(void) {
    struct iovec v = {buffer, sizeof buffer};
    return TIMED(readv(ends[0], &v, 1));
}
NOINLINE static ssize_t stream_fgets(void) { return TIMED(fgets(buffer, sizeof buffer, stream)) ? 16 : -1; }
NOINLINE static ssize_t stream_fread(void) { return (ssize_t)TIMED(fread(buffer, 1, 16, stream)); }
NOINLINE static ssize_t stream_getline(void) {
    char *p = NULL;
    size_t room = 0;
    ssize_t n = TIMED(getline(&p, &room, stream));
    free(p);
    return n;
}
NOINLINE static ssize_t stream_getc(void) {
    ssize_t n = TIMED(getc(stream)) == EOF ? -1 : 1;
    // The rest is in the buffer: no system call, nothing to record.
    for (int i = 1; i < 16; i++)
        if (getc(stream) == EOF) abort();
    return n;
}
NOINLINE static ssize_t socket_read(void) { return TIMED(read(ends[0], buffer, 78)); }
NOINLINE static ssize_t socket_recv(void) { return TIMED(recv(ends[0], buffer, sizeof buffer, 0)); }
NOINLINE static ssize_t socket_recvmsg(void) {
    struct iovec v = {buffer, sizeof buffer};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    return TIMED(recvmsg(ends[0], &m, 0));
}

static void tell(const char *name) {
    char bytes[64];
    snprintf(bytes, sizeof bytes, "%s bytes", name);
    for (int i = 0; i < count; i++) {
        char call[64];
        snprintf(call, sizeof call, "%s call %d", name, i);
        truth_count(call, waited[i]);
    }
    truth_count(name, count);
    truth_count(bytes, moved);
    moved = count = 0;
}

static void reads(const char *name, ssize_t (*get)(void)) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread = feed(ends[1], line);
        ssize_t n = get();
        if (n <= 0) abort();
        moved += n;
        pthread_join(thread, NULL);
    }
    tell(name);
}

static void *emptier(void *arg) {
    static char sink[1 << 20];
    nap();
    if (read(ends[0], sink, sizeof sink) < 0) abort();
    return arg;
}

NOINLINE static ssize_t pipe_write(void) { return TIMED(write(ends[1], buffer, 4096)); }
NOINLINE static int socket_accept(int fd) { return TIMED(accept(fd, NULL, NULL)); }

static void *closer(void *arg) {
    nap();
    close(ends[1]);
    return arg;
}
NOINLINE static ssize_t pipe_end(void) { return TIMED(read(ends[0], buffer, 77)); }

static struct sockaddr_in address;
static void *connector(void *arg) {
    nap();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) abort();
    *(int *)arg = fd;
    return NULL;
}

int main(void) {
    if (mkfifo("fifo", 0600)) abort();
    ends[0] = open("fifo", O_RDWR);
    ends[1] = ends[0];
    reads("pipe_read", pipe_read);
    reads("pipe_readv", pipe_readv);
    stream = fdopen(dup(ends[0]), "r");
    reads("stream_fgets", stream_fgets);
    reads("stream_fread", stream_fread);
    reads("stream_getline", stream_getline);
    reads("stream_getc", stream_getc);

    if (pipe(ends)) abort();
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], buffer, 4096) > 0) {}
    fcntl(ends[1], F_SETFL, 0);
    pthread_t thread;
    if (pthread_create(&thread, NULL, emptier, NULL)) abort();
    moved = pipe_write();
    pthread_join(thread, NULL);
    tell("pipe_write");

    if (pipe(ends) || pthread_create(&thread, NULL, closer, NULL)) abort();
    moved = pipe_end();
    pthread_join(thread, NULL);
    tell("pipe_end");

    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1)) abort();
    getsockname(listener, (struct sockaddr *)&address, &len);
    if (pthread_create(&thread, NULL, connector, &ends[1])) abort();
    ends[0] = socket_accept(listener);
    pthread_join(thread, NULL);
    tell("socket_accept");
    struct sockaddr_in peer;
    len = sizeof peer;
    getpeername(ends[0], (struct sockaddr *)&peer, &len);
    truth_count("peer port", ntohs(peer.sin_port));
    reads("socket_read", socket_read);
    reads("socket_recv", socket_recv);
    reads("socket_recvmsg", socket_recvmsg);

    // A recorder of system calls reads the paths from outside, after the calls: the descriptors stay open
    // until then, and the many fast calls come later.
    sleep(1);

    // Fast calls: none may be recorded, and errno must not change.
    int file = open("file", O_RDWR | O_CREAT, 0600);
    errno = 77;
    for (int i = 0; i < 20000; i++)
        if (pwrite(file, line, sizeof line, 0) != sizeof line || pread(file, buffer, 16, 0) != 16 || errno != 77) abort();
    if (read(-1, buffer, 1) != -1 || errno != EBADF) abort();
    if (fsync(file) || fdatasync(file)) abort();
    unlink("fifo");
    unlink("file");
    return 0;
}
