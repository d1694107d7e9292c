import java.io.BufferedWriter;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Set;
import java.util.TreeMap;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;

/**
 * jdk.jfr.consumer.RecordingFile: JdkFile [--bare-native | --fold | --merged | --weights | --types] FILE.
 * --merged prints native and wall-clock samples too, which async-profiler's reader does not distinguish;
 * --weights adds how many samples each represents.
 */
public final class JdkFile {
    private static final Set<String> MERGED = Set.of("jdk.NativeMethodSample", "profiler.WallClockSample");

    public static void main(String[] args) throws Exception {
        var naming = switch (args[0]) {
            case "--bare-native" -> JdkLines.Naming.CONVERTER;
            case "--fold" -> JdkLines.Naming.FOLD;
            default -> JdkLines.Naming.FULL;
        };
        boolean weights = args[0].equals("--weights");
        boolean merged = args[0].equals("--merged") || weights;
        boolean types = args[0].equals("--types");
        Path file = Path.of(args[args.length - 1]);
        var counts = new TreeMap<String, Long>();
        try (var recording = new RecordingFile(file);
            var out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8), 1 << 16)) {
            try {
                while (recording.hasMoreEvents()) {
                    RecordedEvent e = recording.readEvent();
                    String type = e.getEventType().getName();
                    if (types) {
                        counts.merge(type, 1L, Long::sum);
                    } else if (type.equals("jdk.ExecutionSample") || merged && MERGED.contains(type)) {
                        out.write(weights ? JdkLines.weighted(e) : JdkLines.line(e, naming));
                        out.write('\n');
                    }
                }
            } finally {
                for (var c : counts.entrySet()) {
                    out.write(c.getKey() + "\t" + c.getValue() + "\n");
                }
                out.flush();
            }
        }
    }
}
