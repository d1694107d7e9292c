// Bound to the older of glibc's two versions of some functions, like objects from before 2003 and portable
// builds. That version's condition variable is one pointer: the memory after it must not change.
#include "truth.h"
#include <errno.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define OLDER(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
OLDER(pthread_cond_init);
OLDER(pthread_cond_signal);
OLDER(pthread_cond_wait);
OLDER(pthread_cond_timedwait);
OLDER(posix_spawn);
OLDER(posix_spawnp);

enum { ROUNDS = 12 };
static struct {
    void *condition;
    unsigned char after[64];
} old;
static pthread_cond_t *const condition = (pthread_cond_t *)&old;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int ready;
static int64_t waited, sure, possible;

#define TIMED(call)                                    \
    ({                                                 \
        int64_t from_ = clock_ns(CLOCK_MONOTONIC);     \
        int r_ = (call);                               \
        from_ = clock_ns(CLOCK_MONOTONIC) - from_;     \
        waited += from_;                               \
        sure += from_ >= 3000000;                      \
        possible += from_ >= 1000000;                  \
        r_;                                            \
    })

NOINLINE static void old_wait(void) {
    pthread_mutex_lock(&mutex);
    while (!ready) TIMED(pthread_cond_wait(condition, &mutex));
    ready = 0;
    pthread_mutex_unlock(&mutex);
}

NOINLINE static void old_late(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 4000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_mutex_lock(&mutex);
    if (TIMED(pthread_cond_timedwait(condition, &mutex, &t)) != ETIMEDOUT) abort();
    pthread_mutex_unlock(&mutex);
}

static void *giver(void *arg) {
    until_asleep(getpid());
    usleep(4000);
    pthread_mutex_lock(&mutex);
    ready = 1;
    pthread_cond_signal(condition);
    pthread_mutex_unlock(&mutex);
    return arg;
}

static void tell(const char *name) {
    char text[64];
    snprintf(text, sizeof text, "%s sure", name);
    truth_function(name, waited);
    truth_count(name, possible);
    truth_count(text, sure);
    waited = sure = possible = 0;
}

// The older version executes a file without an interpreter line with the shell.
static void spawns(void) {
    char *argv[] = {"./script", NULL}, *envp[] = {"PATH=/bin:/usr/bin", NULL};
    int fd = open("script", O_WRONLY | O_CREAT | O_TRUNC, 0700);
    if (write(fd, "exit 7\n", 7) != 7 || close(fd)) abort();
    for (int by_name = 0; by_name < 2; by_name++) {
        pid_t pid;
        int status;
        int r = by_name ? posix_spawnp(&pid, "./script", NULL, NULL, argv, envp) : posix_spawn(&pid, "./script", NULL, NULL, argv, envp);
        if (r || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7) abort();
    }
    unlink("script");
}

int main(void) {
    memset(old.after, 0xa5, sizeof old.after);
    pthread_cond_init(condition, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, giver, NULL)) abort();
        old_wait();
        pthread_join(thread, NULL);
    }
    tell("old_wait");
    for (int i = 0; i < ROUNDS; i++) old_late();
    tell("old_late");
    for (size_t i = 0; i < sizeof old.after; i++)
        if (old.after[i] != 0xa5) abort();
    spawns();
    return 0;
}
