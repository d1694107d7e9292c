import java.lang.reflect.Array;
import java.nio.file.Path;
import java.util.*;
import jdk.jfr.*;
import jdk.jfr.consumer.RecordingFile;

/** The event types of each recording as lines, as `RecordingFile.readEventTypes` returns them. */
public class Types {
    static void annotations(String of, List<AnnotationElement> list) {
        for (AnnotationElement annotation : list) {
            StringJoiner values = new StringJoiner("\t");
            for (Object value : annotation.getValues()) {
                if (value != null && value.getClass().isArray()) {
                    for (int i = 0; i < Array.getLength(value); i++) {
                        values.add(String.valueOf(Array.get(value, i)));
                    }
                } else {
                    values.add(String.valueOf(value));
                }
            }
            // The name is printed separately.
            if (!annotation.getTypeName().equals("jdk.jfr.Name")) {
                System.out.println(of + "\tannotation\t" + annotation.getTypeName() + "\t" + values.toString().replace("\n", "\\n"));
            }
        }
    }

    static List<EventType> types(String file) throws Exception {
        try (RecordingFile recording = new RecordingFile(Path.of(file))) {
            return recording.readEventTypes();
        }
    }

    public static void main(String[] args) throws Exception {
        for (String file : args) {
            System.out.println("= " + file);
            for (EventType type : types(file)) {
                String name = type.getName();
                System.out.println(name + "\tid\t" + type.getId());
                annotations(name, type.getAnnotationElements());
                for (ValueDescriptor field : type.getFields()) {
                    String of = name + "\tfield\t" + field.getName();
                    System.out.println(of + "\ttype\t" + field.getTypeName() + "\t" + field.isArray());
                    annotations(of, field.getAnnotationElements());
                }
                for (SettingDescriptor setting : type.getSettingDescriptors()) {
                    System.out.println(name + "\tsetting\t" + setting.getName());
                }
            }
        }
    }
}
