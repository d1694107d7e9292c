package dev.flightline.reader;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * Damages a stream of Flightline's in one place, always the same for a seed: Damaged ROUNDS FILE. What is handed out was
 * in the stream, with all its constants; what lies in front of the damage and from the next chunk on is all there; what
 * is missing is told.
 */
public final class Damaged {
    private final byte[] original;
    private final List<String> events = new ArrayList<>();
    private final List<Long> offsets = new ArrayList<>();
    /** Where segments end, and chunks begin. */
    private final List<Long> segments = new ArrayList<>();
    private final List<Long> chunks = new ArrayList<>();
    private final Map<Stack, Integer> stacks = new IdentityHashMap<>();
    private long behind, told;

    public static void main(String[] args) throws Exception {
        var damaged = new Damaged(Files.readAllBytes(Path.of(args[1])));
        for (int seed = 0; seed < Integer.parseInt(args[0]); seed++) {
            damaged.round(seed);
        }
        System.out.println(damaged.segments.size() + " segments, " + damaged.chunks.size() + " chunks, " + damaged.events.size()
            + " events; behind damage in its own chunk " + damaged.behind + " events; told " + damaged.told);
        check(damaged.behind > 0, "nothing was read behind damage in a chunk");
    }

    private Damaged(byte[] original) throws IOException {
        this.original = original;
        long last = -1;
        try (var reader = new StreamReader(new ByteArrayInputStream(original))) {
            for (Event e; (e = reader.next()) != null; ) {
                events.add(text(e));
                offsets.add(e.offset());
                if (e.chunk.offset != last) {
                    last = e.chunk.offset;
                    chunks.add(last);
                }
                if (e.typeName().equals("flightline.Segment")) {
                    segments.add((long) e.end + e.offset() - headOf(e));
                }
            }
            check(!reader.damage().any(), "the original: " + reader.damage());
        }
        check(chunks.size() > 2 && segments.size() > 2 * chunks.size(), chunks.size() + " chunks, " + segments.size() + " segments");
    }

    /** Place in the event's bytes that its offset is of. */
    private static long headOf(Event e) {
        var c = new Cursor(e.bytes, e.at - 1, e.at);
        check(c.bytes[c.pos] >= 0, "a type of one byte");
        // Size and type are a byte each, or two of size.
        return e.at - (e.end - e.at + 2 < 128 ? 2 : 3);
    }

    /** All fields; a stack as a number, made once. */
    private String text(Event e) {
        var text = new StringBuilder(e.typeName());
        for (String field : e.fieldNames()) {
            Object value = field.equals("stackTrace") ? stacks.computeIfAbsent(e.stack(), s -> String.valueOf(s).hashCode()) : e.get(field);
            text.append(' ').append(value);
        }
        return text.toString();
    }

    private void round(int seed) throws IOException {
        var random = new Random(seed);
        int at = random.nextInt(original.length);
        int length = Math.min(1 + random.nextInt(random.nextInt(3) == 0 ? 5000 : 8), original.length - at);
        byte[] b = original.clone();
        int kind = seed % 4;
        if (kind == 0) {
            for (int i = at; i < at + length; i++) {
                b[i] ^= (byte) (1 + random.nextInt(255));
            }
        } else if (kind == 1) {
            b = new byte[original.length - length];
            System.arraycopy(original, 0, b, 0, at);
            System.arraycopy(original, at + length, b, at, b.length - at);
        } else if (kind == 2) {
            b = new byte[original.length + length];
            random.nextBytes(b);
            System.arraycopy(original, 0, b, 0, at);
            System.arraycopy(original, at, b, at + length, original.length - at);
        } else {
            b = Arrays.copyOf(original, at);
            length = original.length - at;
        }
        String what = "seed " + seed + ", kind " + kind + ", " + length + " bytes at " + at;
        Map<String, Integer> left = new HashMap<>();
        events.forEach(e -> left.merge(e, 1, Integer::sum));
        Map<String, Integer> counts = new HashMap<>(left);
        stacks.clear();
        int got = 0;
        long ownChunk = chunks.stream().filter(c -> c <= at).reduce((x, y) -> y).orElse(0L);
        long end = at + (kind == 2 ? 0 : length);
        // A header that is cut by the damage takes its chunk with it.
        long nextChunk = chunks.stream().filter(c -> c >= end).findFirst().orElse(Long.MAX_VALUE);
        try (var reader = new StreamReader(new ByteArrayInputStream(b))) {
            for (Event e; (e = reader.next()) != null; got++) {
                String text = text(e);
                Integer n = left.get(text);
                check(n != null && n > 0, what + ": handed out, but not in the stream: " + text);
                left.put(text, n - 1);
                if (e.chunk.offset == ownChunk && e.offset() > end) {
                    behind++;
                }
            }
            Map<String, Integer> needed = new HashMap<>();
            for (int i = 0; i < events.size(); i++) {
                long o = offsets.get(i);
                boolean before = segments.stream().anyMatch(s -> s > o && s <= at);
                if (before || kind != 3 && o > nextChunk) {
                    String text = events.get(i);
                    // The same text may be of an event that the damage hit.
                    int most = counts.get(text) - left.get(text);
                    check(needed.merge(text, 1, Integer::sum) <= most, what + ": lost, but not damaged: at " + o + " " + text);
                }
            }
            // Filler and the anchor are not looked at; a cut between chunks is none.
            check(got == events.size() || reader.damage().any() || kind == 3 && chunks.contains((long) at), what + ": " + (events.size() - got) + " missing and nothing told");
            told += reader.damage().any() ? 1 : 0;
        } catch (JfrException e) {
            check(kind == 3 && at < 68 || ownChunk == nextChunk, what + ": " + e);
        }
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
