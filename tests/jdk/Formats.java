import java.nio.file.Path;
import jdk.jfr.*;

/** Events with numbers of every unit, from the smallest to the largest. */
public class Formats {
    @Name("t.Longs") @StackTrace(false)
    static class Longs extends Event {
        long plain;
        @Unsigned long unsigned;
        @Timespan(Timespan.NANOSECONDS) long nanos;
        @Timespan(Timespan.MICROSECONDS) long micros;
        @Timespan(Timespan.MILLISECONDS) long millis;
        @Timespan(Timespan.SECONDS) long seconds;
        @Timespan(Timespan.TICKS) long ticks;
        @Timestamp(Timestamp.MILLISECONDS_SINCE_EPOCH) long at;
        @Timestamp(Timestamp.TICKS) long atTicks;
        @DataAmount(DataAmount.BYTES) long bytes;
        @DataAmount(DataAmount.BITS) long bits;
        @DataAmount(DataAmount.BYTES) @Frequency long bytesPerSecond;
        @DataAmount(DataAmount.BITS) @Frequency long bitsPerSecond;
        @Frequency long hertz;
        @MemoryAddress long address;
        @Percentage long share;
        @Unsigned @DataAmount(DataAmount.BYTES) long unsignedBytes;
    }
    @Name("t.Ints") @StackTrace(false)
    static class Ints extends Event {
        int plain;
        @Unsigned int unsigned;
        @Timespan(Timespan.NANOSECONDS) int nanos;
        @Timespan(Timespan.MILLISECONDS) int millis;
        @DataAmount(DataAmount.BYTES) int bytes;
        @DataAmount(DataAmount.BITS) @Frequency int bitsPerSecond;
        @Frequency int hertz;
        @MemoryAddress int address;
        @Percentage int share;
        @Unsigned @DataAmount(DataAmount.BYTES) int unsignedBytes;
        short small;
        @Unsigned short smallUnsigned;
        @DataAmount(DataAmount.BYTES) short smallBytes;
        byte tiny;
        @Unsigned byte tinyUnsigned;
        char unit;
        boolean flag;
    }
    @Name("t.Floats") @StackTrace(false)
    static class Floats extends Event {
        float plain;
        @Percentage float share;
        @Frequency float hertz;
        @DataAmount(DataAmount.BYTES) float bytes;
        @MemoryAddress float address;
        @Unsigned float unsigned;
    }
    @Name("t.Doubles") @StackTrace(false)
    static class Doubles extends Event {
        double plain;
        @Percentage double share;
        @Frequency double hertz;
        @DataAmount(DataAmount.BITS) double bits;
    }
    @Name("t.Things") @StackTrace(false)
    static class Things extends Event {
        String text;
        Class<?> type;
        Thread thread;
        String startTimeText = "x";
    }
    @Name("t.Stack")
    static class Stack extends Event {
        int depth;
        @Percentage float share = 0.5f;
    }

    static long[] longs() {
        return new long[] {0, 1, 2, 9, 10, 99, 100, 512, 999, 1000, 1001, 1023, 1024, 1025, 1234, 1536, 1587, 1588, 9995,
            12355, 65535, 65536, 99950, 100000, 123456, 999499, 999500, 999999, 1000000, 1048575, 1048576, 9995000,
            123456789, 999500000, 1000000000, 1L << 30, 1995000000L, 9999999999L, 59949999999L, 59950000000L, 61500000000L,
            3599500000000L, 3630000000000L, 1L << 40, 86399000000000L, 88200000000000L, 1L << 50, 1L << 60,
            123456789012345678L, 1763767835910L, Long.MAX_VALUE - 1, Long.MAX_VALUE, Long.MIN_VALUE, Long.MIN_VALUE + 1, Short.MIN_VALUE, Byte.MIN_VALUE, -1, -10, -999, -1000,
            -1024, -2048, -1234567, -1234567890L, -61500000000L, Integer.MIN_VALUE, Integer.MAX_VALUE};
    }

