package dev.flightline.reader;

/**
 * Is recorded, and says between which moments of System.nanoTime() each of its turns of work lay: a method of its own for
 * each parity, so that samples name the turn's kind. Lines of kind, begin, end.
 */
public final class Brackets {
    private static volatile long sink;

    public static void main(String[] args) {
        var lines = new StringBuilder();
        long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000;
        for (int turn = 0; System.nanoTime() < end; turn++) {
            long begin = System.nanoTime();
            if (turn % 2 == 0) {
                work(begin + 20_000_000);
            } else {
                pause();
            }
            lines.append(turn % 2 == 0 ? "work " : "pause ").append(begin).append(' ').append(System.nanoTime()).append('\n');
        }
        System.err.print(lines);
    }

    /** Bound to a processor's arithmetic: nobody waits here. */
    private static void work(long until) {
        long n = sink;
        while (System.nanoTime() < until) {
            for (int i = 0; i < 10_000; i++) {
                n = n * 6364136223846793005L + i;
            }
        }
        sink = n;
    }

    private static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
