package dev.flightline.reader;

import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** One subscriber: a task in the executor reads as long as something was requested. */
final class Subscribed implements Flow.Subscription {
    private final StreamReader reader;
    private final Executor executor;
    private final Flow.Subscriber<? super Event> subscriber;
    private final AtomicLong requested = new AtomicLong();
    /** A task is there, or the subscription is over. */
    private final AtomicBoolean running = new AtomicBoolean();
    private volatile boolean over;
    private volatile Throwable refused;

    Subscribed(StreamReader reader, Executor executor, Flow.Subscriber<? super Event> subscriber) {
        this.reader = reader;
        this.executor = executor;
        this.subscriber = subscriber;
    }

    void start() {
        // Not before onSubscribe has returned: no signal may overtake it.
        running.set(true);
        subscriber.onSubscribe(this);
        running.set(false);
        wake();
    }

    @Override
    public void request(long n) {
        if (n <= 0) {
            refused = new IllegalArgumentException("request of " + n);
        } else {
            requested.accumulateAndGet(n, (a, b) -> a + b < 0 ? Long.MAX_VALUE : a + b);
        }
        wake();
    }

    @Override
    public void cancel() {
        over = true;
    }

    private void wake() {
        if (!over && (requested.get() > 0 || refused != null) && running.compareAndSet(false, true)) {
            try {
                executor.execute(this::run);
            } catch (RuntimeException e) {
                over = true;
                subscriber.onError(e);
            }
        }
    }

    private void run() {
        try {
            while (!over && refused == null && requested.get() > 0) {
                Event e = reader.next();
                if (e == null) {
                    over = true;
                    subscriber.onComplete();
                    return;
                }
                if (requested.get() != Long.MAX_VALUE) {
                    requested.decrementAndGet();
                }
                // Also if it was cancelled meanwhile: nobody else gets this event.
                subscriber.onNext(e);
            }
            if (!over && refused != null) {
                over = true;
                subscriber.onError(refused);
            }
        } catch (Throwable e) {
            if (!over) {
                over = true;
                subscriber.onError(e);
            }
        } finally {
            running.set(false);
            wake();
        }
    }
}
