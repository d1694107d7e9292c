package dev.flightline.reader;

import java.io.IOException;
import java.util.Arrays;

/**
 * The part of the stream that is at hand. What events were handed out from is not overwritten, unless they may be: then
 * bytes are moved to the front of the same array.
 */
final class Buffer {
    static final int SIZE = 256 << 10;

    byte[] bytes = new byte[SIZE];
    /** End of what is there. */
    int end;
    /** Offset in the stream of the array's first byte. */
    long base;
    /** Bytes may be overwritten once they were passed. */
    boolean reuse;
    private final Source source;

    Buffer(Source source) {
        this.source = source;
    }

    /**
     * Makes room for one more read if what is before `from` may go; gives by how much places move to the front. Grows with
     * what has come, not with what is said to come.
     */
    int room(int from) {
        if (end < bytes.length) {
            return 0;
        }
        int kept = end - from;
        // A third free, so that what is kept is not moved for each read.
        int length = Math.max(SIZE, kept + kept / 2);
        if (reuse && length <= bytes.length) {
            System.arraycopy(bytes, from, bytes, 0, kept);
        } else {
            bytes = Arrays.copyOfRange(bytes, from, from + length);
        }
        end = kept;
        base += from;
        return from;
    }

    /** -1 at the end of the stream, 0 if there is nothing now. */
    int fill(boolean wait) throws IOException {
        int n = source.read(bytes, end, bytes.length - end, wait);
        if (n > 0) {
            end += n;
        }
        return n;
    }
}
