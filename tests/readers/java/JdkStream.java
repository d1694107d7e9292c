import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Instant;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import jdk.jfr.consumer.EventStream;

/**
 * Follows a growing recording the way `jfr` live tools do: JdkStream (--file FILE | --repository DIR) SECONDS.
 * Prints "&lt;arrival epoch ns&gt;\t&lt;canonical line&gt;" as events are delivered, and at the end
 * "# closed N" when the stream ended by itself or "# timeout N" after SECONDS.
 */
public final class JdkStream {
    public static void main(String[] args) throws Exception {
        Path path = Path.of(args[1]);
        var events = new AtomicLong();
        var out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        EventStream stream = args[0].equals("--repository") ? EventStream.openRepository(path) : EventStream.openFile(path);
        try (stream) {
            stream.setReuse(false);
            stream.setOrdered(false);
            if (args[0].equals("--repository")) {
                stream.setStartTime(Instant.EPOCH.plusSeconds(1));
            }
            stream.onError(e -> System.err.println("stream error: " + e));
            stream.onEvent("jdk.ExecutionSample", e -> {
                var now = Instant.now();
                long arrived = now.getEpochSecond() * 1_000_000_000L + now.getNano();
                out.println(arrived + "\t" + JdkLines.line(e, JdkLines.Naming.FULL));
                events.incrementAndGet();
            });
            var closed = new CountDownLatch(1);
            stream.onClose(closed::countDown);
            stream.startAsync();
            boolean ended = closed.await(Long.parseLong(args[2]), TimeUnit.SECONDS);
            out.println((ended ? "# closed " : "# timeout ") + events.get());
        }
    }
}
