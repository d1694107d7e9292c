import io.jafar.parser.api.JafarParser;
import io.jafar.parser.api.Values;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** jafar's untyped parser: Jafar FILE. Weighted lines. */
public final class Jafar {
    public static void main(String[] args) throws Exception {
        try (var parser = JafarParser.newUntypedParser(Path.of(args[0])); var out = new Canonical()) {
            parser.handle((type, event, control) -> {
                boolean wall = type.getName().equals("profiler.WallClockSample");
                if (wall || type.getName().equals("jdk.ExecutionSample")) {
                    try {
                        out.line(Canonical.weighted(line(event), wall ? number(event, "samples") : 1));
                    } catch (java.io.IOException e) {
                        throw new java.io.UncheckedIOException(e);
                    }
                }
            });
            parser.run();
        }
    }

    private static String line(Map<String, Object> event) {
        String java = text(event, "sampledThread", "javaName");
        String thread = java != null && !java.isEmpty() ? java : text(event, "sampledThread", "osName");
        // It has converted the ticks to nanoseconds since 1970.
        long at = number(event, "startTime");
        String id = Long.toString(number(event, "sampledThread", "osThreadId"));
        return Canonical.line(at, thread, id, text(event, "state", "name"), frames(event));
    }

    private static List<String> frames(Map<String, Object> event) {
        if (!(Values.get(event, "stackTrace", "frames") instanceof Object[] all)) {
            return null;
        }
        List<String> frames = new ArrayList<>();
        for (int i = 0; i < all.length; i++) {
            frames.add(Canonical.frame(
                text(event, "stackTrace", "frames", i, "method", "type", "name", "string"),
                text(event, "stackTrace", "frames", i, "method", "name", "string")));
        }
        return frames;
    }

    private static String text(Map<String, Object> event, Object... path) {
        return Values.get(event, path) instanceof String text ? text : null;
    }

    private static long number(Map<String, Object> event, Object... path) {
        return ((Number) Values.get(event, path)).longValue();
    }
}
