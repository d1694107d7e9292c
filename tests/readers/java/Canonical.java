import java.io.BufferedWriter;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * The one line every reader program prints per execution sample:
 * epoch nanoseconds, thread name, OS thread id, state, frames leaf first joined by ';'; tab-separated.
 * "?" means a reference the reader could not resolve, "-" a value the reader's API does not give.
 */
final class Canonical implements AutoCloseable {
    static final String UNRESOLVED = "?";
    static final String NOT_OFFERED = "-";

    private final BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8), 1 << 16);

    void sample(long epochNanos, String thread, String osThreadId, String state, List<String> leafFirst) throws IOException {
        line(line(epochNanos, thread, osThreadId, state, leafFirst));
    }

    void line(String line) throws IOException {
        out.write(line);
        out.write('\n');
    }

    static String line(long epochNanos, String thread, String osThreadId, String state, List<String> leafFirst) {
        return epochNanos + "\t" + orUnresolved(thread) + "\t" + osThreadId + "\t" + orUnresolved(state) + "\t"
            + (leafFirst == null ? UNRESOLVED : String.join(";", leafFirst));
    }

    /** A line with the number of samples that it represents. */
    static String weighted(String line, long samples) {
        return line + "\t" + samples;
    }

    /** Class.method with dots whatever separator the reader keeps; the bare method where the class name is empty. */
    static String frame(String className, String method) {
        if (className == null) {
            return UNRESOLVED + "." + orUnresolved(method);
        }
        String dotted = className.replace('/', '.');
        return dotted.isEmpty() ? orUnresolved(method) : dotted + "." + orUnresolved(method);
    }

    private static String orUnresolved(String s) {
        return s == null ? UNRESOLVED : s;
    }

    @Override
    public void close() throws IOException {
        out.flush();
    }
}
