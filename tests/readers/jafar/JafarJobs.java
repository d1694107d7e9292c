import io.jafar.parser.api.ComplexType;
import io.jafar.parser.api.JafarParser;
import io.jafar.parser.api.JfrField;
import io.jafar.parser.api.JfrType;
import io.jafar.parser.api.ParsingContext;
import io.jafar.parser.api.UntypedJafarParser;
import io.jafar.parser.api.UntypedStrategy;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The jobs of bench/readers.py with jafar: JafarJobs types|collapsed|fields FILE. Untyped for all types,
 * typed for samples. It reads chunks in parallel, each in one thread.
 */
public final class JafarJobs {
    static final class Count {
        long n;
        String line;
    }

    record Ids(long thread, long stack) {}

    @JfrType("jdk.ExecutionSample")
    public interface Sample {
        @JfrField(value = "sampledThread", raw = true)
        long threadId();

        @JfrField(value = "stackTrace", raw = true)
        long stackId();

        JfrThread sampledThread();

        Stack stackTrace();
    }

    @JfrType("java.lang.Thread")
    public interface JfrThread {
        String osName();

        String javaName();
    }

    @JfrType("jdk.types.StackTrace")
    public interface Stack {
        Frame[] frames();
    }

    @JfrType("jdk.types.StackFrame")
    public interface Frame {
        Method method();
    }

    @JfrType("jdk.types.Method")
    public interface Method {
        JfrClass type();

        String name();
    }

    // The parser converts symbols to strings.
    @JfrType("java.lang.Class")
    public interface JfrClass {
        String name();
    }

    public static void main(String[] args) throws Exception {
        Path file = Path.of(args[1]);
        try (var out = new Results()) {
            if (args[0].equals("types")) {
                types(file).forEach((name, n) -> out.line(name + "\t" + n));
            } else if (args[0].equals("fields")) {
                out.line(fields(file));
            } else {
                collapsed(file).forEach((stack, n) -> out.line(stack + " " + n));
            }
        }
    }

    private static Map<String, Long> types(Path file) throws Exception {
        var chunks = new ConcurrentHashMap<Long, Map<String, Count>>();
        try (var parser = JafarParser.newUntypedParser(file)) {
            parser.handle((type, event, control) -> chunks.computeIfAbsent(control.chunkInfo().chunkId(), k -> new HashMap<>())
                .computeIfAbsent(type.getName(), k -> new Count()).n++);
            parser.run();
        }
        var all = new TreeMap<String, Long>();
        chunks.values().forEach(counts -> counts.forEach((type, count) -> all.merge(type, count.n, Long::sum)));
        return all;
    }

    /** Reads every field, and follows its references. */
    private static String fields(Path file) throws Exception {
        var chunks = new ConcurrentHashMap<Long, long[]>();
        var context = ParsingContext.create();
        try (var parser = UntypedJafarParser.open(file, context, UntypedStrategy.FULL_ITERATION)) {
            parser.handle((type, event, control) -> {
                long[] sums = chunks.computeIfAbsent(control.chunkInfo().chunkId(), k -> new long[3]);
                sums[0]++;
                for (Map.Entry<String, Object> field : event.entrySet()) {
                    sums[1]++;
                    Object value = field.getValue();
                    if (value instanceof ComplexType constant) {
                        value = constant.getValue();
                    }
                    // The JDK makes a text of what has one as its only field.
                    if (value instanceof Map<?, ?> of && of.size() == 1) {
                        value = of.values().iterator().next();
                    }
                    if (value instanceof String text) {
                        sums[2] += text.length();
                    }
                }
            });
            parser.run();
        }
        var all = new long[3];
        chunks.values().forEach(sums -> Arrays.setAll(all, i -> all[i] + sums[i]));
        return all[0] + " " + all[1] + " " + all[2];
    }

    /** Counted by ids of the chunk, and made text once for each pair. */
    private static Map<String, Long> collapsed(Path file) throws Exception {
        var chunks = new ConcurrentHashMap<Long, Map<Ids, Count>>();
        try (var parser = JafarParser.newTypedParser(file)) {
            parser.handle(Sample.class, (sample, control) -> {
                Count count = chunks.computeIfAbsent(control.chunkInfo().chunkId(), k -> new HashMap<>())
                    .computeIfAbsent(new Ids(sample.threadId(), sample.stackId()), k -> new Count());
                if (count.n++ == 0) {
                    count.line = name(sample.sampledThread()) + frames(sample.stackTrace());
                }
            });
            parser.run();
        }
        var lines = new TreeMap<String, Long>();
        chunks.values().forEach(counts -> counts.values().forEach(count -> lines.merge(count.line, count.n, Long::sum)));
        return lines;
    }

    private static String name(JfrThread t) {
        return t == null ? Canonical.UNRESOLVED : t.javaName() != null && !t.javaName().isEmpty() ? t.javaName() : t.osName();
    }

    private static String frames(Stack stack) {
        if (stack == null) {
            return ";" + Canonical.UNRESOLVED;
        }
        var line = new StringBuilder();
        Frame[] frames = stack.frames();
        for (int i = frames.length; i-- > 0; ) {
            Method m = frames[i].method();
            line.append(';').append(m == null ? Canonical.UNRESOLVED
                : Canonical.frame(m.type() == null ? null : m.type().name(), m.name()));
        }
        return line.toString();
    }
}
