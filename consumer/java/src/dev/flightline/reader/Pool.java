package dev.flightline.reader;

import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * Constants of one type in one chunk: where they are, and what was made of them. The first definition of a key counts.
 * All but {@link #made} is called under the lock of the chunk.
 */
final class Pool {
    private static final class Table {
        final long[] keys;
        /** Number of the checkpoint plus 1, and the place in it; 0 is a free slot. */
        final long[] places;
        final AtomicReferenceArray<Object> values;

        Table(int n) {
            keys = new long[n];
            places = new long[n];
            values = new AtomicReferenceArray<>(n);
        }

        /** Where the key is, or belongs. */
        int slot(long key) {
            int mask = keys.length - 1;
            int i = (int) (key * 0x9E3779B97F4A7C15L >>> 32) & mask;
            while (places[i] != 0 && keys[i] != key) {
                i = i + 1 & mask;
            }
            return i;
        }
    }

    private volatile Table table = new Table(16);
    private int size;

    boolean put(long key, int checkpoint, int at) {
        Table t = table;
        if (size * 2 >= t.keys.length) {
            t = grow(t);
        }
        int i = t.slot(key);
        if (t.places[i] != 0) {
            return false;
        }
        t.keys[i] = key;
        t.places[i] = (long) (checkpoint + 1) << 32 | at;
        size++;
        return true;
    }

    private Table grow(Table old) {
        var t = new Table(old.keys.length * 2);
        for (int j = 0; j < old.keys.length; j++) {
            if (old.places[j] != 0) {
                int i = t.slot(old.keys[j]);
                t.keys[i] = old.keys[j];
                t.places[i] = old.places[j];
                t.values.set(i, old.values.get(j));
            }
        }
        table = t;
        return t;
    }

    /** What was made of a constant; null if nothing was yet. For any thread: who misses it asks under the lock. */
    Object made(long key) {
        Table t = table;
        int i = t.slot(key);
        Object value = t.values.get(i);
        // A value is set after its key: read after it, the key is whole.
        return value != null && t.keys[i] == key ? value : null;
    }

    /** Place of a constant, as (checkpoint << 32 | offset in it); -1 if it is not defined. */
    long find(long key) {
        Table t = table;
        long place = t.places[t.slot(key)];
        return place == 0 ? -1 : place - (1L << 32);
    }

    void made(long key, Object value) {
        Table t = table;
        t.values.set(t.slot(key), value);
    }
}
