package dev.flightline.reader;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** A chunk: its header, types and constants. Events keep theirs. */
final class Chunk {
    static final int HEADER = 68;
    /** More constants of a chunk are not taken in: each takes up to 50 bytes beside its own. */
    private static final int MAX_CONSTANTS = 4 << 20;
    /** Constants within each other that are looked at when asking whether all are there. */
    private static final int MAX_DEPTH = 64;

    final long offset;
    final long size, checkpointOffset, metadataOffset, startNanos, startTicks, ticksPerSecond;
    final int state;
    final Map<Long, Type> types = new HashMap<>();
    private Type[] byId = new Type[0];
    /** Event types that the reader itself looks at. */
    Type segment;
    boolean flightline;

    /** What the clock anchors say, once one was met: the ticks of a moment and System.nanoTime() then. */
    volatile long[] anchor;
    private final Map<Long, Long> periods = new ConcurrentHashMap<>();
    /** The producer's interval counts something else than time. */
    private volatile boolean countsEvents;
    final Damage damage;

    private final List<byte[]> checkpoints = new ArrayList<>();
    private int indexed;
    private int constants;
    private long bytes;
    private final Map<Type, HashSet<Long>> complete = new HashMap<>();

    /** Reads a header; the caller has seen that it is plausible. */
    Chunk(byte[] b, int at, long offset, Damage damage) {
        this.offset = offset;
        this.damage = damage;
        size = Cursor.int64(b, at + 8);
        checkpointOffset = Cursor.int64(b, at + 16);
        metadataOffset = Cursor.int64(b, at + 24);
        startNanos = Cursor.int64(b, at + 32);
        startTicks = Cursor.int64(b, at + 48);
        ticksPerSecond = Cursor.int64(b, at + 56);
        state = b[at + 64] & 0xff;
    }

    /** Whether a header of this format may stand there; 68 bytes are. */
    static boolean plausible(byte[] b, int at) {
        return Cursor.int32(b, at) == 0x464c5200 && b[at + 4] == 0 && b[at + 5] == 2
            && Cursor.int64(b, at + 8) >= 0 && Cursor.int64(b, at + 56) > 0;
    }

    /** Whether its end is where the header says, from the start on. */
    boolean endKnown() {
        return state == 0 && size >= HEADER;
    }

    /** Whether constants come before or with the checkpoint that ends a flush, so that events need not wait longer. */
    boolean incremental() {
        return state != 0 || flightline || metadataOffset == HEADER && size > HEADER && checkpointOffset == size - 64;
    }

    Type type(long id) {
        return id >= 0 && id < byId.length ? byId[(int) id] : types.get(id);
    }

    /** Adds what a metadata event declares; `c` is behind its type. */
    List<Type> declare(Cursor c) {
        List<Type> added = Metadata.read(c, types);
        int most = 0;
        for (Type t : types.values()) {
            if (t.id < 1 << 14) {
                most = Math.max(most, (int) t.id + 1);
            }
        }
        byId = new Type[most];
        for (Type t : types.values()) {
            if (t.id < most) {
                byId[(int) t.id] = t;
            }
            flightline |= t.name.startsWith("flightline.");
            if (t.name.equals("flightline.Segment")) {
                segment = t;
            }
        }
        return added;
    }

    /** Takes in a checkpoint: what is behind its type. It is looked into when a constant is asked for. */
    synchronized void checkpoint(byte[] payload) {
        checkpoints.add(payload);
        bytes += payload.length;
    }

    long constantBytes() {
        return bytes;
    }

    /** A constant: a Symbol, Struct or one of its kind, or null if it is not defined. */
    Object constant(Type type, long key) {
        Pool pool = type.pool;
        if (pool != null) {
            Object value = pool.made(key);
            if (value != null) {
                return value;
            }
        }
        return make(type, key);
    }

