package dev.flightline.reader;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Bytes in, events out, in the order of the stream.
 *
 * <pre>
 *  source ─▶ buffer ─▶ scan ─┬─ type 0 ─▶ types
 *                            ├─ type 1 ─▶ constants          held ─▶ released ─▶ next event
 *                            └─ others ─▶ held, until their constants are there and, in Flightline's streams, the
 *                                         segment's checksum was right
 * </pre>
 * Neither events nor constants of a segment are used before its checksum was verified. After damage, an event is returned only
 * if everything that it refers to is defined. Each search ends behind the result of the previous one, so reading always
 * advances.
 */
final class Decoder extends Held {
    /** Larger events are damage: the size that writers pad to four bytes cannot say more. */
    static final int MAX_EVENT = 1 << 28;
    private static final int FLUSH = 1;

    private enum State { HEADER, EVENTS, SKIP, SEARCH }

    long maxHeld = Math.min(256L << 20, Runtime.getRuntime().maxMemory() / 8);
    private final Segments found = new Segments();
    private final Source source;
    private final Prescan prescan;

    private State state = State.HEADER;
    /** Types and constants were read ahead, so no event waits. */
    private boolean ahead;
    private long skip;
    /** Offset in the stream of the last segment event that a search found: the next one goes on behind it. */
    private long foundAt;
    private int unsizedTried;
    private long sequence = -1;
    private long searched, summed;
    private boolean inputEnded;
    private volatile boolean ended;

    Decoder(Source source) throws IOException {
        super(new Buffer(source));
        this.source = source;
        var file = source.file();
        prescan = file == null || file.position() != 0 ? null : new Prescan(file, 0);
    }

    boolean ended() {
        return ended && next >= ready;
    }

    /** The next event; null if there is none now, or none any more. */
    Event take(boolean wait) throws IOException {
        while (true) {
            while (next < ready) {
                Event e = deliver();
                if (e != null) {
                    return e;
                }
            }
            if (ended) {
                return null;
            }
            if (ahead && state == State.EVENTS && next == scan) {
                Event e = plain();
                if (e != null) {
                    return e;
                }
            }
            if (scan()) {
                continue;
            }
            if (ahead && scan > ready) {
                release(scan, false);
                continue;
            }
            int n = fill(wait);
            if (n == 0) {
                return null;
            }
            if (n < 0) {
                finish();
            }
        }
    }

    private int fill(boolean wait) throws IOException {
        int from = Math.min(ready, segment);
        if (buffer.end - from > maxHeld) {
            if (state != State.SEARCH) {
                throw new JfrException(buffer.base + from, "constants do not come within " + maxHeld + " bytes (see maxHeld) of the events");
            }
            damage.skipped(scan - from);
            from = segment = ready = next = scan;
        }
        move(buffer.room(from));
        return buffer.fill(wait);
    }

    /** Goes on with what is at hand. True: something may be released, or another state was reached. */
    private boolean scan() throws IOException {
        switch (state) {
            case HEADER: return header();
            case EVENTS: return events();
            case SEARCH: return search();
            default:
                int to = scan + (int) Math.min(skip, buffer.end - scan);
                int wrong = nonzero(buffer.bytes, scan, to);
                skip -= wrong - scan;
                next = ready = segment = scan = wrong;
                if (wrong < to) {
                    damaged("filler with content", wrong);
                    return true;
                }
                if (skip == 0) {
                    state = State.EVENTS;
                }
                return skip == 0;
        }
    }

    private boolean header() throws IOException {
        if (!has(Chunk.HEADER)) {
            return false;
        }
        byte[] b = buffer.bytes;
        long offset = buffer.base + scan;
        if (!Chunk.plausible(b, scan)) {
            if (b[scan] == 0x1f && b[scan + 1] == (byte) 0x8b && offset == 0) {
                throw new JfrException(0, "compressed: read it through gunzip -c");
            }
            damaged("no chunk begins here", scan);
            return true;
        }
        chunk = new Chunk(b, scan, offset, damage);
        ahead = false;
        gaps = false;
        unchecked.clear();
        if (prescan != null) {
            ahead = prescan.read(chunk, maxHeld);
            if (ahead) {
                chunk.types.values().forEach(this::mark);
            } else {
                chunk = new Chunk(b, scan, offset, damage);
            }
        }
        chunkStart = offset;
        segment = scan;
        scan += Chunk.HEADER;
        next = ready = scan;
        state = State.EVENTS;
        return true;
    }

    private boolean has(int n) {
        return buffer.end - scan >= n;
    }

