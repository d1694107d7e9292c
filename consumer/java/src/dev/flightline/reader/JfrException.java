package dev.flightline.reader;

import java.io.IOException;

/** The stream cannot be read on. */
public final class JfrException extends IOException {
    private static final long serialVersionUID = 1;
    private final long offset;

    JfrException(long offset, String message) {
        super(message + " at offset " + offset);
        this.offset = offset;
    }

    /** Bytes from the start of the stream to what could not be read. */
    public long offset() {
        return offset;
    }
}
