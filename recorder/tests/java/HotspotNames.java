import java.util.concurrent.Callable;
import java.util.concurrent.locks.LockSupport;

/** Compiled, inlined, interpreted, native and hidden methods for tests of names. With an argument, it
 * waits for a byte of input before it compiles anything. Ends with its input. */
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

    static void pauseAfter(int calls, boolean pause) {
        if (calls > 0) {
            forward(calls, pause);
        } else if (pause) {
            LockSupport.park();
        }
    }

    static void forward(int calls, boolean pause) {
        pauseAfter(calls - 1, pause);
        sink += calls;
    }

    static void start(String name, Runnable body) {
        Thread thread = new Thread(body, name);
        thread.setDaemon(true);
        thread.start();
    }

    static void waitForever(Object monitor) {
        synchronized (monitor) {
            try {
                monitor.wait();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    static void sleepForever() {
        try {
            Thread.sleep(1_000_000_000);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** A class whose initializer does not end. A virtual thread in it cannot leave its carrier. */
    static class Pinned {
        static {
            sleepForever();
        }

        static void use() {}
    }

    /** Starts a virtual thread, where there are any. */
    static void startVirtual(Runnable body) throws Exception {
        try {
            Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, body);
        } catch (NoSuchMethodException e) {
            return;
        }
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            System.out.println("waiting");
            System.in.read();
        }
        Callable<Long> lambda = () -> outer(10);
        for (int i = 0; i < 20_000; i++) {
            sink += outer(100) + lambda.call();
            pauseAfter(5, false);
        }
        Object monitor = new Object();
        start("parked", () -> pauseAfter(20, true));
        start("waiting", () -> waitForever(monitor));
        start("sleeping", () -> sleepForever());
        startVirtual(() -> Pinned.use());
        Object held = new Object();
        start("holding", () -> {
            synchronized (held) {
                sleepForever();
            }
        });
        Thread.sleep(200);
        start("blocked", () -> waitForever(held));
        Thread.sleep(200);
        System.out.println("ready");
        while (System.in.read() >= 0) {
            sink += outer(1000);
        }
    }
}