    private boolean events() throws IOException {
        byte[] b = buffer.bytes;
        int end = buffer.end;
        long chunkEnd = chunk.endKnown() ? chunkStart + chunk.size - buffer.base : Long.MAX_VALUE;
        while (true) {
            int p = scan;
            if (p >= chunkEnd) {
                endChunk();
                return true;
            }
            int q = p;
            if (q >= end) {
                return false;
            }
            long size = b[q++];
            if (size < 0) {
                size &= 0x7f;
                int shift = 7;
                for (; ; shift += 7) {
                    if (q >= end) {
                        return false;
                    }
                    byte x = b[q++];
                    size |= (shift == 56 ? x & 0xffL : x & 0x7fL) << shift;
                    if (x >= 0 || shift == 56) {
                        break;
                    }
                }
            }
            if (size == 'F' && q == p + 1 && end - p >= 4 && Cursor.int32(b, p) == 0x464c5200) {
                if (!has(Chunk.HEADER) && !inputEnded) {
                    return false;
                }
                if (has(Chunk.HEADER) && Chunk.plausible(b, p) && !isOwnHeader(p)) {
                    if (chunk.endKnown()) {
                        damage.place(buffer.base + p, "the chunk ends " + (chunkEnd - p) + " bytes earlier than its header says");
                    }
                    endChunk();
                    return true;
                }
                if (end - p > 6 && b[p + 4] == 0 && b[p + 5] == 1 && !chunk.types.isEmpty()) {
                    size = unsized(p);
                    if (size < 0) {
                        return false;
                    }
                    q = p + 5;
                }
            }
            if (q >= end) {
                return false;
            }
            long id = b[q];
            int payload = q + 1;
            if (id < 0) {
                var c = new Cursor(b, q, end);
                try {
                    id = c.varint();
                } catch (MalformedException e) {
                    if (!inputEnded && end - q < 9) {
                        return false;
                    }
                    id = -1;
                }
                payload = c.pos;
            }
            if (size < payload - p || size > MAX_EVENT || p + size > chunkEnd) {
                damaged("an event of " + size + " bytes", p);
                return true;
            }
            if (id == 0 && size > Buffer.SIZE / 4 && (ahead || chunk.incremental()) && !chunk.types.isEmpty()) {
                if (end - p < 24) {
                    return false;
                }
                if (filler(new Cursor(b, payload, p + 24))) {
                    commit();
                    release(p, chunk.segment != null);
                    scan = payload;
                    skip = p + size - payload;
                    state = State.SKIP;
                    return true;
                }
            }
            if (end - p < size) {
                return false;
            }
            int to = p + (int) size;
            scan = to;
            if (id > 1 || id < 0) {
                if (chunk.segment != null && id == chunk.segment.id) {
                    return segment(p, to);
                }
            } else if (id == 0) {
                if (!ahead && !metadata(p, payload, to)) {
                    return true;
                }
            } else if (!ahead && checkpoint(payload, to)) {
                release(to, false);
                return true;
            }
        }
    }

    /** The copy that a JDK chunk has of its own header. */
    private boolean isOwnHeader(int p) {
        byte[] b = buffer.bytes;
        return chunk != null && Cursor.int64(b, p + 32) == chunk.startNanos && Cursor.int64(b, p + 48) == chunk.startTicks;
    }

    /** Zeros as an event of type 0, to fill a chunk up. */
    static boolean filler(Cursor c) {
        for (int i = c.pos; i < Math.min(c.end, c.pos + 4); i++) {
            if (c.bytes[i] != 0) {
                return false;
            }
        }
        return true;
    }

    /** The first byte of a part that is not 0; its end if all are. */
    private static int nonzero(byte[] b, int from, int to) {
        while (from < to && b[from] == 0) {
            from++;
        }
        return from;
    }

    private boolean metadata(int p, int payload, int to) {
        var c = new Cursor(buffer.bytes, payload, to);
        if (filler(c)) {
            int wrong = chunk.segment == null ? to : nonzero(buffer.bytes, payload, to);
            if (wrong < to) {
                // Bytes are missing in front of it, and what is there may be the next chunk.
                drop(p);
                next = ready = segment = wrong;
                damaged("filler with content", wrong);
            }
            return wrong == to;
        }
        try {
            chunk.declare(c).forEach(this::mark);
            return true;
        } catch (MalformedException e) {
            scan = p;
            damaged("metadata: " + e.getMessage(), p);
            return false;
        }
    }

    /** Takes a checkpoint in; true if all before it can be handed out. */
    private boolean checkpoint(int payload, int to) throws IOException {
        if (chunk.segment != null) {
            unchecked.add(new int[] {payload, to});
        } else {
            chunk.checkpoint(Arrays.copyOfRange(buffer.bytes, payload, to));
        }
        if (chunk.constantBytes() > maxHeld) {
            throw new JfrException(buffer.base + payload, "constants of a chunk over " + maxHeld + " bytes (see maxHeld)");
        }
        if (chunk.segment != null || chunk.types.isEmpty() || !chunk.incremental()) {
            return false;
        }
        var c = new Cursor(buffer.bytes, payload, to);
        try {
            c.skipVarints(3);
            return (c.u8() & FLUSH) != 0;
        } catch (MalformedException e) {
            return false;
        }
    }

    /**
     * Size of a checkpoint that async-profiler had no way to go back to, on a FIFO: the start of a header is where the size
     * belongs, and it is put there. -1 if more of it must come, 0 if it is none.
     */
    private long unsized(int p) {
        if (!inputEnded && buffer.end - p < 2 * unsizedTried) {
            return -1;
        }
        unsizedTried = buffer.end - p;
        try {
            long size = 6 + chunk.measure(new Cursor(buffer.bytes, p + 6, buffer.end));
            unsizedTried = 0;
            for (int i = 0; i < 5; i++) {
                buffer.bytes[p + i] = (byte) (size >>> 7 * i & 0x7f | (i < 4 ? 0x80 : 0));
            }
            return size;
        } catch (MalformedException e) {
            return inputEnded ? 0 : -1;
        }
    }

