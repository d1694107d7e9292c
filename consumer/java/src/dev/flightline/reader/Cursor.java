package dev.flightline.reader;

import java.nio.charset.StandardCharsets;

/** Takes values out of bytes. The only place that does; no allocation is sized by an unchecked number. */
final class Cursor {
    static final int STRING_NULL = 0, STRING_EMPTY = 1, STRING_POOLED = 2, STRING_UTF8 = 3, STRING_UTF16 = 4, STRING_LATIN1 = 5;

    final byte[] bytes;
    int pos;
    final int end;

    Cursor(byte[] bytes, int pos, int end) {
        this.bytes = bytes;
        this.pos = pos;
        this.end = end;
    }

    int left() {
        return end - pos;
    }

    byte u8() {
        if (pos >= end) {
            throw cut();
        }
        return bytes[pos++];
    }

    /** Groups of 7 bits, least first; a ninth byte has 8. */
    long varint() {
        int p = pos;
        if (p < end && bytes[p] >= 0) {
            pos = p + 1;
            return bytes[p];
        }
        return longVarint();
    }

    private long longVarint() {
        long value = 0;
        for (int shift = 0; shift < 56; shift += 7) {
            byte b = u8();
            value |= (b & 0x7fL) << shift;
            if (b >= 0) {
                return value;
            }
        }
        return value | (u8() & 0xffL) << 56;
    }

    void skipVarint() {
        for (int i = 0; i < 9; i++) {
            if (pos >= end) {
                throw cut();
            }
            if (bytes[pos++] >= 0) {
                return;
            }
        }
    }

    void skipVarints(long n) {
        for (; n > 0; n--) {
            skipVarint();
        }
    }

    /** A number of things that take at least one byte each. */
    int count() {
        long n = varint();
        if (n < 0 || n > left()) {
            throw new MalformedException("a count of " + n + " in " + left() + " bytes");
        }
        return (int) n;
    }

    void skip(long n) {
        if (n < 0 || n > left()) {
            throw cut();
        }
        pos += (int) n;
    }

    int int32() {
        if (left() < 4) {
            throw cut();
        }
        int value = int32(bytes, pos);
        pos += 4;
        return value;
    }

    long int64() {
        return (long) int32() << 32 | int32() & 0xffffffffL;
    }

    static int int32(byte[] b, int at) {
        return b[at] << 24 | (b[at + 1] & 0xff) << 16 | (b[at + 2] & 0xff) << 8 | b[at + 3] & 0xff;
    }

    static long int64(byte[] b, int at) {
        return (long) int32(b, at) << 32 | int32(b, at + 4) & 0xffffffffL;
    }

    void skipString() {
        int encoding = u8();
        switch (encoding) {
            case STRING_NULL:
            case STRING_EMPTY:
                return;
            case STRING_POOLED:
                skipVarint();
                return;
            case STRING_UTF8:
            case STRING_LATIN1:
                skip(varint());
                return;
            case STRING_UTF16:
                skipVarints(count());
                return;
            default:
                throw new MalformedException("string encoding " + encoding);
        }
    }

    /** The rest of a string whose encoding was read; not for pooled ones. */
    String text(int encoding) {
        switch (encoding) {
            case STRING_NULL:
                return null;
            case STRING_EMPTY:
                return "";
            case STRING_UTF8:
            case STRING_LATIN1: {
                int n = count();
                String text = encoding == STRING_UTF8 ? utf8(bytes, pos, n) : new String(bytes, pos, n, StandardCharsets.ISO_8859_1);
                pos += n;
                return text;
            }
            case STRING_UTF16: {
                char[] chars = new char[count()];
                for (int i = 0; i < chars.length; i++) {
                    chars[i] = (char) varint();
                }
                return new String(chars);
            }
            default:
                throw new MalformedException("string encoding " + encoding);
        }
    }

    /** UTF-8; with surrogates in three bytes each, as JVMs hand out names beyond the basic plane and async-profiler writes them. */
    static String utf8(byte[] b, int at, int n) {
        String text = new String(b, at, n, StandardCharsets.UTF_8);
        if (text.indexOf('\ufffd') < 0) {
            return text;
        }
        byte[] fixed = new byte[n];
        int to = 0;
        for (int i = at; i < at + n; ) {
            if (i + 6 <= at + n && surrogate(b, i, 0xa0) && surrogate(b, i + 3, 0xb0)) {
                int point = 0x10000 + ((b[i + 1] & 0xf) << 6 | b[i + 2] & 0x3f) * 0x400 + ((b[i + 4] & 0xf) << 6 | b[i + 5] & 0x3f);
                byte[] four = new String(Character.toChars(point)).getBytes(StandardCharsets.UTF_8);
                System.arraycopy(four, 0, fixed, to, 4);
                to += 4;
                i += 6;
            } else {
                fixed[to++] = b[i++];
            }
        }
        return new String(fixed, 0, to, StandardCharsets.UTF_8);
    }

    /** Half of a surrogate pair. */
    private static boolean surrogate(byte[] b, int i, int second) {
        return b[i] == (byte) 0xed && (b[i + 1] & 0xf0) == second && (b[i + 2] & 0xc0) == 0x80;
    }

    private static MalformedException cut() {
        return new MalformedException("cut off");
    }
}
