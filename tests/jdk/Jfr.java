import java.io.*;
import java.lang.reflect.InvocationTargetException;
import java.util.*;

/**
 * The JDK's tool jfr for several calls in one JVM: Jfr. A call is a line, with parts separated by tabs: the
 * file of its output, the file of its errors, the command and its arguments. The answer is a line with its
 * exit status.
 */
final class Jfr {
    public static void main(String[] unused) throws Exception {
        var calls = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream answers = System.out;
        for (String line; (line = calls.readLine()) != null; ) {
            var words = new ArrayDeque<>(List.of(line.split("\t")));
            int status;
            try (var out = to(words.remove()); var errors = to(words.remove())) {
                System.setOut(out);
                System.setErr(errors);
                status = call(words);
            }
            answers.println(status);
            answers.flush();
        }
    }

    private static PrintStream to(String path) throws IOException {
        return new PrintStream(new BufferedOutputStream(new FileOutputStream(path), 1 << 16), false, "UTF-8");
    }

    /** As jdk.jfr.internal.tool.Main does, which ends the JVM. */
    private static int call(Deque<String> words) throws Exception {
        String name = words.remove();
        Class<?> type = Class.forName("jdk.jfr.internal.tool.Command");
        var commands = type.getDeclaredMethod("getCommands");
        var execute = type.getDeclaredMethod("execute", Deque.class);
        commands.setAccessible(true);
        execute.setAccessible(true);
        for (Object command : (List<?>) commands.invoke(null)) {
            if (!command.getClass().getSimpleName().equalsIgnoreCase(name)) {
                continue;
            }
            try {
                execute.invoke(command, words);
                return 0;
            } catch (InvocationTargetException e) {
                Throwable why = e.getCause();
                String kind = why.getClass().getSimpleName();
                boolean known = kind.equals("UserDataException") || kind.equals("UserSyntaxException");
                System.err.println("jfr " + name + ": " + (known ? "" : "unexpected internal error, ") + why.getMessage());
                if (!known) {
                    why.printStackTrace();
                }
                return kind.equals("UserSyntaxException") ? 2 : 1;
            }
        }
        throw new IllegalArgumentException("no command " + name);
    }
}
