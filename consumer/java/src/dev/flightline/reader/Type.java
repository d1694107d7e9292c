package dev.flightline.reader;

import java.util.HashMap;
import java.util.Map;

/** A type that the metadata of a chunk declares. */
final class Type {
    static final int BOOLEAN = 0, BYTE = 1, CHAR = 2, SHORT = 3, INT = 4, LONG = 5, FLOAT = 6, DOUBLE = 7, STRING = 8, STRUCT = 9;
    private static final String[] PRIMITIVES = {"boolean", "byte", "char", "short", "int", "long", "float", "double", "java.lang.String"};
    /** Inline structs within each other. */
    private static final int MAX_DEPTH = 32;

    /** A field of a type. */
    static final class Field {
        final String name;
        final long typeId;
        final boolean pooled;
        final boolean array;
        int index;
        Type type;
        /** Units of jdk.jfr.Timespan and Timestamp; null without. */
        String timespan, timestamp;

        Field(String name, long typeId, boolean pooled, boolean array) {
            this.name = name;
            this.typeId = typeId;
            this.pooled = pooled;
            this.array = array;
        }

        /** One varint, whatever it means. */
        boolean isVarint() {
            return !array && (pooled || type.kind >= CHAR && type.kind <= LONG);
        }
    }

    final long id;
    final String name;
    final boolean event;
    final int kind;
    /** Values are those of its only field. */
    boolean simple;
    Field[] fields = {};
    final Map<String, Field> byName = new HashMap<>();
    /** Number of fields if each is one varint; -1 else. */
    int varints = -1;
    /** No value of it takes a byte. */
    boolean empty;
    /** Least bytes of a value. */
    int least;
    /** Why values cannot be read; null if they can. */
    String flaw;
    private boolean linking, linked;

    /** Constants of this type in the chunk; null until there are any. */
    volatile Pool pool;
    /** Fields that are asked for by role, -1 if there is none. */
    int thread = -1, stack = -1, state = -1, duration = -1, weight = -1;
    boolean weightIsTicks;
    /** Not asked for by the reader's user. */
    boolean unwanted;
    /** What the reader itself makes of its events. */
    int role;

    Type(long id, String name, String superType, boolean simple) {
        this.id = id;
        this.name = name;
        this.event = "jdk.jfr.Event".equals(superType);
        this.simple = simple;
        int kind = STRUCT;
        for (int i = 0; i < PRIMITIVES.length; i++) {
            if (PRIMITIVES[i].equals(name)) {
                kind = i;
            }
        }
        this.kind = kind;
    }

    /** Looks up the types of its fields, once all are declared. */
    void link(Map<Long, Type> types, int depth) {
        if (linked) {
            return;
        }
        if (linking || depth > MAX_DEPTH) {
            flaw = "type " + name + " holds itself or nests too deep";
            return;
        }
        linking = true;
        empty = kind == STRUCT;
        least = kind == STRUCT ? 0 : kind == FLOAT ? 4 : kind == DOUBLE ? 8 : 1;
        boolean plain = kind == STRUCT;
        for (int i = 0; i < fields.length; i++) {
            fields[i].index = i;
            byName.putIfAbsent(fields[i].name, fields[i]);
        }
        for (Field f : fields) {
            f.type = types.get(f.typeId);
            if (f.type == null) {
                flaw = "field " + name + "." + f.name + " is of an undeclared type";
                break;
            }
            boolean inline = !f.pooled;
            if (inline && f.type.kind == STRUCT) {
                f.type.link(types, depth + 1);
                if (!f.type.linked || f.type.flaw != null) {
                    flaw = f.type.flaw == null ? "type " + f.type.name + " holds itself" : f.type.flaw;
                    break;
                }
            }
            empty &= inline && !f.array && f.type.kind == STRUCT && f.type.empty;
            int bytes = f.array || f.pooled ? 1 : f.type.kind == STRUCT ? f.type.least : f.type.kind == FLOAT ? 4 : f.type.kind == DOUBLE ? 8 : 1;
            least = Math.min(least + bytes, 1 << 20);
            plain &= f.isVarint();
        }
        simple &= fields.length == 1;
        varints = plain && flaw == null ? fields.length : -1;
        linking = false;
        linked = true;
        if (event && flaw == null) {
            roles();
        }
    }

    private void roles() {
        thread = role("eventThread", "java.lang.Thread");
        if (thread < 0) {
            thread = role("sampledThread", "java.lang.Thread");
        }
        stack = role("stackTrace", "jdk.types.StackTrace");
        Field f = byName.get("state");
        state = f == null ? -1 : f.index;
        f = byName.get("duration");
        duration = f == null || f.type.kind != LONG || f.array ? -1 : f.index;
        for (String name : new String[] {"weight", "count", "timeSpan"}) {
            f = byName.get(name);
            if (weight < 0 && f != null && f.isVarint() && !f.pooled && (stack >= 0 || name.equals("weight"))) {
                weight = f.index;
                weightIsTicks = "TICKS".equals(f.timespan);
            }
        }
    }

    private int role(String field, String type) {
        Field f = byName.get(field);
        return f == null || !f.pooled || f.array || !f.type.name.equals(type) ? -1 : f.index;
    }

    /** Passes over a value. */
    void skip(Cursor c) {
        if (flaw != null) {
            throw new MalformedException(flaw);
        }
        if (varints >= 0) {
            c.skipVarints(varints);
            return;
        }
        if (empty) {
            return;
        }
        if (kind != STRUCT) {
            skipPrimitive(c, kind);
            return;
        }
        for (Field f : fields) {
            skip(f, c);
        }
    }

    static void skip(Field f, Cursor c) {
        Type type = f.type;
        if (!f.array) {
            if (f.pooled) {
                c.skipVarint();
            } else {
                type.skip(c);
            }
            return;
        }
        int n = elements(f, c);
        if (f.pooled) {
            c.skipVarints(n);
        } else if (type.varints >= 0) {
            c.skipVarints((long) n * type.varints);
        } else if (type.kind <= BYTE) {
            c.skip(n);
        } else {
            for (int i = 0; i < n; i++) {
                type.skip(c);
            }
        }
    }

    /** Number of elements of an array, which fit the bytes that are left. */
    static int elements(Field f, Cursor c) {
        int n = c.count();
        if (!f.pooled && f.type.flaw != null) {
            throw new MalformedException(f.type.flaw);
        }
        if (!f.pooled && f.type.kind == STRUCT && f.type.empty && n > 0) {
            throw new MalformedException("an array of values without content");
        }
        return n;
    }

    private static void skipPrimitive(Cursor c, int kind) {
        switch (kind) {
            case BOOLEAN:
            case BYTE:
                c.skip(1);
                return;
            case FLOAT:
                c.skip(4);
                return;
            case DOUBLE:
                c.skip(8);
                return;
            case STRING:
                c.skipString();
                return;
            default:
                c.skipVarint();
        }
    }
}
