package dev.flightline.reader;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Random;

/**
 * Damages recordings at random, always the same for a seed, and reads all fields of all events: Mutations ROUNDS FILE….
 * Whatever comes: an end, a bounded number of events, no exception but those that are declared.
 */
public final class Mutations {
    private static long events, damaged, refused, malformed;

    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[0]);
        Path file = Files.createTempFile("mutated", ".jfr");
        try {
            for (int i = 1; i < args.length; i++) {
                byte[] original = Files.readAllBytes(Path.of(args[i]));
                for (int seed = 0; seed < rounds; seed++) {
                    String what = Path.of(args[i]).getFileName() + " seed " + seed;
                    byte[] mutated = mutate(original, new Random(seed * 1000003L + Path.of(args[i]).getFileName().hashCode()));
                    try {
                        if (seed % 3 == 0) {
                            Files.write(file, mutated);
                            read(new StreamReader(FileChannel.open(file, StandardOpenOption.READ)), mutated.length, seed);
                        } else {
                            read(new StreamReader(pieces(mutated, new Random(seed))), mutated.length, seed);
                        }
                    } catch (RuntimeException | Error e) {
                        throw new AssertionError(what + ": " + e, e);
                    }
                }
            }
        } finally {
            Files.delete(file);
        }
        System.out.println(events + " events, " + damaged + " with damage, " + refused + " refused, " + malformed + " malformed events");
        if (events == 0 || damaged == 0) {
            throw new AssertionError("nothing was tried");
        }
    }

    private static byte[] mutate(byte[] original, Random random) {
        byte[] b = original.clone();
        // Some of many sorts, most of few: a single wrong byte goes deepest.
        for (int n = 1 + random.nextInt(1 + random.nextInt(20)); n > 0 && b.length > 100; n--) {
            // Headers and metadata are where numbers count most.
            int at = random.nextInt(4) == 0 ? random.nextInt(Math.min(b.length, 400)) : random.nextInt(b.length);
            int length = Math.min(1 + random.nextInt(64), b.length - at);
            switch (random.nextInt(8)) {
                case 0: b[at] = (byte) random.nextInt(); break;
                case 1: b[at] ^= 1 << random.nextInt(8); break;
                case 2: Arrays.fill(b, at, at + length, (byte) 0xff); break;
                case 3: Arrays.fill(b, at, at + length, (byte) 0); break;
                case 4: b = Arrays.copyOf(b, at + 1); break;
                case 5: System.arraycopy(b, random.nextInt(b.length - length + 1), b, at, length); break;
                case 6: {
                    byte[] shorter = new byte[b.length - length];
                    System.arraycopy(b, 0, shorter, 0, at);
                    System.arraycopy(b, at + length, shorter, at, b.length - at - length);
                    b = shorter;
                    break;
                }
                default: b[at] = (byte) (0x80 | random.nextInt(4));
            }
        }
        return b;
    }

    /** A stream that gives few bytes at a time now and then. */
    private static InputStream pieces(byte[] b, Random random) {
        return new ByteArrayInputStream(b) {
            @Override
            public int read(byte[] into, int at, int most) {
                return super.read(into, at, random.nextInt(3) == 0 ? Math.min(most, 1 + random.nextInt(100)) : most);
            }

            @Override
            public int available() {
                return random.nextInt(4) == 0 ? 0 : super.available();
            }
        };
    }

    private static void read(StreamReader reader, int length, int seed) throws IOException {
        try (reader) {
            reader.reuse(seed % 4 == 1);
            long n = 0;
            while (true) {
                Event e = seed % 2 == 0 ? reader.next() : reader.poll();
                e = e == null ? reader.next() : e;
                if (e == null) {
                    break;
                }
                if (++n > length) {
                    throw new AssertionError("more events than bytes");
                }
                look(e, 3);
                touch(e);
            }
            events += n;
            damaged += reader.damage().any() ? 1 : 0;
            if (reader.next() != null || !reader.ended()) {
                throw new AssertionError("no end");
            }
        } catch (JfrException e) {
            refused++;
            if (e.offset() < 0 || e.offset() > length) {
                throw new AssertionError("offset " + e.offset() + " of " + length, e);
            }
        }
    }

    private static void touch(Event e) {
        try {
            e.nanoTime();
            e.start();
            e.durationNanos();
            e.weight();
            Lines.line(e);
        } catch (MalformedException ex) {
            malformed++;
        }
    }

    private static void look(Struct s, int depth) {
        for (String name : s.fieldNames()) {
            try {
                value(s.get(name), depth);
            } catch (MalformedException e) {
                malformed++;
                if (s instanceof Event && e.offset() < 0) {
                    throw new AssertionError("no offset", e);
                }
            }
        }
    }

    private static void value(Object value, int depth) {
        if (depth > 0 && value instanceof Struct) {
            look((Struct) value, depth - 1);
        } else if (value instanceof Object[]) {
            var all = (Object[]) value;
            for (int i = 0; i < Math.min(all.length, 3); i++) {
                value(all[i], depth);
            }
        }
    }
}
