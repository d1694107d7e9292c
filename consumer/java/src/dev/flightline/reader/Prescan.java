package dev.flightline.reader;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;

/** Reads types and constants of a finished chunk in a file before its events, so that none need wait. */
final class Prescan {
    private final FileChannel file;
    /** Offset in the stream of the file's first byte. */
    private final long base;
    private byte[] bytes = new byte[1 << 20];
    private int pos, end;
    /** Offset in the stream of `bytes[end]`. */
    private long at;

    Prescan(FileChannel file, long base) {
        this.file = file;
        this.base = base;
    }

    /** False: the chunk is read like a stream. Then it may have taken in something and must be made anew. */
    boolean read(Chunk chunk, long maxHeld) throws IOException {
        long left = chunk.size - Chunk.HEADER;
        if (!chunk.endKnown() || chunk.offset - base + chunk.size > file.size()) {
            return false;
        }
        at = chunk.offset + Chunk.HEADER;
        pos = end = 0;
        while (left > 0) {
            if (end - pos < 18 && !more(18) && end == pos) {
                return false;
            }
            var c = new Cursor(bytes, pos, end);
            long size;
            long type;
            try {
                size = c.varint();
                type = c.varint();
            } catch (MalformedException e) {
                return false;
            }
            if (size < c.pos - pos || size > left || type >= 0 && type <= 1 && size > Math.min(maxHeld, Decoder.MAX_EVENT)) {
                return false;
            }
            left -= size;
            if (type > 1) {
                pass(size);
                continue;
            }
            int head = c.pos - pos;
            if (end - pos < size && !more((int) size)) {
                return false;
            }
            c = new Cursor(bytes, pos + head, pos + (int) size);
            if (type == 1) {
                chunk.checkpoint(java.util.Arrays.copyOfRange(bytes, c.pos, c.end));
            } else if (!Decoder.filler(c)) {
                try {
                    chunk.declare(c);
                } catch (MalformedException e) {
                    return false;
                }
            }
            if (chunk.segment != null || chunk.constantBytes() > maxHeld) {
                return false;
            }
            pass(size);
        }
        return !chunk.types.isEmpty();
    }

    private void pass(long n) {
        if (n <= end - pos) {
            pos += (int) n;
        } else {
            at += n - (end - pos);
            pos = end = 0;
        }
    }

    /** Reads on until that many bytes are at hand; false if there are not. */
    private boolean more(int want) throws IOException {
        int kept = end - pos;
        byte[] into = want > bytes.length ? new byte[want] : bytes;
        System.arraycopy(bytes, pos, into, 0, kept);
        bytes = into;
        pos = 0;
        end = kept;
        while (end < want) {
            int n = file.read(ByteBuffer.wrap(bytes, end, bytes.length - end), at - base);
            if (n <= 0) {
                return false;
            }
            end += n;
            at += n;
        }
        return true;
    }
}
