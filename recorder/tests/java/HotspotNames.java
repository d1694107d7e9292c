import java.util.concurrent.Callable;

/** Compiled, inlined, interpreted, native and hidden methods for tests of names. Ends with its input. */
public class HotspotNames {
    static volatile long sink;
    static long[] table = new long[16];

    static long leaf(long x) {
        return x * 31 + table[(int) (x & 15)];
    }

    static long middle(long x) {
        return leaf(x) ^ (x >>> 3);
    }

    static long outer(int n) {
        long sum = 0;
        for (int i = 0; i < n; i++) {
            sum += middle(sum + i);
        }
        return sum;
    }

    public static void main(String[] args) throws Exception {
        Callable<Long> lambda = () -> outer(10);
        for (int i = 0; i < 20_000; i++) {
            sink += outer(100) + lambda.call();
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {
            sink += outer(1000);
        }
    }
}
