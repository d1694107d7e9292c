// One of many modules that many_modules loads; MODULE is its number.
#include "truth.h"
#define NAME2(n) module_work_##n
#define NAME(n) NAME2(n)

NOINLINE uint64_t NAME(MODULE)(uint64_t seed, uint64_t (*next)(uint64_t)) {
    uint64_t x = SPIN(seed + MODULE, 20000);
    return next ? next(x) + MODULE : x;
}
