package dev.flightline.reader;

import java.util.zip.CRC32;

/** The event flightline.Segment: what it says of the bytes in front of it, and whether that is so. */
final class Segments {
    /** Largest encoding: size, type and six fields. */
    static final int MOST = 9 * 8;

    private final CRC32 crc = new CRC32();
    long sequence, offset, size, checksum, events;
    /** Bytes of the event. */
    int length;

    /** Reads the event at `at`, if there is one. */
    boolean read(Type type, byte[] b, int at, int end) {
        var c = new Cursor(b, at, end);
        try {
            long n = c.varint();
            if (n < 8 || n > MOST || n > end - at || c.varint() != type.id) {
                return false;
            }
            var all = new Struct(null, type, b, c.pos, at + (int) n);
            sequence = all.getLong("sequence");
            offset = all.getLong("offset");
            size = all.getLong("size");
            checksum = all.getLong("crc32");
            events = all.getLong("events");
            length = (int) n;
            return sequence >= 0 && offset >= 0 && size > 0 && checksum >>> 32 == 0 && events >= 0 && events <= size;
        } catch (MalformedException | IllegalArgumentException e) {
            return false;
        }
    }

    /** Whether the `size` bytes before `at` are what the event says; none before `from` are at hand. */
    boolean covers(byte[] b, int from, int at) {
        if (size > at - from) {
            return false;
        }
        crc.reset();
        crc.update(b, at - (int) size, (int) size);
        return crc.getValue() == checksum;
    }
}
