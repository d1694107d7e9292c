import java.util.ArrayList;
import java.util.List;
import jdk.jfr.consumer.RecordedClass;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordedFrame;
import jdk.jfr.consumer.RecordedMethod;
import jdk.jfr.consumer.RecordedStackTrace;
import jdk.jfr.consumer.RecordedThread;

/** A jdk.ExecutionSample as the JDK's own reader sees it, in the canonical form. */
final class JdkLines {
    private JdkLines() {}

    /** How frames of native code are named. */
    enum Naming {
        /** As all others, class.method. */
        FULL,
        /** By method only, but for inlined ones: as the converter's command line names them. */
        CONVERTER,
        /** By method only, as flightline fold names them. */
        FOLD
    }

    static String line(RecordedEvent e, Naming naming) {
        var at = e.getStartTime();
        long nanos = at.getEpochSecond() * 1_000_000_000L + at.getNano();
        RecordedThread thread = e.getValue("sampledThread");
        String name = null;
        String id = Canonical.UNRESOLVED;
        if (thread != null) {
            name = thread.getJavaName() != null ? thread.getJavaName() : thread.getOSName();
            id = Long.toString(thread.getOSThreadId());
        }
        return Canonical.line(nanos, name, id, e.getString("state"), frames(e.getStackTrace(), naming));
    }

    /** With the number of samples that it represents. */
    static String weighted(RecordedEvent e) {
        return Canonical.weighted(line(e, Naming.FULL), e.hasField("samples") ? e.getLong("samples") : 1);
    }

    private static List<String> frames(RecordedStackTrace stack, Naming naming) {
        if (stack == null) {
            return null;
        }
        List<String> frames = new ArrayList<>();
        for (RecordedFrame f : stack.getFrames()) {
            RecordedMethod method = f.getMethod();
            if (method == null) {
                frames.add(Canonical.UNRESOLVED);
                continue;
            }
            String kind = f.getType();
            boolean code = kind.equals("Native") || kind.equals("C++") || kind.equals("Kernel");
            // Native functions that were inlined or made at run time have no Java descriptor.
            boolean made = naming == Naming.FOLD && "()L;".equals(method.getDescriptor());
            boolean bare = naming != Naming.FULL && (code || made);
            RecordedClass type = method.getType();
            frames.add(Canonical.frame(bare ? "" : type == null ? null : type.getName(), method.getName()));
        }
        return frames;
    }
}
