package dev.flightline.reader;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import jdk.jfr.Timespan;
import jdk.jfr.Timestamp;
import jdk.jfr.ValueDescriptor;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordedFrame;
import jdk.jfr.consumer.RecordedObject;
import jdk.jfr.consumer.RecordedStackTrace;
import jdk.jfr.consumer.RecordedThread;
import jdk.jfr.consumer.RecordingFile;

/**
 * Compares with RecordingFile, event for event and field for field: Compare FILE…, a line for each file. Each file is read by
 * name (types and constants ahead) and as a stream.
 *
 * <p>name, events that agree, what the JDK ended with, events of ours beyond those, what ours ended with; tab-separated.
 */
public final class Compare {
    /** Constants within each other; the JDK cuts cycles, this reader has no need to. */
    private static final int MAX_DEPTH = 5;
    private static final int MAX_DIFFERENCES = 5;

    /** The JDK waits for ever for headers that are never completed. */
    private static final Set<String> JDK_HANGS = Set.of("21_unpatched_zero_state1.jfr", "29_size0_rest_ok.jfr");

    private final List<String> differences = new ArrayList<>();
    /** The first chunk's clock, which the JDK applies to all. */
    private Chunk first;

    public static void main(String[] args) throws Exception {
        boolean same = true;
        for (String arg : args) {
            for (boolean stream : new boolean[] {false, true}) {
                var compare = new Compare();
                System.out.println(compare.file(Path.of(arg), stream));
                compare.differences.forEach(d -> System.out.println("  " + d));
                same &= compare.differences.isEmpty();
            }
        }
        System.exit(same ? 0 : 1);
    }

    private static StreamReader reader(Path path, boolean stream) throws IOException {
        return stream ? new StreamReader(new BufferedInputStream(Files.newInputStream(path), 1000)) : StreamReader.open(path.toString());
    }

    private String file(Path path, boolean stream) throws IOException {
        long agreed = 0;
        long more = 0;
        String theirs = "ok";
        String ours = "ok";
        try (StreamReader reader = reader(path, stream)) {
            try (var recording = JDK_HANGS.contains(path.getFileName().toString()) ? null : new RecordingFile(path)) {
                while (recording != null && recording.hasMoreEvents() && differences.size() < MAX_DIFFERENCES) {
                    RecordedEvent e = recording.readEvent();
                    Event o = reader.next();
                    if (o == null) {
                        differences.add("event " + agreed + ": the JDK has one more, " + e.getEventType().getName());
                        break;
                    }
                    int before = differences.size();
                    event("event " + agreed + " at " + o.offset(), e, o);
                    agreed += differences.size() == before ? 1 : 0;
                }
            } catch (Exception | InternalError e) {
                theirs = e.getClass().getSimpleName();
            }
            while (reader.next() != null) {
                more++;
            }
            ours = reader.damage().any() ? reader.damage().toString() : "ok";
        } catch (JfrException e) {
            ours = e.getMessage();
        }
        return path.getFileName() + (stream ? " stream" : " file") + "\t" + agreed + "\t" + theirs + "\t" + more + "\t" + ours;
    }

    private void differ(String where, Object theirs, Object ours) {
        if (differences.size() < MAX_DIFFERENCES) {
            differences.add(where + ": the JDK has " + theirs + ", this reader " + ours);
        }
    }

    private void same(String where, Object theirs, Object ours) {
        // Surrogates in UTF-8, which the JDK does not read: each of their bytes is one of these.
        boolean unread = theirs instanceof String && ours instanceof String && ((String) theirs).contains("\ufffd") && !((String) ours).contains("\ufffd");
        if (!Objects.equals(theirs, ours) && !unread) {
            differ(where, theirs, ours);
        }
    }

    private void event(String where, RecordedEvent e, Event o) {
        if (first == null) {
            first = o.chunk;
        }
        where += " " + e.getEventType().getName();
        same(where, e.getEventType().getName(), o.typeName());
        // While the metadata stay the same, the JDK keeps the first chunk's clock.
        Instant own = o.start();
        near(where + " start", e.getStartTime(), e.getStartTime().equals(own) ? own : Struct.instant(first.epochNanos(o.ticks())));
        if (o.has("duration")) {
            near(where + " duration", Instant.EPOCH.plus(e.getDuration()), Instant.EPOCH.plusNanos(o.durationNanos()));
        }
        fields(where, e, o, 0);
        RecordedStackTrace stack = e.getStackTrace();
        if (stack != null || o.stack() != null) {
            stack(where + " stack", stack, o.stack());
        }
        RecordedThread thread = e.getThread();
        if (o.has("eventThread") && (thread != null || o.thread() != null)) {
            thread(where + " thread", thread, o.thread());
        }
        if (o.has("state")) {
            same(where + " state", e.getValue("state") == null ? null : e.getString("state"), o.state());
        }
    }

