package dev.flightline.reader;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.nio.channels.ReadableByteChannel;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Reads flight recordings while they come: Flightline's streams from a pipe or socket, and files of Flightline, the JDK
 * and async-profiler. Events come in the order of the stream, which need not be that of time.
 *
 * <p>Any number of threads may call; each event is handed out once.
 */
public final class StreamReader implements Closeable {
    private final Decoder decoder;
    private final ReentrantLock lock = new ReentrantLock();

    /** Reads a stream; {@link #close} closes it. {@link #poll} goes by its `available()`. */
    public StreamReader(InputStream in) throws IOException {
        this(Source.of(in));
    }

    /** Reads a channel; {@link #close} closes it. One that can be selected (pipes, sockets) is made non-blocking. */
    public StreamReader(ReadableByteChannel channel) throws IOException {
        this(Source.of(channel));
    }

    private StreamReader(Source source) throws IOException {
        decoder = new Decoder(source);
    }

    /**
     * Opens a stream by name: a file or FIFO, `-` for standard input, `fd:N`, `unix:/path` (Java 16 and later), or
     * `tcp:HOST:PORT` with the token that the environment variable FLIGHTLINE_TOKEN holds, if it does.
     */
    public static StreamReader open(String name) throws IOException {
        return open(name, System.getenv("FLIGHTLINE_TOKEN"));
    }

    /** The same with a token for `tcp:`, null for none. */
    public static StreamReader open(String name, String token) throws IOException {
        Source source = Doors.open(name, token);
        try {
            return new StreamReader(source);
        } catch (IOException | RuntimeException e) {
            source.close();
            throw e;
        }
    }

    /** Hands out events of these types only, from now on. The others cost a few nanoseconds each; losses are still added up. */
    public StreamReader only(String... types) {
        lock.lock();
        try {
            decoder.only(new HashSet<>(List.of(types)));
        } finally {
            lock.unlock();
        }
        return this;
    }

    /** Hands out one object again and again, which the next call changes, and overwrites its bytes: no garbage. */
    public StreamReader reuse(boolean on) {
        lock.lock();
        try {
            decoder.buffer.reuse = on;
        } finally {
            lock.unlock();
        }
        return this;
    }

    /**
     * Most bytes of events that wait for their constants, and most bytes of constants: 256 MiB, or an eighth of the heap.
     * Flightline's streams need what one flush writes; finished chunks of others, not from a file, all of a chunk.
     */
    public StreamReader maxHeld(long bytes) {
        lock.lock();
        try {
            decoder.maxHeld = Math.max(Buffer.SIZE, Math.min(bytes, 512 << 20));
        } finally {
            lock.unlock();
        }
        return this;
    }

    /**
     * The next event; waits for it. Null at the end of the stream.
     *
     * @throws IOException the stream fails
     * @throws JfrException it is no recording, or more must be held than {@link #maxHeld}
     */
    public Event next() throws IOException {
        lock.lock();
        try {
            return decoder.take(true);
        } finally {
            lock.unlock();
        }
    }

    /**
     * The next event if it is there as a whole, with its constants; null if not, at the end too (see {@link #ended}), or
     * while another thread waits in {@link #next}. Never waits for input.
     */
    public Event poll() throws IOException {
        if (!lock.tryLock()) {
            return null;
        }
        try {
            return decoder.take(false);
        } finally {
            lock.unlock();
        }
    }

    /** Whether the end was seen: there will be no more events. Of an InputStream only {@link #next} sees it. */
    public boolean ended() {
        return lock.isLocked() && !lock.isHeldByCurrentThread() ? false : decoder.ended();
    }

    /**
     * The events as they come, for one subscriber or several who share them. No more is read than was requested; reading
     * waits in the executor, so that needs a thread for it. Not together with {@link #reuse}.
     */
    public Flow.Publisher<Event> publisher(Executor executor) {
        return subscriber -> new Subscribed(this, executor, subscriber).start();
    }

    /** What the producer told it lost up to the events handed out so far, by cause. */
    public Map<String, Loss> lost() {
        return decoder.losses.totals();
    }

    /** What of the stream could not be read so far. */
    public Damage damage() {
        return decoder.damage.snapshot();
    }

    /** Closes what is read. A thread that waits in {@link #next} gets an exception, if what it waits for can be closed so. */
    @Override
    public void close() throws IOException {
        decoder.close();
    }
}
