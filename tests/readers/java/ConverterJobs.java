import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import one.jfr.ClassRef;
import one.jfr.JfrReader;
import one.jfr.MethodRef;
import one.jfr.StackTrace;
import one.jfr.event.Event;
import one.jfr.event.ExecutionSample;

/**
 * The jobs of bench/readers.py with async-profiler's JfrReader: ConverterJobs types|collapsed FILE. It knows some 15 event
 * types, under class names of its own.
 */
public final class ConverterJobs {
    public static void main(String[] args) throws Exception {
        try (var jfr = new JfrReader(args[1]); var out = new Results()) {
            // The dictionaries are those of the chunk being read.
            jfr.stopAtNewChunk = true;
            if (args[0].equals("types")) {
                var counts = new HashMap<Class<?>, Long>();
                do {
                    for (Event e; (e = jfr.readEvent()) != null; ) {
                        counts.merge(e.getClass(), 1L, Long::sum);
                    }
                } while (jfr.hasMoreChunks());
                counts.forEach((type, n) -> out.line(type.getSimpleName() + "\t" + n));
                return;
            }
            var lines = new TreeMap<String, Long>();
            do {
                var counts = new HashMap<Long, Long>();
                for (ExecutionSample e; (e = jfr.readEvent(ExecutionSample.class)) != null; ) {
                    counts.merge((long) e.tid << 32 | e.stackTraceId & 0xffffffffL, 1L, Long::sum);
                }
                counts.forEach((key, n) -> lines.merge(stack(jfr, (int) (key >> 32), (int) (long) key), n, Long::sum));
            } while (jfr.hasMoreChunks());
            lines.forEach((stack, n) -> out.line(stack + " " + n));
        }
    }

    private static String stack(JfrReader jfr, int thread, int id) {
        String name = jfr.threads.get(thread);
        var line = new StringBuilder(name == null ? Canonical.UNRESOLVED : name);
        StackTrace stack = jfr.stackTraces.get(id);
        if (stack == null) {
            return line.append(';').append(Canonical.UNRESOLVED).toString();
        }
        for (int i = stack.methods.length; i-- > 0; ) {
            MethodRef m = jfr.methods.get(stack.methods[i]);
            ClassRef c = m == null ? null : jfr.classes.get(m.cls);
            line.append(';').append(m == null ? Canonical.UNRESOLVED
                : Canonical.frame(c == null ? null : symbol(jfr, c.name), symbol(jfr, m.name)));
        }
        return line.toString();
    }

    private static String symbol(JfrReader jfr, long id) {
        byte[] utf8 = jfr.symbols.get(id);
        return utf8 == null ? null : new String(utf8, StandardCharsets.UTF_8);
    }
}
