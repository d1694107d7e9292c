// A module whose functions have the names that readers stumble over. void busy(int rounds)
template <class T> struct Weird {
    __attribute__((noinline)) T operator()(T x) const {
        volatile T s = x;
        for (int i = 0; i < 100000; i++)
            s = s * 3 + 1;
        return s;
    }
    __attribute__((noinline)) T operator[](T x) const { return (*this)(x) + 1; }
};

extern "C" long busy(int rounds) {
    Weird<long> weird;
    auto step = [&](int k) __attribute__((noinline)) { return weird[k]; };
    long sum = 0;
    for (int i = 0; i < rounds; i++)
        sum += step(i);
    return sum;
}
