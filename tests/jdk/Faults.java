// Faults that the virtual machine turns into exceptions: null pointers detected by a signal, and stack
// overflows.
public class Faults {
    static final class Box {
        int value;
    }

    static int read(Box box) {
        return box.value;
    }

    static int deep(int n) {
        return deep(n + 1) + 1;
    }

    static long nulls(int times) {
        Box full = new Box();
        long caught = 0;
        for (int i = 0; i < times; i++) {
            try {
                // Rarely null, so that the compiler relies on the processor's fault instead of a check.
                full.value = read(i % 1000 == 999 ? null : full);
            } catch (NullPointerException e) {
                caught++;
            }
        }
        return caught;
    }

    public static void main(String[] args) throws Exception {
        long[] caught = new long[4];
        Thread[] threads = new Thread[caught.length];
        for (int t = 0; t < threads.length; t++) {
            int number = t;
            threads[t] = new Thread(() -> {
                caught[number] = nulls(2_000_000);
                for (int i = 0; i < 10; i++) {
                    try {
                        deep(0);
                    } catch (StackOverflowError e) {
                        caught[number]++;
                    }
                }
            });
            threads[t].start();
        }
        long all = 0;
        for (int t = 0; t < threads.length; t++) {
            threads[t].join();
            all += caught[t];
        }
        System.out.println("caught " + all);
    }
}
