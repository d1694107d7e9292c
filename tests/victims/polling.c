// A program of one thread that waits in poll(2) until it is terminated, and then prints how often that was
// interrupted.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    printf("ready %d\n", getpid());
    fflush(stdout);
    struct pollfd in = {0, POLLIN, 0};
    int times = 0;
    while (poll(&in, 1, -1) < 0 && errno == EINTR) times++;
    printf("interrupted %d\n", times);
    return 0;
}
