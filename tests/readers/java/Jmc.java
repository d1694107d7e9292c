import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.openjdk.jmc.common.IMCFrame;
import org.openjdk.jmc.common.IMCMethod;
import org.openjdk.jmc.common.IMCStackTrace;
import org.openjdk.jmc.common.IMCThread;
import org.openjdk.jmc.common.item.IItem;
import org.openjdk.jmc.common.item.IItemIterable;
import org.openjdk.jmc.common.item.IMemberAccessor;
import org.openjdk.jmc.common.item.IType;
import org.openjdk.jmc.common.item.ItemFilters;
import org.openjdk.jmc.common.unit.IQuantity;
import org.openjdk.jmc.common.unit.UnitLookup;
import org.openjdk.jmc.flightrecorder.JfrAttributes;
import org.openjdk.jmc.flightrecorder.JfrLoaderToolkit;

/** JDK Mission Control's parser: Jmc [--weights] FILE. With weights wall-clock samples too, and how many
 * samples each represents. */
public final class Jmc {
    public static void main(String[] args) throws Exception {
        try (var out = new Canonical()) {
            boolean weights = args[0].equals("--weights");
            var types = weights ? Set.of("jdk.ExecutionSample", "profiler.WallClockSample") : Set.of("jdk.ExecutionSample");
            var samples = JfrLoaderToolkit.loadEvents(new File(args[args.length - 1])).apply(ItemFilters.type(types));
            for (IItemIterable items : samples) {
                IType<IItem> type = items.getType();
                IMemberAccessor<IQuantity, IItem> time = JfrAttributes.START_TIME.getAccessor(type);
                IMemberAccessor<?, IItem> thread = JfrAttributes.EVENT_THREAD.getAccessor(type);
                if (thread == null) {
                    // For execution samples, JMC stores the sampled thread as the event's own thread.
                    thread = member(type, "sampledThread");
                }
                IMemberAccessor<? extends IMCStackTrace, IItem> stack = JfrAttributes.EVENT_STACKTRACE.getAccessor(type);
                IMemberAccessor<?, IItem> state = member(type, "state");
                IMemberAccessor<?, IItem> count = has(type, "samples") ? member(type, "samples") : null;
                for (IItem item : items) {
                    IMCThread t = (IMCThread) thread.getMember(item);
                    Object s = state.getMember(item);
                    String line = Canonical.line(
                        time.getMember(item).clampedLongValueIn(UnitLookup.EPOCH_NS),
                        t == null ? null : t.getThreadName(),
                        Canonical.NOT_OFFERED,
                        s == null ? null : s.toString(),
                        frames(stack.getMember(item)));
                    long n = count == null ? 1 : ((IQuantity) count.getMember(item)).longValue();
                    out.line(weights ? Canonical.weighted(line, n) : line);
                }
            }
        }
    }

    private static boolean has(IType<IItem> type, String identifier) {
        return type.getAccessorKeys().keySet().stream().anyMatch(key -> key.getIdentifier().equals(identifier));
    }

    private static IMemberAccessor<?, IItem> member(IType<IItem> type, String identifier) {
        for (var key : type.getAccessorKeys().keySet()) {
            if (key.getIdentifier().equals(identifier)) {
                return type.getAccessor(key);
            }
        }
        throw new IllegalStateException(type.getIdentifier() + " has no attribute " + identifier);
    }

    private static List<String> frames(IMCStackTrace stack) {
        if (stack == null) {
            return null;
        }
        List<String> frames = new ArrayList<>();
        for (IMCFrame f : stack.getFrames()) {
            IMCMethod m = f.getMethod();
            frames.add(m == null ? Canonical.UNRESOLVED
                : Canonical.frame(m.getType() == null ? null : m.getType().getFullName(), m.getMethodName()));
        }
        return frames;
    }
}
