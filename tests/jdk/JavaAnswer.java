import java.io.FileWriter;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.IntUnaryOperator;

/**
 * Spends a fixed share of its CPU time in each function, in two threads, and writes the exact times to
 * TRUTH_FILE. Argument: CPU milliseconds per thread.
 */
public class JavaAnswer {
    static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();
    static volatile int sink;

    /** Inlined by the compilers. */
    static int mix(int x) {
        x ^= x << 13; // line: mix
        x ^= x >>> 17;
        return x ^ (x << 5);
    }

    static int alpha(int seed) {
        int x = seed | 1;
        for (int i = 0; i < 20_000; i++) {
            x = mix(x) + i;
        }
        return x;
    }

    static int beta(int n) {
        return n < 2 ? n : beta(n - 1) + beta(n - 2); // line: beta
    }

    static int gamma(int seed) {
        IntUnaryOperator[] steps = {x -> x * 31 + 7, x -> x ^ (x >>> 3), x -> Integer.rotateLeft(x, 5)};
        int x = seed;
        for (int i = 0; i < 6_000; i++) {
            x = steps[i % 3].applyAsInt(x);
        }
        return x;
    }

    static int delta(int seed) {
        Map<String, Integer> map = new TreeMap<>();
        for (int i = 0; i < 100; i++) {
            map.merge("key" + (seed + i) % 37, 1, Integer::sum);
        }
        return map.size();
    }

    static void account(Map<String, Long> times, String name, IntUnaryOperator work, long until) {
        long begin = CLOCK.getCurrentThreadCpuTime();
        long end = begin + until;
        long now = begin;
        while (now < end) {
            sink += work.applyAsInt(sink & 0xff);
            now = CLOCK.getCurrentThreadCpuTime();
        }
        times.merge(name, now - begin, Long::sum);
    }

    static void worker(long budget, Map<String, Long> times) {
        for (int round = 0; round < 50; round++) {
            long slice = budget / 50;
            account(times, "alpha", JavaAnswer::alpha, slice * 4 / 10);
            account(times, "beta", x -> beta(18), slice * 3 / 10);
            account(times, "gamma", JavaAnswer::gamma, slice * 2 / 10);
            account(times, "delta", JavaAnswer::delta, slice / 10);
        }
    }

    public static void main(String[] args) throws Exception {
        long budget = Long.parseLong(args[0]) * 1_000_000;
        Map<String, Long> all = new TreeMap<>();
        Thread[] threads = new Thread[2];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> {
                Map<String, Long> times = new TreeMap<>();
                worker(budget, times);
                synchronized (all) {
                    times.forEach((name, ns) -> all.merge(name, ns, Long::sum));
                }
            }, "answer-" + i);
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        try (FileWriter out = new FileWriter(System.getenv("TRUTH_FILE"))) {
            for (Map.Entry<String, Long> entry : all.entrySet()) {
                out.write("function\t" + entry.getKey() + "\t" + entry.getValue() + "\n");
            }
        }
        System.out.println("done");
    }
}
