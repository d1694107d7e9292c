import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import one.jfr.ClassRef;
import one.jfr.JfrReader;
import one.jfr.MethodRef;
import one.jfr.StackTrace;
import one.jfr.event.ExecutionSample;

/** async-profiler's JfrReader: Converter [--weights] FILE. It knows thread pool keys only, not OS thread ids. */
public final class Converter {
    public static void main(String[] args) throws Exception {
        boolean weights = args[0].equals("--weights");
        try (var jfr = new JfrReader(args[args.length - 1]); var out = new Canonical()) {
            for (ExecutionSample e; (e = jfr.readEvent(ExecutionSample.class)) != null; ) {
                String line = Canonical.line(
                    jfr.eventTimeToNanos(e.time),
                    jfr.threads.get(e.tid),
                    Canonical.NOT_OFFERED,
                    jfr.getEnumValue("jdk.types.ThreadState", e.threadState),
                    frames(jfr, jfr.stackTraces.get(e.stackTraceId)));
                out.line(weights ? Canonical.weighted(line, e.samples) : line);
            }
            if (jfr.incomplete()) {
                throw new IllegalStateException("the reader calls the file incomplete");
            }
        }
    }

    private static List<String> frames(JfrReader jfr, StackTrace stack) {
        if (stack == null) {
            return null;
        }
        List<String> frames = new ArrayList<>();
        for (long id : stack.methods) {
            MethodRef method = jfr.methods.get(id);
            if (method == null) {
                frames.add(Canonical.UNRESOLVED);
                continue;
            }
            ClassRef type = jfr.classes.get(method.cls);
            frames.add(Canonical.frame(type == null ? null : symbol(jfr, type.name), symbol(jfr, method.name)));
        }
        return frames;
    }

    private static String symbol(JfrReader jfr, long id) {
        byte[] utf8 = jfr.symbols.get(id);
        return utf8 == null ? null : new String(utf8, StandardCharsets.UTF_8);
    }
}
