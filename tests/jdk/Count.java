// Reads recordings, all in one process: for each file one line with the number of events and a digest of the
// events as the JDK's own consumer reads them, or its error. Arguments are files, or directories of them.
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;
import jdk.jfr.consumer.*;

public class Count {
    public static void main(String[] args) throws Exception {
        List<Path> files = new ArrayList<>();
        for (String arg : args) {
            Path path = Path.of(arg);
            if (!Files.isDirectory(path)) {
                files.add(path);
                continue;
            }
            try (var list = Files.list(path)) {
                list.sorted().forEach(files::add);
            }
        }
        for (Path path : files) {
            long events = 0;
            // A sum, so that the order of the events does not matter.
            long sum = 0;
            Map<String, Long> types = new TreeMap<>();
            String error = "ok";
            try (RecordingFile file = new RecordingFile(path)) {
                while (file.hasMoreEvents()) {
                    RecordedEvent event = file.readEvent();
                    String name = event.getEventType().getName();
                    types.merge(name, 1L, Long::sum);
                    byte[] digest = MessageDigest.getInstance("SHA-256").digest(event.toString().getBytes("UTF-8"));
                    for (int i = 0; i < 8; i++) {
                        sum += (digest[i] & 0xffL) << (8 * i);
                    }
                    events++;
                }
            } catch (Throwable e) {
                error = "FAILED " + String.valueOf(e).replace('\n', ' ').replace('\t', ' ');
            }
            System.out.println(path.getFileName() + "\t" + error + "\t" + events + "\t" + Long.toHexString(sum) + "\t" + types);
        }
    }
}
