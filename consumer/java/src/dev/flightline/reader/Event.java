package dev.flightline.reader;

import java.time.Instant;
import java.util.Arrays;

/** An event. It stays valid after others are read, unless the reader was told to {@link StreamReader#reuse reuse} it. */
public final class Event extends Struct {
    private long offset;

    Event() {
        super(null, null, null, 0, 0);
    }

    void move(Chunk chunk, Type type, byte[] bytes, int at, int end, long offset) {
        this.chunk = chunk;
        this.type = type;
        this.bytes = bytes;
        this.at = at;
        this.end = end;
        this.offset = offset;
        mark = 0;
    }

    /** An event of its own with the same content: what is kept for long keeps no more than its bytes and its constants. */
    public Event copy() {
        var copy = new Event();
        copy.move(chunk, type, Arrays.copyOfRange(bytes, at, end), 0, end - at, offset);
        return copy;
    }

    /** Bytes from the start of the stream to the event. */
    public long offset() {
        return offset;
    }

    /** Start on the clock of the stream. */
    public long ticks() {
        if (type.fields.length == 0) {
            return 0;
        }
        try {
            return cursor(0).varint();
        } catch (MalformedException e) {
            throw located(e);
        }
    }

    /** Start in nanoseconds since 1970. */
    public long epochNanos() {
        return chunk.epochNanos(ticks());
    }

    /** Start. */
    public Instant start() {
        return instant(epochNanos());
    }

    /**
     * Start on the clock that System.nanoTime() reads on this machine, in nanoseconds: by the clock anchors of
     * Flightline, whose ticks are that clock's. Of other recordings the ticks in nanoseconds, which are that
     * clock's if the producer used it (async-profiler with clock=monotonic).
     */
    public long nanoTime() {
        return chunk.nanoTime(ticks());
    }

    /** How long it took, in nanoseconds; 0 for moments. */
    public long durationNanos() {
        return type.duration < 0 ? 0 : chunk.nanos(number(type.duration));
    }

    /** The thread it is about; null if it names none. */
    public ThreadInfo thread() {
        Object constant = constant(type.thread);
        return constant instanceof ThreadInfo ? (ThreadInfo) constant : null;
    }

    /** The stack; null if it has none. */
    public Stack stack() {
        Object constant = constant(type.stack);
        return constant instanceof Stack ? (Stack) constant : null;
    }

    /** State of the thread, as `STATE_RUNNABLE`; null if it names none. */
    public String state() {
        return type.state < 0 ? null : getString("state");
    }

    /**
     * What it stands for: nanoseconds of CPU or wall-clock time for samples of these, by its own field (timeSpan) or the
     * interval that the recording tells; bytes of sampled allocations (weight); events of a counter (count). 1 if nothing is told.
     */
    public long weight() {
        if (type.weight >= 0) {
            long weight = number(type.weight);
            return type.weightIsTicks ? chunk.nanos(weight) : weight;
        }
        Long period = type.stack < 0 ? null : chunk.period(type.id);
        return period == null ? 1 : period;
    }

    private long number(int index) {
        try {
            return cursor(index).varint();
        } catch (MalformedException e) {
            throw located(e);
        }
    }

    @Override
    MalformedException located(MalformedException e) {
        return e.offset() >= 0 ? e : new MalformedException(offset, typeName() + ": " + e.getMessage());
    }
}