    private synchronized Object make(Type type, long key) {
        index();
        if (type.pool == null) {
            return null;
        }
        Object value = type.pool.made(key);
        if (value != null) {
            return value;
        }
        Cursor c = find(type, key);
        if (c == null) {
            return null;
        }
        switch (type.name) {
            case "java.lang.Thread": value = new ThreadInfo(this, type, c.bytes, c.pos, c.end); break;
            case "jdk.types.StackTrace": value = new Stack(this, type, c.bytes, c.pos, c.end); break;
            case "jdk.types.Method": value = new Method(this, type, c.bytes, c.pos, c.end); break;
            default:
                boolean text = type.kind == Type.STRING || type.simple && type.fields[0].type.kind == Type.STRING && !type.fields[0].array;
                value = text ? symbol(type, c) : new Struct(this, type, c.bytes, c.pos, c.end);
        }
        type.pool.made(key, value);
        return value;
    }

    /** A text; chains of pooled ones end after a few steps. */
    private Symbol symbol(Type type, Cursor c) {
        boolean pooled = type.kind != Type.STRING && type.fields[0].pooled;
        Type strings = type.kind == Type.STRING ? type : type.fields[0].type;
        for (int i = 0; i < 8; i++) {
            int encoding = pooled ? Cursor.STRING_POOLED : c.u8();
            pooled = false;
            if (encoding == Cursor.STRING_UTF8) {
                int n = c.count();
                return new Symbol(c.bytes, c.pos, n);
            }
            if (encoding != Cursor.STRING_POOLED) {
                String s = c.text(encoding);
                return s == null ? Symbol.NULL : new Symbol(s);
            }
            c = find(strings, c.varint());
            if (c == null) {
                return Symbol.NULL;
            }
        }
        return Symbol.NULL;
    }

    private Cursor find(Type type, long key) {
        long place = type.pool == null ? -1 : type.pool.find(key);
        if (place < 0) {
            return null;
        }
        byte[] b = checkpoints.get((int) (place >>> 32));
        return new Cursor(b, (int) place, b.length);
    }

    private void index() {
        if (types.isEmpty()) {
            return;
        }
        while (indexed < checkpoints.size()) {
            int number = indexed++;
            byte[] b = checkpoints.get(number);
            try {
                index(number, new Cursor(b, 0, b.length));
            } catch (MalformedException e) {
                damage.constants(offset, e.getMessage());
            }
        }
    }

    private void index(int number, Cursor c) {
        c.skipVarints(3);
        c.u8();
        for (int pools = c.count(); pools > 0; pools--) {
            long id = c.varint();
            Type type = type(id);
            if (type == null) {
                throw new MalformedException("constants of the undeclared type " + id);
            }
            if (type.pool == null) {
                type.pool = new Pool();
            }
            for (int n = c.count(); n > 0; n--) {
                long key = c.varint();
                int at = c.pos;
                type.skip(c);
                if (type.pool.put(key, number, at) && ++constants > MAX_CONSTANTS) {
                    throw new MalformedException("more than " + MAX_CONSTANTS + " constants in a chunk");
                }
            }
        }
    }

    /** Length of the checkpoint event whose content (behind the type) begins at `c`, by what it holds. */
    int measure(Cursor c) {
        int start = c.pos;
        c.skipVarints(3);
        c.u8();
        for (int pools = c.count(); pools > 0; pools--) {
            long id = c.varint();
            Type type = type(id);
            if (type == null) {
                throw new MalformedException("constants of the undeclared type " + id);
            }
            for (int n = c.count(); n > 0; n--) {
                c.skipVarint();
                type.skip(c);
            }
        }
        return c.pos - start;
    }

    /** Whether all constants that an event names, and those they name, are defined. */
    synchronized boolean complete(Type type, Cursor c) {
        index();
        var trail = new ArrayList<Object[]>();
        try {
            if (complete(type, c, trail, 0)) {
                return true;
            }
        } catch (MalformedException e) {
            // Nor can it be read.
        }
        for (Object[] t : trail) {
            complete.get((Type) t[0]).remove(t[1]);
        }
        return false;
    }

