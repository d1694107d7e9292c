package dev.flightline.reader;

/** What the producer told that it did not record, or did not send to this reader. */
public final class Loss {
    private final String cause;
    private final long events;
    private final long bytes;
    private final long cpuNanos;

    Loss(String cause, long events, long bytes, long cpuNanos) {
        this.cause = cause;
        this.events = events;
        this.bytes = bytes;
        this.cpuNanos = cpuNanos;
    }

    /** Why, in the producer's words. */
    public String cause() {
        return cause;
    }

    /** Samples or other events. */
    public long events() {
        return events;
    }

    /** Bytes of the stream; 0 where that is not told. */
    public long bytes() {
        return bytes;
    }

    /** CPU time that they stood for, in nanoseconds; 0 where that is not told. */
    public long cpuNanos() {
        return cpuNanos;
    }

    Loss plus(Loss other) {
        return new Loss(cause, events + other.events, bytes + other.bytes, cpuNanos + other.cpuNanos);
    }

    @Override
    public String toString() {
        return cause + ": " + events + " events, " + bytes + " bytes, " + cpuNanos + " ns";
    }
}
