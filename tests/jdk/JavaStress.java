import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.util.zip.CRC32;

/**
 * Loads and unloads classes, throws, and recompiles, for some seconds; prints a checksum that depends only on
 * its argument, the number of rounds.
 */
public class JavaStress {
    public static class Unit implements Runnable {
        static int calls;
        final CRC32 crc = new CRC32();

        @Override
        public void run() {
            for (int i = 0; i < 3_000; i++) {
                crc.update(step(i));
            }
        }

        int step(int i) {
            try {
                if (i % 97 == 0) {
                    throw new IllegalStateException("x");
                }
                return i * 31;
            } catch (IllegalStateException e) {
                return calls++ & 1;
            }
        }
    }

    /** Defines its own copy of Unit. */
    static class Loader extends ClassLoader {
        final byte[] code;

        Loader(byte[] code) {
            super(JavaStress.class.getClassLoader());
            this.code = code;
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.equals("JavaStress$Unit")) {
                return super.loadClass(name, resolve);
            }
            Class<?> known = findLoadedClass(name);
            return known != null ? known : defineClass(name, code, 0, code.length);
        }
    }

    static byte[] code() throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (InputStream in = JavaStress.class.getResourceAsStream("JavaStress$Unit.class")) {
            byte[] buffer = new byte[4096];
            for (int n = in.read(buffer); n > 0; n = in.read(buffer)) {
                out.write(buffer, 0, n);
            }
        }
        return out.toByteArray();
    }

    public static void main(String[] args) throws Exception {
        byte[] code = code();
        int rounds = Integer.parseInt(args[0]);
        long[] sums = new long[3];
        Thread[] threads = new Thread[sums.length];
        for (int t = 0; t < threads.length; t++) {
            int id = t;
            threads[t] = new Thread(() -> {
                for (int i = 0; i < rounds; i++) {
                    try {
                        Class<?> unit = new Loader(code).loadClass("JavaStress$Unit");
                        ((Runnable) unit.getDeclaredConstructor().newInstance()).run();
                        sums[id] = sums[id] * 31 + unit.getName().length();
                    } catch (ReflectiveOperationException e) {
                        throw new IllegalStateException(e);
                    }
                    if (i % 100 == 99) {
                        System.gc();
                    }
                }
            });
            threads[t].start();
        }
        long sum = 0;
        for (int t = 0; t < threads.length; t++) {
            threads[t].join();
            sum = sum * 31 + sums[t];
        }
        System.out.println("sum " + sum);
    }
}