    /** The JDK cannot print values beyond its own limits, except for the two with a meaning. */
    static long span(long value, long nanos) {
        boolean special = value == Long.MIN_VALUE || value == Long.MAX_VALUE;
        return special || Math.abs(value) < Long.MAX_VALUE / 4 / nanos ? value : 7;
    }

    static void deep(int left) {
        if (left > 0) {
            deep(left - 1);
            return;
        }
        Stack event = new Stack();
        event.commit();
    }

    public static void main(String[] args) throws Exception {
        Recording recording = new Recording();
        recording.start();
        for (long value : longs()) {
            Longs l = new Longs();
            l.plain = l.unsigned = value;
            l.nanos = span(value, 1);
            l.micros = span(value, 1000);
            l.millis = span(value, 1000000);
            l.seconds = span(value, 1000000000);
            l.ticks = span(value, 1);
            l.at = span(value, 1000000);
            // The JDK's ticks overflow at their end.
            l.atTicks = value == Long.MAX_VALUE ? 0 : span(value, 1000000);
            l.bytes = l.bits = l.bytesPerSecond = l.bitsPerSecond = l.hertz = l.address = l.share = l.unsignedBytes = value;
            l.commit();
            Ints i = new Ints();
            i.plain = i.unsigned = i.nanos = i.millis = i.bytes = i.bitsPerSecond = i.hertz = i.address = i.share = i.unsignedBytes = (int) value;
            i.small = i.smallUnsigned = i.smallBytes = (short) value;
            i.tiny = i.tinyUnsigned = (byte) value;
            i.unit = (char) value;
            i.flag = value % 2 == 0;
            i.commit();
        }
        float[] floats = {0, -0f, 1, 0.5f, 0.005f, 0.00005f, 0.00015f, 1.005f, 1e-45f, 1e10f, 3.4028235e38f, 0.1f, 123456.79f, 1e7f, 9999999f, 1e-3f, 9.99e-4f, -0.25f,
            1234.5f, Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY, Float.MIN_VALUE, 16777216f, 33554432f};
        for (float value : floats) {
            Floats f = new Floats();
            f.plain = f.share = f.hertz = f.bytes = f.address = f.unsigned = value;
            f.commit();
        }
        double[] doubles = {0, -0.0, 1, 0.5, 1e-5, 0.1, 1.0 / 3, 1e7, 9999999.999, 1e-3, 9.99e-4, 1e21, 1e22, 1.7976931348623157e308, 4.9e-324, 2e-323, 123456789.125,
            -1.5, 100, Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, 9007199254740993.0};
        for (double value : doubles) {
            Doubles d = new Doubles();
            d.plain = d.share = d.hertz = d.bits = value;
            d.commit();
        }
        Object[] types = {null, String.class, int.class, int[].class, long[][].class, String[].class, Formats.class, Longs[][].class, void.class, java.util.Map.Entry.class,
            java.sql.Driver.class, ((Runnable) () -> {}).getClass()};
        for (Object type : types) {
            Things t = new Things();
            t.type = (Class<?>) type;
            t.text = "of " + type;
            t.thread = type == null ? null : Thread.currentThread();
            t.commit();
        }
        for (String text : new String[] {null, "", "a\nb\tc\rd\"e\\f'", "\0\1\u007f\u0080é€🦀", "\ud800lone", "x".repeat(300), "<&>"}) {
            Things t = new Things();
            t.text = text;
            t.commit();
        }
        Thread virtual = Thread.ofVirtual().name("virtual").start(() -> deep(1));
        virtual.join();
        Thread nameless = Thread.ofVirtual().start(() -> deep(1));
        nameless.join();
        Thread group = new Thread(new ThreadGroup("group"), () -> deep(2), "in \"group\"");
        group.start();
        group.join();
        // Depths around the five frames that are printed and the sixty-four that are recorded.
        for (int depth = 0; depth < 80; depth++) {
            deep(depth);
        }
        recording.dump(Path.of(args[0]));
    }
}
