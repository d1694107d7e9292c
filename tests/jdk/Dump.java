// Prints a recording as tab-separated lines, read by the JDK's own consumer: the tests' foreign reader.
import java.io.*;
import java.nio.file.Path;
import java.time.Instant;
import java.util.*;
import jdk.jfr.consumer.*;

public class Dump {
    static final PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false);
    static final Map<RecordedStackTrace, Integer> known = new IdentityHashMap<>();
    static final Map<String, Integer> stacks = new HashMap<>();
    static final Map<Long, String> names = new HashMap<>();
    static final Map<String, Long> events = new TreeMap<>();

    static String clean(String s) {
        return s == null ? "" : s.replace('\t', ' ').replace('\n', ' ');
    }

    static int stack(RecordedStackTrace trace) {
        if (trace == null) return -1;
        Integer id = known.get(trace);
        if (id == null) {
            StringBuilder b = new StringBuilder("stack\t").append(trace.isTruncated());
            for (RecordedFrame f : trace.getFrames()) {
                RecordedMethod m = f.getMethod();
                String type = m == null || m.getType() == null ? "" : clean(m.getType().getName());
                b.append('\t').append(type).append('\t').append(m == null ? "" : clean(m.getName()));
            }
            String line = b.toString();
            id = stacks.get(line);
            if (id == null) {
                id = stacks.size();
                stacks.put(line, id);
                out.println(line);
            }
            known.put(trace, id);
        }
        return id;
    }

    static long thread(RecordedThread t) {
        if (t == null) return 0;
        String name = clean(t.getOSName());
        if (!name.equals(names.put(t.getOSThreadId(), name))) {
            out.println("thread\t" + t.getOSThreadId() + "\t" + name);
        }
        return t.getOSThreadId();
    }

    static long nanos(Instant i) {
        return i.getEpochSecond() * 1_000_000_000L + i.getNano();
    }

    public static void main(String[] args) throws IOException {
        try (RecordingFile file = new RecordingFile(Path.of(args[0]))) {
            while (file.hasMoreEvents()) {
                RecordedEvent e = file.readEvent();
                String type = e.getEventType().getName();
                events.merge(type, 1L, Long::sum);
                if (type.equals("jdk.ExecutionSample")) {
                    int id = stack(e.getStackTrace());
                    long tid = thread(e.getValue("sampledThread"));
                    out.println("sample\t" + nanos(e.getStartTime()) + "\t" + tid + "\t" + id);
                } else if (type.equals("flightline.ThreadCpu")) {
                    long tid = thread(e.getValue("eventThread"));
                    out.println("cpu\t" + tid + "\t" + e.getLong("cpuTime") + "\t" + e.getLong("sampled") + "\t"
                        + e.getLong("lost"));
                } else if (type.equals("flightline.SampleLoss")) {
                    long tid = thread(e.getValue("eventThread"));
                    out.println("loss\t" + tid + "\t" + clean(e.getString("cause")) + "\t" + e.getLong("samples") + "\t"
                        + e.getLong("cpuTime"));
                }
            }
        }
        events.forEach((type, n) -> out.println("event\t" + type + "\t" + n));
        out.flush();
        if (out.checkError()) System.exit(1);
    }
}
