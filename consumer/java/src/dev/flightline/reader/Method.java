package dev.flightline.reader;

/** A method, or a function of native code: then its class is the library. */
public final class Method extends Struct {
    private String className;
    private String name;

    Method(Chunk chunk, Type type, byte[] bytes, int at, int end) {
        super(chunk, type, bytes, at, end);
    }

    /** The class as `java.lang.String`, the library of native code; empty if not known. */
    public String className() {
        String s = className;
        if (s == null) {
            Symbol symbol = classSymbol();
            String raw = symbol == null ? null : symbol.toString();
            s = raw == null ? "" : raw.replace('/', '.');
            className = s;
        }
        return s;
    }

    /** The class as the stream has it, with slashes, for filters; null if not known. */
    public Symbol classSymbol() {
        Object of = constant(pooled("type"));
        return of instanceof Struct ? symbol(((Struct) of).constant(((Struct) of).pooled("name"))) : null;
    }

    /** Name of the method; empty if not known. */
    public String name() {
        String s = name;
        if (s == null) {
            Symbol symbol = nameSymbol();
            s = symbol == null || symbol.toString() == null ? "" : symbol.toString();
            name = s;
        }
        return s;
    }

    /** The name as the stream has it; null if not known. */
    public Symbol nameSymbol() {
        return symbol(constant(pooled("name")));
    }

    /** Types of arguments and result, as `(I)V`; null if not known. */
    public String descriptor() {
        return has("descriptor") ? getString("descriptor") : null;
    }

    private static Symbol symbol(Object constant) {
        return constant instanceof Symbol ? (Symbol) constant : null;
    }

    @Override
    public String toString() {
        return className().isEmpty() ? name() : className() + "." + name();
    }
}
