import java.io.BufferedWriter;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;

/** jdk.jfr.consumer.RecordingFile: JdkFile [--bare-native | --types] FILE. */
public final class JdkFile {
    public static void main(String[] args) throws Exception {
        boolean bare = args[0].equals("--bare-native");
        boolean types = args[0].equals("--types");
        Path file = Path.of(args[args.length - 1]);
        var counts = new java.util.TreeMap<String, Long>();
        try (var recording = new RecordingFile(file);
            var out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8), 1 << 16)) {
            try {
                while (recording.hasMoreEvents()) {
                    RecordedEvent e = recording.readEvent();
                    String type = e.getEventType().getName();
                    if (types) {
                        counts.merge(type, 1L, Long::sum);
                    } else if (type.equals("jdk.ExecutionSample")) {
                        out.write(JdkLines.line(e, bare));
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