    /** A flightline.Segment at `p`: what it covers is handed out if its checksum is right. */
    private boolean segment(int p, int to) {
        byte[] b = buffer.bytes;
        boolean right = found.read(chunk.segment, b, p, to) && found.covers(b, segment, p);
        if (!right) {
            damage.place(buffer.base + segment, "a segment with a wrong checksum");
            damage.skipped(to - segment);
            boolean first = buffer.base + segment == chunk.offset;
            drop(to);
            gaps = true;
            segment = to;
            if (first) {
                // Its types cannot be trusted.
                chunk.segment = null;
                search(to);
            }
            return true;
        }
        int start = p - (int) found.size;
        if (start > segment) {
            damage.place(buffer.base + segment, "a segment without its end");
            damage.skipped(start - segment);
            List<int[]> later = new ArrayList<>(unchecked);
            later.removeIf(u -> u[0] < start);
            drop(start);
            unchecked.addAll(later);
            gaps = true;
        }
        if (sequence >= 0 && found.sequence > sequence + 1) {
            damage.segments(buffer.base + start, found.sequence - sequence - 1);
        }
        sequence = found.sequence;
        chunkStart = buffer.base + start - found.offset;
        commit();
        release(to, false);
        segment = to;
        return true;
    }

    private void endChunk() {
        commit();
        release(scan, chunk.segment != null);
        segment = scan;
        state = State.HEADER;
    }

    /** Reading cannot go on at `p`. */
    private void damaged(String why, int p) {
        damage.place(buffer.base + p, why);
        if (chunk != null && chunk.segment != null && state != State.HEADER) {
            // The damage may lie anywhere since the last checksum, and a wrong size may have hidden whole segments.
            drop(segment);
            gaps = true;
            search((int) Math.max(segment == p ? p : segment + 1, foundAt + 1 - buffer.base));
        } else {
            if (state == State.EVENTS) {
                release(p, chunk.incremental());
            }
            search(state == State.HEADER ? p : p + 1);
        }
    }

    private void search(int from) {
        scan = from;
        if (chunk == null || chunk.segment == null) {
            segment = from;
        }
        state = State.SEARCH;
        searched = summed = 0;
    }

    /** Looks for the next chunk, or the next segment with a right checksum. */
    private boolean search() {
        byte[] b = buffer.bytes;
        int last = inputEnded ? buffer.end : buffer.end - Math.max(Chunk.HEADER, Segments.MOST);
        for (; scan < last; scan++, searched++) {
            int p = scan;
            if (b[p] == 'F' && buffer.end - p >= Chunk.HEADER && Chunk.plausible(b, p) && !isOwnHeader(p)) {
                found(p);
                chunk = null;
                state = State.HEADER;
                return true;
            }
            if (chunk != null && chunk.segment != null && b[p] >= 8 && found.read(chunk.segment, b, p, buffer.end)
                && found.size <= p - segment && summed <= 8 * searched + (16L << 20)) {
                summed += found.size;
                if (found.covers(b, segment, p)) {
                    foundAt = buffer.base + p;
                    chunkStart = buffer.base + p - found.size - found.offset;
                    found(p - (int) found.size);
                    state = State.EVENTS;
                    return true;
                }
            }
        }
        if (chunk == null || chunk.segment == null) {
            damage.skipped(scan - segment);
            next = ready = segment = scan;
        }
        return false;
    }

    private void found(int p) {
        damage.skipped(p - segment);
        scan = p;
        next = ready = segment = p;
        unchecked.clear();
    }

    /** No more input will come. */
    private void finish() throws IOException {
        if (!inputEnded) {
            // Some things are only tried, and some only known, at the end.
            inputEnded = true;
            return;
        }
        long left = buffer.end - scan;
        if (chunk == null && buffer.base + buffer.end > 0) {
            throw new JfrException(0, "no flight recording: no chunk header in " + (buffer.base + buffer.end) + " bytes");
        }
        if (state == State.HEADER && left > 0) {
            damage.place(buffer.base + scan, left + " bytes behind the last chunk");
            damage.skipped(left);
        } else if (state == State.SEARCH) {
            damage.skipped(buffer.end - segment);
        } else if (state != State.HEADER && chunk != null) {
            long missing = chunkStart + chunk.size - buffer.base - buffer.end;
            if (chunk.endKnown()) {
                damage.place(buffer.base + buffer.end, "the stream ends " + missing + " bytes before its chunk does");
            } else if (left > 0) {
                damage.place(buffer.base + scan, "the stream ends within an event");
            }
            damage.skipped(left);
            commit();
            release(scan, chunk.incremental());
        }
        scan = buffer.end;
        ended = true;
    }

    void close() throws IOException {
        ended = true;
        source.close();
    }
}
