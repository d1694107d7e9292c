package dev.flightline.reader;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** A name as the stream holds it. It can be compared without making a String of it. */
public final class Symbol {
    static final Symbol NULL = new Symbol(null);

    private final byte[] bytes;
    private final int at;
    private final int length;
    private String text;

    Symbol(byte[] bytes, int at, int length) {
        this.bytes = bytes;
        this.at = at;
        this.length = length;
    }

    Symbol(String text) {
        this.text = text;
        bytes = text == null ? new byte[0] : text.getBytes(StandardCharsets.UTF_8);
        at = 0;
        length = bytes.length;
    }

    /** Bytes of the name in UTF-8. */
    public int length() {
        return length;
    }

    /** One of them. */
    public byte byteAt(int i) {
        if (i < 0 || i >= length) {
            throw new IndexOutOfBoundsException(i + " of " + length);
        }
        return bytes[at + i];
    }

    /** Whether the name begins with these bytes; class names have slashes, as `java/lang/`. */
    public boolean startsWith(byte[] utf8) {
        return utf8.length <= length && Arrays.equals(bytes, at, at + utf8.length, utf8, 0, utf8.length);
    }

    /** Whether these bytes are the name. */
    public boolean is(byte[] utf8) {
        return utf8.length == length && startsWith(utf8);
    }

    @Override
    public boolean equals(Object other) {
        if (!(other instanceof Symbol)) {
            return false;
        }
        var o = (Symbol) other;
        return Arrays.equals(bytes, at, at + length, o.bytes, o.at, o.at + o.length);
    }

    @Override
    public int hashCode() {
        int h = 1;
        for (int i = 0; i < length; i++) {
            h = 31 * h + bytes[at + i];
        }
        return h;
    }

    /** The name as the stream has it: of classes with slashes. Null for the null text. */
    @Override
    public String toString() {
        String s = text;
        if (s == null && this != NULL) {
            s = Cursor.utf8(bytes, at, length);
            text = s;
        }
        return s;
    }
}
