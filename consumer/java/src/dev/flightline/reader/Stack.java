package dev.flightline.reader;

import java.util.AbstractList;
import java.util.List;

/** A stack, innermost frame first. One object for each stack of a chunk. */
public final class Stack extends Struct {
    private volatile Frame[] frames;

    Stack(Chunk chunk, Type type, byte[] bytes, int at, int end) {
        super(chunk, type, bytes, at, end);
    }

    /** Whether there were more frames than were recorded. */
    public boolean truncated() {
        return has("truncated") && getBoolean("truncated");
    }

    /** Number of frames. */
    public int depth() {
        return all().length;
    }

    /** A frame, 0 the innermost. */
    public Frame frame(int i) {
        return all()[i];
    }

    /** The frames, innermost first. */
    public List<Frame> frames() {
        Frame[] all = all();
        return new AbstractList<>() {
            @Override
            public Frame get(int i) {
                return all[i];
            }

            @Override
            public int size() {
                return all.length;
            }
        };
    }

    private Frame[] all() {
        Frame[] all = frames;
        if (all == null) {
            all = read();
            frames = all;
        }
        return all;
    }

    private Frame[] read() {
        Type.Field f = type.byName.get("frames");
        if (f == null || !f.array || f.pooled || f.type.kind != Type.STRUCT) {
            return new Frame[0];
        }
        Cursor c = cursor(f.index);
        var all = new Frame[Type.elements(f, c)];
        for (int i = 0; i < all.length; i++) {
            int start = c.pos;
            f.type.skip(c);
            all[i] = new Frame(chunk, f.type, c.bytes, start, c.pos);
        }
        return all;
    }

    @Override
    public String toString() {
        return frames() + (truncated() ? " …" : "");
    }
}