    private boolean complete(Type type, Cursor c, List<Object[]> trail, int depth) {
        if (depth > MAX_DEPTH) {
            return false;
        }
        if (type.kind != Type.STRUCT || type.empty) {
            if (type.kind == Type.STRING && c.left() > 0 && c.bytes[c.pos] == Cursor.STRING_POOLED) {
                c.u8();
                return defined(type, c.varint(), trail, depth);
            }
            type.skip(c);
            return true;
        }
        for (Type.Field f : type.fields) {
            int n = f.array ? Type.elements(f, c) : 1;
            for (int i = 0; i < n; i++) {
                if (!(f.pooled ? defined(f.type, c.varint(), trail, depth) : complete(f.type, c, trail, depth + 1))) {
                    return false;
                }
            }
        }
        return true;
    }

    private boolean defined(Type type, long key, List<Object[]> trail, int depth) {
        Cursor c = find(type, key);
        if (c == null) {
            return key == 0;
        }
        if (!complete.computeIfAbsent(type, t -> new HashSet<>()).add(key)) {
            return true;
        }
        trail.add(new Object[] {type, key});
        return complete(type, c, trail, depth + 1);
    }

    /** Whose interval is in ns where async-profiler's `event` says what is counted. */
    private static final Set<String> TIMES = Set.of("cpu", "itimer", "ctimer", "wall", "cpu-clock", "task-clock");

    /** Learns from a jdk.ActiveSetting what samples stand for. The first setting counts. */
    void setting(Event e) {
        String name = e.getString("name");
        String value = e.getString("value");
        if (name == null || value == null) {
            return;
        }
        Type of = type(e.getLong("id"));
        if (of == null || of.stack < 0) {
            if (name.equals("event") && of != null && of.name.equals("jdk.ActiveRecording")) {
                countsEvents |= !TIMES.contains(value);
            }
            of = name.equals("interval") ? types.values().stream().filter(t -> t.name.equals("jdk.ExecutionSample")).findAny().orElse(null) : null;
        }
        long nanos = of == null ? 0 : name.equals("interval") ? number(value) : name.equals("period") ? span(value) : 0;
        if (nanos > 0) {
            periods.putIfAbsent(of.id, name.equals("interval") ? -nanos : nanos);
        }
    }

    /** Nanoseconds that a sample of a type stands for; null if that is not told. */
    Long period(long type) {
        Long nanos = periods.get(type);
        return nanos == null || nanos > 0 ? nanos : countsEvents ? null : Long.valueOf(-nanos);
    }

    private static long number(String s) {
        try {
            return Long.parseLong(s);
        } catch (NumberFormatException e) {
            return 0;
        }
    }

    /** As the JDK writes it: `20 ms`; 0 for anything else. */
    private static long span(String s) {
        int space = s.indexOf(' ');
        long n = space < 0 ? 0 : number(s.substring(0, space));
        switch (space < 0 ? "" : s.substring(space + 1)) {
            case "ns": return n;
            case "us": return n * 1000;
            case "ms": return n * 1_000_000;
            case "s": return n * 1_000_000_000;
            default: return 0;
        }
    }

    /** Ticks since any moment, in nanoseconds. */
    long nanos(long ticks) {
        if (ticksPerSecond == 1_000_000_000L) {
            return ticks;
        }
        long rest = ticks % ticksPerSecond;
        long part = ticksPerSecond < 9_000_000_000L ? rest * 1_000_000_000L / ticksPerSecond : (long) (rest * (1e9 / ticksPerSecond));
        return ticks / ticksPerSecond * 1_000_000_000L + part;
    }

    /** Nanoseconds since 1970. */
    long epochNanos(long ticks) {
        return startNanos + nanos(ticks - startTicks);
    }

    /** On the clock of System.nanoTime(). */
    long nanoTime(long ticks) {
        long[] a = anchor;
        return a == null ? nanos(ticks) : a[1] + nanos(ticks - a[0]);
    }
}
