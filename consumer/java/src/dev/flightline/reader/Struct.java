package dev.flightline.reader;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * A value with named fields: an event, or a constant or part of one. Fields are decoded when asked for; constants
 * once for each chunk.
 */
public class Struct {
    Chunk chunk;
    Type type;
    byte[] bytes;
    int at;
    int end;
    private static final VarHandle MARK;

    static {
        try {
            MARK = MethodHandles.lookup().findVarHandle(Struct.class, "mark", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    /** A field and where it begins: one number, read and written whole, as threads share constants. */
    long mark;

    Struct(Chunk chunk, Type type, byte[] bytes, int at, int end) {
        this.chunk = chunk;
        this.type = type;
        this.bytes = bytes;
        this.at = at;
        this.end = end;
    }

    /** Name of the type, as `jdk.ExecutionSample`. */
    public final String typeName() {
        return type.name;
    }

    /** Names of the fields, in the order of the stream. */
    public final List<String> fieldNames() {
        var names = new ArrayList<String>(type.fields.length);
        for (Type.Field f : type.fields) {
            names.add(f.name);
        }
        return names;
    }

    /** Whether the type has this field. What other versions of a producer write may have more or fewer. */
    public final boolean has(String field) {
        return type.byName.containsKey(field);
    }

    /**
     * Value of a field: boxed as declared, String, Struct, or Object[] of these; null if it is, or names a constant that
     * the chunk does not define. `a.b` is field b of the struct in field a, null if that is.
     *
     * @throws IllegalArgumentException the type has no such field
     * @throws MalformedException the bytes are not what the type says
     */
    public final Object get(String field) {
        Type.Field f = type.byName.get(field);
        if (f != null) {
            return get(f);
        }
        int dot = field.indexOf('.');
        if (dot < 0) {
            return get(field(field));
        }
        Object outer = get(field.substring(0, dot));
        if (outer != null && !(outer instanceof Struct)) {
            throw new IllegalArgumentException(field.substring(0, dot) + " of " + typeName() + " has no fields");
        }
        return outer == null ? null : ((Struct) outer).get(field.substring(dot + 1));
    }

    /** Value of an integer field; 0 if it is null. */
    public final long getLong(String field) {
        Object value = get(field);
        if (value instanceof Number && !(value instanceof Double) && !(value instanceof Float)) {
            return ((Number) value).longValue();
        }
        if (value instanceof Character) {
            return (Character) value;
        }
        if (value instanceof Boolean) {
            return (Boolean) value ? 1 : 0;
        }
        if (value == null) {
            return 0;
        }
        throw new IllegalArgumentException(field + " of " + typeName() + " is no integer");
    }

    /** Value of a numeric field; 0 if it is null. */
    public final double getDouble(String field) {
        Object value = get(field);
        return value instanceof Double || value instanceof Float ? ((Number) value).doubleValue() : getLong(field);
    }

    /** Value of a boolean field; false if it is null. */
    public final boolean getBoolean(String field) {
        return getLong(field) != 0;
    }

    /** Value of a text field, or of any other as text; null if it is null. */
    public final String getString(String field) {
        Object value = get(field);
        return value == null ? null : value instanceof Object[] ? Arrays.deepToString((Object[]) value) : value.toString();
    }

    /** Value of a field that is a struct; null if it is null. */
    public final Struct getStruct(String field) {
        Object value = get(field);
        if (value == null || value instanceof Struct) {
            return (Struct) value;
        }
        throw new IllegalArgumentException(field + " of " + typeName() + " is no struct");
    }

    /** Value of a field that is a span of time, by its declared unit. Long.MIN_VALUE and MAX_VALUE (for ever) are those many seconds. */
    public final Duration getDuration(String field) {
        long value = getLong(field);
        if (value == Long.MAX_VALUE || value == Long.MIN_VALUE) {
            return Duration.ofSeconds(value);
        }
        String unit = field(field).timespan;
        switch (unit == null ? "" : unit) {
            case "TICKS": return Duration.ofNanos(chunk.nanos(value));
            case "NANOSECONDS": return Duration.ofNanos(value);
            case "MICROSECONDS": return Duration.ofSeconds(Math.floorDiv(value, 1_000_000L), Math.floorMod(value, 1_000_000L) * 1000);
            case "MILLISECONDS": return Duration.ofMillis(value);
            case "SECONDS": return Duration.ofSeconds(value);
            default: throw new IllegalArgumentException(field + " of " + typeName() + " is no span of time");
        }
    }

    /** Value of a field that is a moment, by its declared unit. */
    public final Instant getInstant(String field) {
        long value = getLong(field);
        String unit = field(field).timestamp;
        switch (unit == null ? "" : unit) {
            case "TICKS": return instant(chunk.epochNanos(value));
            case "NANOSECONDS_SINCE_EPOCH": return instant(value);
            case "MILLISECONDS_SINCE_EPOCH": return value == Long.MIN_VALUE ? Instant.MIN : Instant.ofEpochMilli(value);
            case "SECONDS_SINCE_EPOCH": return Instant.ofEpochSecond(value);
            default: throw new IllegalArgumentException(field + " of " + typeName() + " is no moment");
        }
    }

    static Instant instant(long epochNanos) {
        return Instant.ofEpochSecond(Math.floorDiv(epochNanos, 1_000_000_000L), Math.floorMod(epochNanos, 1_000_000_000L));
    }

    private Type.Field field(String name) {
        Type.Field f = type.byName.get(name);
        if (f == null) {
            throw new IllegalArgumentException(typeName() + " has no field " + name + ", but " + fieldNames());
        }
        return f;
    }

    private Object get(Type.Field f) {
        try {
            return value(chunk, f, cursor(f.index));
        } catch (MalformedException e) {
            throw located(e);
        }
    }

    MalformedException located(MalformedException e) {
        return e;
    }

    /** At the start of a field; from the one asked for last, if that is before it. */
    final Cursor cursor(int index) {
        if (type.flaw != null) {
            throw new MalformedException(type.flaw);
        }
        long known = (long) MARK.getOpaque(this);
        int from = (int) (known >>> 32);
        var c = new Cursor(bytes, at, end);
        if (from > index) {
            from = 0;
        } else if (from > 0) {
            c.pos = (int) known;
        }
        if (type.varints >= 0) {
            c.skipVarints(index - from);
        } else {
            for (int i = from; i < index; i++) {
                Type.skip(type.fields[i], c);
            }
        }
        if (index > from) {
            MARK.setOpaque(this, (long) index << 32 | c.pos);
        }
        return c;
    }

    /** The constant that a pooled field names, as the chunk keeps it. */
    final Object constant(int index) {
        if (index < 0) {
            return null;
        }
        try {
            return chunk.constant(type.fields[index].type, cursor(index).varint());
        } catch (MalformedException e) {
            throw located(e);
        }
    }

    /** Index of a pooled field, -1 if there is none. */
    final int pooled(String name) {
        Type.Field f = type.byName.get(name);
        return f == null || !f.pooled || f.array ? -1 : f.index;
    }

    static Object value(Chunk chunk, Type.Field f, Cursor c) {
        if (!f.array) {
            return one(chunk, f, c);
        }
        int n = Type.elements(f, c);
        // As large as what is there says, not as it claims: an element takes at least a byte.
        var all = new Object[n];
        for (int i = 0; i < n; i++) {
            all[i] = one(chunk, f, c);
        }
        return all;
    }

    private static Object one(Chunk chunk, Type.Field f, Cursor c) {
        if (f.pooled) {
            return plain(chunk.constant(f.type, c.varint()));
        }
        switch (f.type.kind) {
            case Type.BOOLEAN: return c.u8() != 0;
            case Type.BYTE: return c.u8();
            case Type.CHAR: return (char) c.varint();
            case Type.SHORT: return (short) c.varint();
            case Type.INT: return (int) c.varint();
            case Type.LONG: return c.varint();
            case Type.FLOAT: return Float.intBitsToFloat(c.int32());
            case Type.DOUBLE: return Double.longBitsToDouble(c.int64());
            case Type.STRING: {
                int encoding = c.u8();
                return encoding == Cursor.STRING_POOLED ? plain(chunk.constant(f.type, c.varint())) : c.text(encoding);
            }
            default: {
                int start = c.pos;
                f.type.skip(c);
                return plain(new Struct(chunk, f.type, c.bytes, start, c.pos));
            }
        }
    }

    /** What a user sees of a value: simple types are the value of their field. */
    private static Object plain(Object value) {
        if (value instanceof Symbol) {
            return value.toString();
        }
        for (int depth = 0; value != null && value.getClass() == Struct.class && ((Struct) value).type.simple; depth++) {
            var s = (Struct) value;
            if (depth > 8) {
                return null;
            }
            value = value(s.chunk, s.type.fields[0], s.cursor(0));
        }
        return value;
    }

    @Override
    public String toString() {
        var s = new StringBuilder(typeName()).append(" {");
        for (Type.Field f : type.fields) {
            Object value = get(f);
            String text = value instanceof Struct && !(value instanceof ThreadInfo || value instanceof Stack || value instanceof Method)
                ? ((Struct) value).typeName() : value instanceof Object[] ? Arrays.toString((Object[]) value) : String.valueOf(value);
            s.append(' ').append(f.name).append('=').append(text);
        }
        return s.append(" }").toString();
    }
}
