package dev.flightline.reader;

/** A thread of the recorded program. */
public final class ThreadInfo extends Struct {
    ThreadInfo(Chunk chunk, Type type, byte[] bytes, int at, int end) {
        super(chunk, type, bytes, at, end);
    }

    /** The Java name; the operating system's if there is none. */
    public String name() {
        String name = javaName();
        return name != null && !name.isEmpty() ? name : osName();
    }

    /** Name the operating system has. */
    public String osName() {
        return has("osName") ? getString("osName") : null;
    }

    /** Number the operating system has; 0 if there is none, as for virtual threads. */
    public long osThreadId() {
        return has("osThreadId") ? getLong("osThreadId") : 0;
    }

    /** Name in Java; null for native threads. */
    public String javaName() {
        return has("javaName") ? getString("javaName") : null;
    }

    /** Thread.getId(); 0 for native threads. */
    public long javaThreadId() {
        return has("javaThreadId") ? getLong("javaThreadId") : 0;
    }

    @Override
    public String toString() {
        return name() + " (" + (javaThreadId() > 0 ? "java " + javaThreadId() + ", " : "") + "os " + osThreadId() + ")";
    }
}
