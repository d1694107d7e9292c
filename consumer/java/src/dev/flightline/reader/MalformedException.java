package dev.flightline.reader;

/** The content of an event, or of a constant it names, is not what its type says. Other fields and events may be sound. */
public final class MalformedException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private final long offset;

    MalformedException(String message) {
        this(-1, message);
    }

    MalformedException(long offset, String message) {
        // Without a stack trace: hostile input would make one for each event.
        super(offset < 0 ? message : message + ", event at offset " + offset, null, false, false);
        this.offset = offset;
    }

    /** Bytes from the start of the stream to the event; -1 if not known. */
    public long offset() {
        return offset;
    }
}
