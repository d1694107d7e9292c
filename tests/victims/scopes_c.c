// Scopes by flightline.h, also with invalid bytes. usage: scopes_c MS [with|without]: whether the library is
// in the process. An unexpected result ends the program with its line number on standard error.
#include <flightline.h>
#include "truth.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>

#define EXPECT(value, expected)                                                                      \
    do {                                                                                             \
        long is = (long)(value), want = (long)(expected);                                            \
        if (is != want) {                                                                            \
            fprintf(stderr, "line %d: %ld, not %ld\n", __LINE__, is, want);                          \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

static volatile uint64_t sink;
static int ms, with;
static void spend(void) {
    int64_t end = thread_cpu() + (int64_t)ms * 1000000;
    while (thread_cpu() < end)
        for (int i = 0; i < 5000; i++) sink += (uint64_t)i;
}
NOINLINE void in_first(void) { spend(); sink++; }
NOINLINE void in_second(void) { spend(); sink += 2; }
NOINLINE void in_odd(void) { spend(); sink += 3; }
NOINLINE void in_none(void) { spend(); sink += 4; }

static void *helps(void *scope) {
    struct flightline_scope *first = scope;
    // The other thread is in the scope, until this one enters it.
    EXPECT(flightline_scope_end(first), -ESRCH);
    in_none();
    uint64_t token = flightline_scope_enter(first);
    EXPECT(token != 0, with);
    in_first();
    EXPECT(flightline_scope_exit(first, token + 1), -ESRCH);
    EXPECT(flightline_scope_exit(first, token), with ? 0 : -ESRCH);
    EXPECT(flightline_scope_exit(first, token), -ESRCH);
    in_none();
    return NULL;
}

static void *works(void *name) {
    struct flightline_scope_label labels[] = {{"task", name}, {"attempt", "0"}};
    struct flightline_scope scope = FLIGHTLINE_SCOPE_INIT;
    for (int i = 0; i < 5; i++) {
        EXPECT(flightline_scope_begin(&scope, labels, 2), 0);
        if (!strcmp(name, "first")) {
            pthread_t helper;
            pthread_create(&helper, NULL, helps, &scope);
            in_first();
            pthread_join(helper, NULL);
        } else {
            in_second();
        }
        EXPECT(flightline_scope_end(&scope), with ? 0 : -ESRCH);
        EXPECT(flightline_scope_end(&scope), -ESRCH);
        in_none();
    }
    return NULL;
}

int main(int argc, char **argv) {
    ms = argc > 1 ? atoi(argv[1]) : 1;
    with = argc > 2 && !strcmp(argv[2], "with");
    pthread_t threads[2];
    char *names[] = {"first", "second"};
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, works, names[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);

    struct flightline_scope odd = FLIGHTLINE_SCOPE_INIT;
    errno = 77;
    EXPECT(flightline_scope_end(&odd), -ESRCH);
    EXPECT(flightline_scope_enter(&odd), 0);
    EXPECT(flightline_scope_enter(NULL), 0);
    EXPECT(flightline_scope_begin(NULL, NULL, 0), with ? -EINVAL : 0);
    EXPECT(flightline_scope_begin(&odd, NULL, 1), with ? -EINVAL : 0);
    odd.size = 8;
    EXPECT(flightline_scope_begin(&odd, NULL, 0), with ? -EINVAL : 0);
    odd.size = sizeof(odd);
    // Invalid keys: null, empty, not UTF-8, too long. Valid values: null, empty, half a character, control
    // characters.
    char key[65] = {0}, value[5000] = {0};
    memset(key, 'k', 64), memset(value, 'v', 4999);
    struct flightline_scope_label labels[] = {
        {NULL, "x"}, {"", "x"}, {"\xff", "x"}, {key, "x"}, {"none", NULL}, {"empty", ""},
        {"half", "a\xc3"}, {"control", "\x01\"\\\n"}, {"long", value},
    };
    EXPECT(flightline_scope_begin(&odd, labels, 9), with ? 4 : 0);
    in_odd();
    EXPECT(flightline_scope_end(&odd), with ? 0 : -ESRCH);
    // Ten thousand.
    static struct flightline_scope_label many[10000];
    static char keys[10000][12];
    for (int i = 0; i < 10000; i++) {
        snprintf(keys[i], sizeof(keys[i]), "key %d", i);
        many[i] = (struct flightline_scope_label){keys[i], "v"};
    }
    EXPECT(flightline_scope_begin(&odd, many, 10000), with ? 10000 - 64 : 0);
    EXPECT(flightline_scope_end(&odd), with ? 0 : -ESRCH);
    EXPECT(errno, 77);
    return 0;
}
