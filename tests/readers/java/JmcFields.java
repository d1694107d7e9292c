import java.io.File;
import org.openjdk.jmc.common.IDisplayable;
import org.openjdk.jmc.common.IMCFrame;
import org.openjdk.jmc.common.IMCMethod;
import org.openjdk.jmc.common.IMCStackTrace;
import org.openjdk.jmc.common.IMCThread;
import org.openjdk.jmc.common.item.IItem;
import org.openjdk.jmc.common.item.IItemIterable;
import org.openjdk.jmc.common.item.IMemberAccessor;
import org.openjdk.jmc.common.item.ItemFilters;
import org.openjdk.jmc.common.unit.IQuantity;
import org.openjdk.jmc.flightrecorder.JfrLoaderToolkit;

/** All values of the events of a type, as JDK Mission Control reads them: JmcFields TYPE FILE. A line per value:
 * number of the event, attribute, value. */
public final class JmcFields {
    public static void main(String[] args) throws Exception {
        int number = 0;
        try (var out = new Canonical()) {
            for (IItemIterable items : JfrLoaderToolkit.loadEvents(new File(args[1])).apply(ItemFilters.type(args[0]))) {
                for (IItem item : items) {
                    for (var key : items.getType().getAccessorKeys().keySet()) {
                        IMemberAccessor<?, IItem> accessor = items.getType().getAccessor(key);
                        out.line(number + "\t" + key.getIdentifier() + "\t" + text(accessor.getMember(item)));
                    }
                    number++;
                }
            }
        }
    }

    private static String text(Object value) {
        if (value instanceof IQuantity quantity) {
            return quantity.persistableString();
        }
        if (value instanceof IMCThread thread) {
            return thread.getThreadName();
        }
        if (value instanceof IMCStackTrace stack) {
            var frames = new StringBuilder();
            for (IMCFrame frame : stack.getFrames()) {
                IMCMethod method = frame.getMethod();
                frames.append(method.getType().getFullName()).append('.').append(method.getMethodName())
                    .append(':').append(frame.getFrameLineNumber()).append(';');
            }
            return frames.toString();
        }
        return value instanceof IDisplayable shown ? shown.displayUsing(IDisplayable.EXACT) : String.valueOf(value);
    }
}
