package dev.flightline.reader;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;

/**
 * Prints a stream's samples in the canonical form of tests/readers, and what was lost or damaged:
 * Lines next|poll|flow|shared|reuse NAME…. Each line is written at once.
 */
public final class Lines {
    private static final String UNRESOLVED = "?";
    private static PrintStream out;
    private static final String WANTED = "jdk.ExecutionSample";

    public static void main(String[] args) throws Exception {
        out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
        for (int i = 1; i < args.length; i++) {
            read(args[0], args[i]);
        }
    }

    private static void read(String way, String name) throws Exception {
        try (StreamReader reader = StreamReader.open(name)) {
            switch (way) {
                case "next": next(reader); break;
                case "reuse": next(reader.reuse(true).only(WANTED)); break;
                case "poll": poll(reader); break;
                case "flow": flow(reader, 1, 3); break;
                case "shared": flow(reader, 4, 1); break;
                default: throw new IllegalArgumentException(way);
            }
            out.println("# ended " + reader.ended());
            out.println("# damage " + reader.damage().any() + " " + reader.damage());
            reader.lost().values().forEach(loss -> out.println("# lost " + loss));
            out.println("# of " + name);
            out.flush();
        }
    }

    private static void next(StreamReader reader) throws IOException {
        for (Event e; (e = reader.next()) != null; ) {
            print(e);
        }
    }

    /** Only what is there, until a while passed without; then waits for one, or the end. */
    private static void poll(StreamReader reader) throws Exception {
        for (int idle = 0; !reader.ended(); ) {
            Event e = reader.poll();
            if (e != null) {
                idle = 0;
                print(e);
            } else if (++idle < 20) {
                Thread.sleep(5);
            } else {
                idle = 0;
                print(reader.next());
            }
        }
    }

    private static void flow(StreamReader reader, int subscribers, long batch) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(subscribers);
        var done = new CountDownLatch(subscribers);
        Flow.Publisher<Event> publisher = reader.publisher(executor);
        for (int i = 0; i < subscribers; i++) {
            publisher.subscribe(new Flow.Subscriber<>() {
                private Flow.Subscription subscription;
                private long asked;

                @Override
                public void onSubscribe(Flow.Subscription s) {
                    subscription = s;
                    asked = batch;
                    s.request(batch);
                }

                @Override
                public void onNext(Event e) {
                    if (--asked < 0) {
                        throw new IllegalStateException("more than was asked for");
                    }
                    print(e);
                    if (asked == 0) {
                        asked = batch;
                        subscription.request(batch);
                    }
                }

                @Override
                public void onError(Throwable t) {
                    out.println("# error " + t);
                    done.countDown();
                }

                @Override
                public void onComplete() {
                    done.countDown();
                }
            });
        }
        done.await();
        executor.shutdown();
    }

    private static void print(Event e) {
        if (e != null && e.typeName().equals(WANTED)) {
            String line = line(e);
            synchronized (out) {
                out.println(line);
                out.flush();
            }
        }
    }

    static String line(Event e) {
        ThreadInfo thread = e.thread();
        String name = thread == null ? null : thread.name();
        var line = new StringBuilder().append(e.epochNanos()).append('\t').append(name == null ? UNRESOLVED : name).append('\t')
            .append(thread == null ? UNRESOLVED : thread.osThreadId()).append('\t').append(e.state() == null ? UNRESOLVED : e.state()).append('\t');
        Stack stack = e.stack();
        if (stack == null) {
            return line.append(UNRESOLVED).toString();
        }
        for (int i = 0; i < stack.depth(); i++) {
            line.append(i == 0 ? "" : ";").append(frame(stack.frame(i)));
        }
        return line.toString();
    }

    private static String frame(Frame f) {
        Method m = f.method();
        if (m == null) {
            return UNRESOLVED;
        }
        String name = m.nameSymbol() == null || m.nameSymbol().toString() == null ? UNRESOLVED : m.name();
        boolean unnamed = m.classSymbol() == null || m.classSymbol().toString() == null;
        return unnamed ? UNRESOLVED + "." + name : m.className().isEmpty() ? name : m.className() + "." + name;
    }
}
