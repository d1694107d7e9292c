import java.io.PrintStream;
import java.nio.file.Path;
import java.util.List;
import jdk.jfr.consumer.EventStream;

/** jdk.jfr.consumer.EventStream on a finished file: JdkEvents FILE. Weighted lines; JdkStream follows what grows. */
public final class JdkEvents {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        try (var stream = EventStream.openFile(Path.of(args[0]))) {
            stream.onError(e -> {
                throw new IllegalStateException(e);
            });
            for (String type : List.of("jdk.ExecutionSample", "profiler.WallClockSample")) {
                stream.onEvent(type, e -> out.println(JdkLines.weighted(e)));
            }
            stream.start();
        }
    }
}
