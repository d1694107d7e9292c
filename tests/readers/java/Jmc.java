import java.io.File;
import java.util.ArrayList;
import java.util.List;
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

/** JDK Mission Control's parser: Jmc FILE. */
public final class Jmc {
    public static void main(String[] args) throws Exception {
        try (var out = new Canonical()) {
            var samples = JfrLoaderToolkit.loadEvents(new File(args[0])).apply(ItemFilters.type("jdk.ExecutionSample"));
            for (IItemIterable items : samples) {
                IType<IItem> type = items.getType();
                IMemberAccessor<IQuantity, IItem> time = JfrAttributes.START_TIME.getAccessor(type);
                IMemberAccessor<? extends IMCThread, IItem> thread = JfrAttributes.EVENT_THREAD.getAccessor(type);
                IMemberAccessor<? extends IMCStackTrace, IItem> stack = JfrAttributes.EVENT_STACKTRACE.getAccessor(type);
                IMemberAccessor<?, IItem> state = member(type, "state");
                for (IItem item : items) {
                    IMCThread t = thread.getMember(item);
                    Object s = state.getMember(item);
                    out.sample(
                        time.getMember(item).clampedLongValueIn(UnitLookup.EPOCH_NS),
                        t == null ? null : t.getThreadName(),
                        Canonical.NOT_OFFERED,
                        s == null ? null : s.toString(),
                        frames(stack.getMember(item)));
                }
            }
        }
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
