import java.io.File;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.openjdk.jmc.common.IMCFrame;
import org.openjdk.jmc.common.IMCMethod;
import org.openjdk.jmc.common.IMCStackTrace;
import org.openjdk.jmc.common.IMCThread;
import org.openjdk.jmc.common.item.IItem;
import org.openjdk.jmc.common.item.IItemIterable;
import org.openjdk.jmc.common.item.IMemberAccessor;
import org.openjdk.jmc.common.item.IType;
import org.openjdk.jmc.common.item.ItemFilters;
import org.openjdk.jmc.flightrecorder.JfrAttributes;
import org.openjdk.jmc.flightrecorder.JfrLoaderToolkit;

/** The jobs of bench/readers.py with JDK Mission Control's parser: JmcJobs types|collapsed FILE. */
public final class JmcJobs {
    public static void main(String[] args) throws Exception {
        var all = JfrLoaderToolkit.loadEvents(new File(args[1]));
        var lines = new TreeMap<String, Long>();
        if (args[0].equals("types")) {
            for (IItemIterable items : all) {
                lines.merge(items.getType().getIdentifier(), items.getItemCount(), Long::sum);
            }
        } else {
            Map<IMCThread, Map<IMCStackTrace, long[]>> counts = new IdentityHashMap<>();
            for (IItemIterable items : all.apply(ItemFilters.type("jdk.ExecutionSample"))) {
                IType<IItem> type = items.getType();
                IMemberAccessor<? extends IMCThread, IItem> thread = JfrAttributes.EVENT_THREAD.getAccessor(type);
                IMemberAccessor<? extends IMCStackTrace, IItem> stack = JfrAttributes.EVENT_STACKTRACE.getAccessor(type);
                for (IItem item : items) {
                    counts.computeIfAbsent(thread.getMember(item), k -> new IdentityHashMap<>())
                        .computeIfAbsent(stack.getMember(item), k -> new long[1])[0]++;
                }
            }
            counts.forEach((thread, of) -> of.forEach((stack, n) -> lines.merge(stack(thread, stack), n[0], Long::sum)));
        }
        String between = args[0].equals("types") ? "\t" : " ";
        try (var out = new Results()) {
            lines.forEach((line, n) -> out.line(line + between + n));
        }
    }

    private static String stack(IMCThread thread, IMCStackTrace stack) {
        List<String> line = new ArrayList<>();
        line.add(thread == null ? Canonical.UNRESOLVED : thread.getThreadName());
        if (stack == null) {
            line.add(Canonical.UNRESOLVED);
        } else {
            List<? extends IMCFrame> frames = stack.getFrames();
            for (int i = frames.size(); i-- > 0; ) {
                IMCMethod m = frames.get(i).getMethod();
                line.add(m == null ? Canonical.UNRESOLVED
                    : Canonical.frame(m.getType() == null ? null : m.getType().getFullName(), m.getMethodName()));
            }
        }
        return String.join(";", line);
    }
}
