import dev.flightline.reader.Event;
import dev.flightline.reader.Frame;
import dev.flightline.reader.StreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Prints the samples of a stream as they come: flightline record -o - -- ./server | java -cp … Follow - [CLASS-PREFIX]
 *
 * <p>With a prefix, as `java/util/`, only those with a frame of such a class; names are compared as bytes.
 */
public final class Follow {
    public static void main(String[] args) throws Exception {
        byte[] prefix = args.length > 1 ? args[1].getBytes(StandardCharsets.UTF_8) : null;
        try (StreamReader reader = StreamReader.open(args[0])) {
            reader.only("jdk.ExecutionSample", "profiler.WallClockSample");
            for (Event e; (e = reader.next()) != null; ) {
                if (e.stack() == null || prefix != null && e.stack().frames().stream().noneMatch(f -> in(f, prefix))) {
                    continue;
                }
                System.out.println(e.start() + " " + e.thread() + " " + e.state() + " " + e.weight() / 1000 + " us " + e.stack());
            }
            reader.lost().values().forEach(loss -> System.err.println("lost: " + loss));
            if (reader.damage().any()) {
                System.err.println(reader.damage());
            }
        }
    }

    private static boolean in(Frame f, byte[] prefix) {
        return f.classSymbol() != null && f.classSymbol().startsWith(prefix);
    }
}
