import java.nio.file.Path;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import jdk.jfr.ValueDescriptor;
import jdk.jfr.consumer.EventStream;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordedFrame;
import jdk.jfr.consumer.RecordedMethod;
import jdk.jfr.consumer.RecordedStackTrace;
import jdk.jfr.consumer.RecordedThread;
import jdk.jfr.consumer.RecordingFile;

/** The jobs of bench/readers.py with the JDK: JdkJobs file|stream types|collapsed|merged|fields FILE. */
public final class JdkJobs {
    /** One per name, or per thread and stack; the stream and the file hand over the same objects again and again. */
    static final class Count {
        long n;
    }

    private static final Set<String> SAMPLES = Set.of("jdk.ExecutionSample");
    private static final Set<String> MERGED = Set.of("jdk.ExecutionSample", "jdk.NativeMethodSample", "profiler.WallClockSample");

    private final Map<String, Count> types = new HashMap<>();
    private final Map<RecordedThread, Map<RecordedStackTrace, Count>> stacks = new IdentityHashMap<>();
    private Set<String> wanted = SAMPLES;
    private long events;
    private long fields;
    private long chars;

    public static void main(String[] args) throws Exception {
        var jobs = new JdkJobs();
        Path file = Path.of(args[2]);
        String job = args[1].equals("merged") ? "collapsed" : args[1];
        if (args[1].equals("merged")) {
            jobs.wanted = MERGED;
        }
        if (args[0].equals("stream")) {
            try (var stream = EventStream.openFile(file)) {
                stream.setOrdered(false);
                switch (job) {
                    case "types" -> stream.onEvent(jobs::type);
                    case "fields" -> stream.onEvent(jobs::fields);
                    default -> jobs.wanted.forEach(name -> stream.onEvent(name, jobs::sample));
                }
                stream.start();
            }
        } else {
            try (var recording = new RecordingFile(file)) {
                while (recording.hasMoreEvents()) {
                    RecordedEvent e = recording.readEvent();
                    switch (job) {
                        case "types" -> jobs.type(e);
                        case "fields" -> jobs.fields(e);
                        default -> {
                            if (jobs.wanted.contains(e.getEventType().getName())) {
                                jobs.sample(e);
                            }
                        }
                    }
                }
            }
        }
        try (var out = new Results()) {
            switch (job) {
                case "types" -> jobs.types.forEach((name, count) -> out.line(name + "\t" + count.n));
                case "fields" -> out.line(jobs.events + " " + jobs.fields + " " + jobs.chars);
                default -> jobs.collapsed().forEach((stack, n) -> out.line(stack + " " + n));
            }
        }
    }

    private void type(RecordedEvent e) {
        types.computeIfAbsent(e.getEventType().getName(), k -> new Count()).n++;
    }

    private void fields(RecordedEvent e) {
        events++;
        for (ValueDescriptor field : e.getFields()) {
            fields++;
            if (e.getValue(field.getName()) instanceof String s) {
                chars += s.length();
            }
        }
    }

    private void sample(RecordedEvent e) {
        RecordedThread thread = e.getValue("sampledThread");
        RecordedStackTrace stack = e.getValue("stackTrace");
        stacks.computeIfAbsent(thread, k -> new IdentityHashMap<>()).computeIfAbsent(stack, k -> new Count()).n++;
    }

    private Map<String, Long> collapsed() {
        var lines = new TreeMap<String, Long>();
        stacks.forEach((thread, of) -> of.forEach((stack, count) -> lines.merge(name(thread) + frames(stack), count.n, Long::sum)));
        return lines;
    }

    private static String name(RecordedThread t) {
        return t == null ? Canonical.UNRESOLVED : t.getJavaName() != null ? t.getJavaName() : t.getOSName();
    }

    private static String frames(RecordedStackTrace stack) {
        if (stack == null) {
            return ";" + Canonical.UNRESOLVED;
        }
        var line = new StringBuilder();
        var frames = stack.getFrames();
        for (int i = frames.size(); i-- > 0; ) {
            RecordedFrame f = frames.get(i);
            RecordedMethod m = f.getMethod();
            String kind = f.getType();
            boolean bare = kind.equals("Native") && m != null && m.getType() != null && m.getType().getName().isEmpty();
            line.append(';').append(m == null ? Canonical.UNRESOLVED
                : Canonical.frame(bare ? "" : m.getType() == null ? null : m.getType().getName(), m.getName()));
        }
        return line.toString();
    }
}
