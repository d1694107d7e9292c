package dev.flightline.reader;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Reads a metadata event into types. */
final class Metadata {
    private static final int MAX_DEPTH = 64;
    private static final int MAX_ELEMENTS = 1 << 20;

    private final Cursor c;
    private final String[] strings;
    private final Map<Long, Type> known;
    private final Map<Long, String> names = new HashMap<>();
    private final List<Type> added = new ArrayList<>();
    /** Annotations of fields: field, id of the annotation's type, value. */
    private final List<Object[]> annotations = new ArrayList<>();
    private Type type;
    private List<Type.Field> fields;
    private int elements;

    private Metadata(Cursor c, Map<Long, Type> known) {
        this.c = c;
        this.known = known;
        c.skipVarints(3);
        strings = new String[c.count()];
        for (int i = 0; i < strings.length; i++) {
            strings[i] = c.text(c.u8());
        }
    }

    /** Adds the types of a metadata event, whose payload `c` is at, to `types`; what is declared already stays as it is. */
    static List<Type> read(Cursor c, Map<Long, Type> types) {
        var metadata = new Metadata(c, types);
        metadata.element(0, null);
        for (Type t : metadata.added) {
            types.put(t.id, t);
        }
        metadata.annotate();
        for (Type t : metadata.added) {
            t.link(types, 0);
        }
        return metadata.added;
    }

    private String string() {
        long i = c.varint();
        if (i < 0 || i >= strings.length) {
            throw new MalformedException("metadata names string " + i + " of " + strings.length);
        }
        String s = strings[(int) i];
        return s == null ? "" : s;
    }

    private void element(int depth, Type.Field field) {
        if (depth > MAX_DEPTH || ++elements > MAX_ELEMENTS) {
            throw new MalformedException("metadata with too many elements or too deep");
        }
        String kind = string();
        int n = c.count();
        String name = null, id = null, of = null, superType = null, value = null;
        boolean pooled = false, array = false, simple = false;
        for (int i = 0; i < n; i++) {
            String key = string();
            String v = string();
            switch (key) {
                case "name": name = v; break;
                case "id": id = v; break;
                case "class": of = v; break;
                case "superType": superType = v; break;
                case "value": value = v; break;
                case "constantPool": pooled = v.equals("true"); break;
                case "dimension": array = !v.equals("0"); break;
                case "simpleType": simple = v.equals("true"); break;
                default: break;
            }
        }
        boolean isClass = kind.equals("class") && type == null;
        if (isClass) {
            type = new Type(number(id), name == null ? "" : name, superType, simple);
            names.put(type.id, type.name);
            fields = new ArrayList<>();
        } else if (kind.equals("field") && type != null) {
            field = new Type.Field(name == null ? "" : name, number(of), pooled, array);
            fields.add(field);
        } else if (kind.equals("annotation") && field != null && value != null) {
            annotations.add(new Object[] {field, number(of), value});
        }
        int children = c.count();
        for (int i = 0; i < children; i++) {
            element(depth + 1, field);
        }
        if (isClass) {
            type.fields = fields.toArray(new Type.Field[0]);
            if (!known.containsKey(type.id) && type.id > 1) {
                added.add(type);
            }
            type = null;
        }
    }

    private void annotate() {
        for (Object[] a : annotations) {
            var field = (Type.Field) a[0];
            String name = names.get(a[1]);
            if ("jdk.jfr.Timespan".equals(name)) {
                field.timespan = (String) a[2];
            } else if ("jdk.jfr.Timestamp".equals(name)) {
                field.timestamp = (String) a[2];
            }
        }
    }

    private static long number(String s) {
        try {
            return Long.parseLong(s);
        } catch (NumberFormatException e) {
            throw new MalformedException("metadata with the id " + s);
        }
    }
}
