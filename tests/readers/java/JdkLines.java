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

    /** bareNative: frames of native code by method only, which is how the converter's command line names them. */
    static String line(RecordedEvent e, boolean bareNative) {
        var at = e.getStartTime();
        long nanos = at.getEpochSecond() * 1_000_000_000L + at.getNano();
        RecordedThread thread = e.getValue("sampledThread");
        String name = null;
        String id = Canonical.UNRESOLVED;
        if (thread != null) {
            name = thread.getJavaName() != null ? thread.getJavaName() : thread.getOSName();
            id = Long.toString(thread.getOSThreadId());
        }
        return Canonical.line(nanos, name, id, e.getString("state"), frames(e.getStackTrace(), bareNative));
    }

    private static List<String> frames(RecordedStackTrace stack, boolean bareNative) {
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
            boolean bare = bareNative && (kind.equals("Native") || kind.equals("C++") || kind.equals("Kernel"));
            RecordedClass type = method.getType();
            frames.add(Canonical.frame(bare ? "" : type == null ? null : type.getName(), method.getName()));
        }
        return frames;
    }
}
