package dev.flightline.reader;

/** A frame of a stack. */
public final class Frame extends Struct {
    private Method method;

    Frame(Chunk chunk, Type type, byte[] bytes, int at, int end) {
        super(chunk, type, bytes, at, end);
    }

    /** The method or function; null if the chunk does not define it. */
    public Method method() {
        Method m = method;
        if (m == null) {
            Object constant = constant(pooled("method"));
            m = constant instanceof Method ? (Method) constant : null;
            method = m;
        }
        return m;
    }

    /** {@link Method#className()}; empty without a method. */
    public String className() {
        return method() == null ? "" : method().className();
    }

    /** {@link Method#classSymbol()}; null without a method. */
    public Symbol classSymbol() {
        return method() == null ? null : method().classSymbol();
    }

    /** {@link Method#name()}; empty without a method. */
    public String methodName() {
        return method() == null ? "" : method().name();
    }

    /** Line in the source; 0 or less if not known. */
    public int line() {
        return has("lineNumber") ? (int) getLong("lineNumber") : 0;
    }

    /** Place in the byte code; of native code the address in its file, if it was told. */
    public int bci() {
        return has("bytecodeIndex") ? (int) getLong("bytecodeIndex") : 0;
    }

    /** Kind of code, as `JIT compiled`, `Interpreted`, `Inlined`, `Native`, `C++`, `Kernel`; null if not defined. */
    public String kind() {
        return has("type") ? getString("type") : null;
    }

    @Override
    public String toString() {
        return method() + (line() > 0 ? ":" + line() : "");
    }
}
