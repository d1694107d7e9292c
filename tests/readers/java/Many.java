import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/**
 * Many recordings in one JVM: Many OUT PROGRAM [OPTION…] -- FILE…. The output for each file is in OUT/&lt;its
 * number&gt;, and its error in OUT/&lt;its number&gt;.error.
 */
public final class Many {
    public static void main(String[] args) throws Exception {
        Path out = Path.of(args[0]);
        int files = Arrays.asList(args).indexOf("--") + 1;
        Method program = Class.forName(args[1]).getMethod("main", String[].class);
        for (int i = files; i < args.length; i++) {
            String[] words = Arrays.copyOfRange(args, 2, files);
            words[words.length - 1] = args[i];
            String number = Integer.toString(i - files);
            try (var to = new BufferedOutputStream(new FileOutputStream(out.resolve(number).toFile()), 1 << 16)) {
                var printed = new PrintStream(to, false, StandardCharsets.UTF_8);
                System.setOut(printed);
                program.invoke(null, (Object) words);
                printed.flush();
            } catch (InvocationTargetException e) {
                Files.writeString(out.resolve(number + ".error"), String.valueOf(e.getCause()));
            }
        }
    }
}
