package dev.flightline.reader;

import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.TreeMap;

/** The jobs of bench/readers.py: Jobs types|collapsed|fields NAME. The same results as tests/readers/java/JdkJobs.java. */
public final class Jobs {
    /** One per name, or per thread and stack. */
    private static final class Count {
        long n;
    }

    private final Map<String, Count> types = new HashMap<>();
    private final Map<ThreadInfo, Map<Stack, Count>> stacks = new IdentityHashMap<>();
    private final TreeMap<String, Long> lines = new TreeMap<>();
    private Chunk chunk;
    private long events, fields, chars;

    public static void main(String[] args) throws Exception {
        var jobs = new Jobs();
        try (var reader = StreamReader.open(args[1]).reuse(true)) {
            if (args[0].equals("collapsed")) {
                reader.only("jdk.ExecutionSample");
            }
            for (Event e; (e = reader.next()) != null; ) {
                switch (args[0]) {
                    case "types": jobs.types.computeIfAbsent(e.typeName(), k -> new Count()).n++; break;
                    case "fields": jobs.fields(e); break;
                    default: jobs.sample(e);
                }
            }
        }
        jobs.fold();
        jobs.types.forEach((name, count) -> System.out.println(name + "\t" + count.n));
        jobs.lines.forEach((stack, n) -> System.out.println(stack + " " + n));
        if (jobs.events > 0) {
            System.out.println(jobs.events + " " + jobs.fields + " " + jobs.chars);
        }
    }

    private void fields(Event e) {
        events++;
        for (Type.Field f : e.type.fields) {
            fields++;
            Object value = e.get(f.name);
            if (value instanceof String) {
                chars += ((String) value).length();
            }
        }
    }

    private void sample(Event e) {
        if (e.chunk != chunk) {
            fold();
            chunk = e.chunk;
        }
        stacks.computeIfAbsent(e.thread(), k -> new IdentityHashMap<>()).computeIfAbsent(e.stack(), k -> new Count()).n++;
    }

    private void fold() {
        stacks.forEach((thread, of) -> of.forEach((stack, count) -> lines.merge((thread == null ? "?" : thread.name()) + frames(stack), count.n, Long::sum)));
        stacks.clear();
    }

    private static String frames(Stack stack) {
        if (stack == null) {
            return ";?";
        }
        var line = new StringBuilder();
        for (int i = stack.depth(); i-- > 0; ) {
            Method m = stack.frame(i).method();
            line.append(';').append(m == null ? "?" : m.toString());
        }
        return line.toString();
    }
}
