package dev.flightline.reader;

import java.util.LinkedHashMap;
import java.util.Map;

/** What the reader makes of some events itself: losses, clocks, settings. */
final class Losses {
    private static final int SAMPLE = 1, EVENT = 2, STREAM = 3, DATA = 4, SETTING = 5, ANCHOR = 6;
    /** More causes are put under one. */
    private static final int MAX_CAUSES = 256;

    private final Map<String, Loss> totals = new LinkedHashMap<>();

    static int role(String type) {
        switch (type) {
            case "flightline.SampleLoss": return SAMPLE;
            case "flightline.EventLoss": return EVENT;
            case "flightline.StreamLoss": return STREAM;
            case "jdk.DataLoss": return DATA;
            case "jdk.ActiveSetting": return SETTING;
            case "flightline.ClockAnchor": return ANCHOR;
            default: return 0;
        }
    }

    void take(Event e) {
        try {
            switch (e.type.role) {
                case SAMPLE: add(e.getString("cause"), e.getLong("samples"), 0, e.getLong("cpuTime")); break;
                case EVENT: add("no room: " + e.getString("event"), e.getLong("count"), 0, 0); break;
                case STREAM: add(e.getString("cause"), e.getLong("events"), e.getLong("bytes"), 0); break;
                case DATA: add("jdk.DataLoss", 0, e.getLong("amount"), 0); break;
                case SETTING: e.chunk.setting(e); break;
                case ANCHOR: e.chunk.anchor = new long[] {e.ticks(), e.getLong("monotonic")}; break;
                default: break;
            }
        } catch (MalformedException | IllegalArgumentException | ClassCastException ex) {
            // The event is handed out all the same; whoever asks for its fields is told.
        }
    }

    private synchronized void add(String cause, long events, long bytes, long cpuNanos) {
        String key = cause == null ? "not told" : totals.size() < MAX_CAUSES || totals.containsKey(cause) ? cause : "other causes";
        totals.merge(key, new Loss(key, events, bytes, cpuNanos), Loss::plus);
    }

    synchronized Map<String, Loss> totals() {
        return new LinkedHashMap<>(totals);
    }
}
