package dev.flightline.reader;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;

/** The events at hand: those that wait, and those that may be handed out. */
abstract class Held {
    final Damage damage = new Damage();
    final Losses losses = new Losses();
    final Buffer buffer;
    /** Types wanted; null for all. */
    private Set<String> wanted;
    private final Event shared = new Event();

    Chunk chunk;
    /** Where the chunk began, by the last right segment: bytes may have been lost or added since its header. */
    long chunkStart;
    /** Something of the chunk is missing, so that constants may be. */
    boolean gaps;
    /** Events are handed out up to `ready`, scanned up to `scan`; the segment began at `segment`. */
    int next, ready, scan, segment;
    /** Checkpoints of the segment, as places of their payloads, until its checksum was seen. */
    final List<int[]> unchecked = new ArrayList<>();
    /** Released events are looked at for missing constants. */
    private boolean suspicious;

    Held(Buffer buffer) {
        this.buffer = buffer;
    }

    /** Moves all places towards the front. */
    final void move(int by) {
        next -= by;
        ready -= by;
        scan -= by;
        segment -= by;
        for (int[] u : unchecked) {
            u[0] -= by;
            u[1] -= by;
        }
    }

    final void only(Set<String> types) {
        wanted = types;
        if (chunk != null) {
            chunk.types.values().forEach(this::mark);
        }
    }

    final void mark(Type t) {
        t.unwanted = wanted != null && !wanted.contains(t.name);
        t.role = Losses.role(t.name);
    }

    /** The next event of a chunk whose constants are known, if nothing is special about what comes; null leaves it to {@link Decoder}. */
    final Event plain() {
        byte[] b = buffer.bytes;
        long end = Math.min(buffer.end, chunkStart + chunk.size - buffer.base);
        while (end - scan >= 6) {
            int p = scan;
            int head = 1;
            int size = b[p];
            if (size < 0) {
                size = size & 0x7f | b[p + 1] << 7;
                head = 2;
            }
            int id = b[p + head++];
            if (id < 0) {
                id = id & 0x7f | b[p + head++] << 7;
            }
            if (size < head || size == 'F' || size > end - p || id <= 1) {
                return null;
            }
            next = ready = segment = scan = p + size;
            suspicious = gaps;
            Event e = event(id, p, p + head);
            if (e != null) {
                return e;
            }
        }
        return null;
    }

    /** Hands out the event at `next`, or passes over what is none. */
    final Event deliver() {
        byte[] b = buffer.bytes;
        int start = next;
        var c = new Cursor(b, start, ready);
        int size = (int) c.varint();
        long id = c.varint();
        next = start + size;
        if (id <= 1 && id >= 0) {
            return null;
        }
        return event(id, start, c.pos);
    }

    /** The event from `start` to `next`; null if it is not to be handed out. */
    private Event event(long id, int start, int payload) {
        Type type = chunk.type(id);
        if (type == null || !type.event) {
            damage.undeclared();
            return null;
        }
        if (type.unwanted && type.role == 0) {
            return null;
        }
        if (suspicious && !chunk.complete(type, new Cursor(buffer.bytes, payload, next))) {
            damage.withheld(1);
            return null;
        }
        Event e = buffer.reuse ? shared : new Event();
        e.move(chunk, type, buffer.bytes, payload, next, buffer.base + start);
        if (type.role != 0) {
            losses.take(e);
        }
        return type.unwanted ? null : e;
    }

    /** Everything up to there may be handed out. */
    final void release(int to, boolean suspect) {
        ready = to;
        suspicious = suspect || gaps;
        if (chunk == null || chunk.segment == null) {
            segment = to;
        }
    }

    /** Events that are held are not handed out. */
    final void drop(int to) {
        long n = 0;
        for (int p = Math.max(ready, segment); p < to; ) {
            var c = new Cursor(buffer.bytes, p, to);
            try {
                int size = (int) c.varint();
                n += c.varint() > 1 ? 1 : 0;
                p += Math.max(size, 1);
            } catch (MalformedException e) {
                break;
            }
        }
        damage.withheld(n);
        unchecked.clear();
        next = ready = to;
    }

    final void commit() {
        for (int[] u : unchecked) {
            chunk.checkpoint(Arrays.copyOfRange(buffer.bytes, u[0], u[1]));
        }
        unchecked.clear();
    }
}