    /** The JDK computes in doubles: of times since 1970 a microsecond may be lost where ticks are no nanoseconds. */
    private void near(String where, Instant theirs, Instant ours) {
        long off = Math.abs(Duration.between(theirs, ours).toNanos());
        if (off > (first.ticksPerSecond == 1_000_000_000L ? 0 : 1000)) {
            differ(where, theirs, ours);
        }
    }

    private void stack(String where, RecordedStackTrace stack, Stack ours) {
        if (stack == null || ours == null) {
            differ(where, stack, ours);
            return;
        }
        same(where + " truncated", stack.isTruncated(), ours.truncated());
        same(where + " depth", stack.getFrames().size(), ours.depth());
        for (int i = 0; i < Math.min(ours.depth(), stack.getFrames().size()); i++) {
            RecordedFrame f = stack.getFrames().get(i);
            Frame o = ours.frame(i);
            same(where + " line", f.getLineNumber(), o.line());
            same(where + " bci", f.getBytecodeIndex(), o.bci());
            same(where + " kind", f.getType(), o.kind());
            if (f.getMethod() == null || o.method() == null) {
                same(where + " method", f.getMethod(), o.method());
                continue;
            }
            same(where + " method", f.getMethod().getName(), o.methodName());
            same(where + " descriptor", f.getMethod().getDescriptor(), o.method().descriptor());
            if (f.getMethod().getType() != null && o.classSymbol() != null) {
                same(where + " class", f.getMethod().getType().getName(), o.className());
                same(where + " symbol", f.getMethod().getType().getName(), o.classSymbol().toString().replace('/', '.'));
            }
        }
    }

    private void thread(String where, RecordedThread thread, ThreadInfo ours) {
        if (thread == null || ours == null) {
            differ(where, thread, ours);
            return;
        }
        same(where, thread.getOSName(), ours.osName());
        same(where, thread.getJavaName(), ours.javaName());
        // Newer JDKs hide the carrier's id of virtual threads, and say -1 for no Java thread.
        if (thread.getOSThreadId() > 0) {
            same(where, thread.getOSThreadId(), ours.osThreadId());
        }
        if (thread.getJavaThreadId() > 0) {
            same(where, thread.getJavaThreadId(), ours.javaThreadId());
        }
    }

    private void fields(String where, RecordedObject theirs, Struct ours, int depth) {
        for (ValueDescriptor field : theirs.getFields()) {
            String name = field.getName();
            String here = where + "." + name;
            if (!ours.has(name)) {
                differ(here, "it", "none");
                continue;
            }
            // Those two are converted by the JDK, and compared as such.
            boolean converted = depth == 0 && (name.equals("startTime") || name.equals("duration"));
            if (!converted) {
                value(here, theirs.getValue(name), ours.get(name), depth);
                units(here, field, theirs, ours);
            }
        }
        same(where + " fields", theirs.getFields().size(), ours.fieldNames().size());
    }

    private void units(String where, ValueDescriptor field, RecordedObject theirs, Struct ours) {
        String name = field.getName();
        if (!field.getTypeName().equals("long") || field.isArray()) {
            return;
        }
        long raw = theirs.getLong(name);
        if (field.getAnnotation(Timespan.class) != null) {
            // The JDK computes ticks in doubles, lets microseconds overflow, and its releases differ on "for ever".
            long exact = field.getAnnotation(Timespan.class).value().equals("MICROSECONDS") ? Long.MAX_VALUE / 1000 : Long.MAX_VALUE;
            if (raw > -exact && raw < exact) {
                long off = ours.getDuration(name).minus(theirs.getDuration(name)).abs().toNanos();
                if (off > Math.max(Math.ulp((double) raw), first.ticksPerSecond == 1_000_000_000L ? 0 : 1000)) {
                    differ(where + " as a span", theirs.getDuration(name), ours.getDuration(name));
                }
            }
        } else if (field.getAnnotation(Timestamp.class) != null && !"TICKS".equals(field.getAnnotation(Timestamp.class).value())) {
            same(where + " as a moment", theirs.getInstant(name), ours.getInstant(name));
        }
    }

    private void value(String where, Object theirs, Object ours, int depth) {
        if (theirs instanceof RecordedObject) {
            if (!(ours instanceof Struct)) {
                differ(where, "a struct", ours);
            } else if (depth < MAX_DEPTH) {
                fields(where, (RecordedObject) theirs, (Struct) ours, depth + 1);
            }
        } else if (theirs instanceof Object[] && ours instanceof Object[]) {
            var t = (Object[]) theirs;
            var o = (Object[]) ours;
            same(where + " length", t.length, o.length);
            for (int i = 0; i < Math.min(t.length, o.length); i++) {
                value(where + "[" + i + "]", t[i], o[i], depth);
            }
        } else {
            same(where, theirs, ours);
        }
    }
}
