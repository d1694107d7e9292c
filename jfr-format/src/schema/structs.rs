//! Primitives, the types of the constant pools, and annotations.

use super::declare::{Type, annotation, field, primitive, simple, structure};
use crate::ids::TypeId;

macro_rules! ids {
    ($($name:ident = $id:literal $type:literal;)*) => {
        $(
            #[doc = concat!("`", $type, "`")]
            pub const $name: TypeId = TypeId($id);
        )*
    };
}
pub(super) use ids;

ids! {
    BOOLEAN = 4 "boolean";
    CHAR = 5 "char";
    FLOAT = 6 "float";
    DOUBLE = 7 "double";
    BYTE = 8 "byte";
    SHORT = 9 "short";
    INT = 10 "int";
    LONG = 11 "long";

    STRING = 20 "java.lang.String";
    CLASS = 21 "java.lang.Class";
    THREAD = 22 "java.lang.Thread";
    CLASS_LOADER = 23 "jdk.types.ClassLoader";
    FRAME_TYPE = 24 "jdk.types.FrameType";
    THREAD_STATE = 25 "jdk.types.ThreadState";
    STACK_TRACE = 26 "jdk.types.StackTrace";
    STACK_FRAME = 27 "jdk.types.StackFrame";
    METHOD = 28 "jdk.types.Method";
    PACKAGE = 29 "jdk.types.Package";
    MODULE = 30 "jdk.types.Module";
    SYMBOL = 31 "jdk.types.Symbol";
    THREAD_GROUP = 32 "jdk.types.ThreadGroup";
    CHUNK_HEADER = 33 "jdk.types.ChunkHeader";
    EVENT_NAME = 34 "flightline.types.EventName";
    NETWORK_INTERFACE_NAME = 35 "jdk.types.NetworkInterfaceName";

    LABEL = 200 "jdk.jfr.Label";
    DESCRIPTION = 201 "jdk.jfr.Description";
    CATEGORY = 202 "jdk.jfr.Category";
    TIMESTAMP = 203 "jdk.jfr.Timestamp";
    TIMESPAN = 204 "jdk.jfr.Timespan";
    DATA_AMOUNT = 205 "jdk.jfr.DataAmount";
    PERCENTAGE = 206 "jdk.jfr.Percentage";
    MEMORY_ADDRESS = 207 "jdk.jfr.MemoryAddress";
    UNSIGNED = 208 "jdk.jfr.Unsigned";
    CONTENT_TYPE = 209 "jdk.jfr.ContentType";
    FREQUENCY = 210 "jdk.jfr.Frequency";
    CONTEXTUAL = 211 "jdk.jfr.Contextual";
}

// Fields of structs have no labels: no tool shows them, and a pipe transfers them once per chunk.
#[rustfmt::skip]
pub(super) const TYPES: &[Type] = &[
    primitive(BOOLEAN, "boolean"),
    primitive(CHAR, "char"),
    primitive(FLOAT, "float"),
    primitive(DOUBLE, "double"),
    primitive(BYTE, "byte"),
    primitive(SHORT, "short"),
    primitive(INT, "int"),
    primitive(LONG, "long"),
    primitive(STRING, "java.lang.String"),

    structure(CLASS, "java.lang.Class", "Class", &[
        field("classLoader", CLASS_LOADER, "").pooled(),
        field("name", SYMBOL, "").pooled(),
        field("package", PACKAGE, "").pooled(),
        field("modifiers", INT, ""),
        field("hidden", BOOLEAN, ""),
    ]),
    structure(THREAD, "java.lang.Thread", "Thread", &[
        field("osName", STRING, ""),
        field("osThreadId", LONG, ""),
        field("javaName", STRING, ""),
        field("javaThreadId", LONG, ""),
        field("group", THREAD_GROUP, "").pooled(),
    ]),
    structure(THREAD_GROUP, "jdk.types.ThreadGroup", "Thread Group", &[
        field("parent", THREAD_GROUP, "").pooled(),
        field("name", STRING, ""),
    ]),
    structure(CLASS_LOADER, "jdk.types.ClassLoader", "Class Loader", &[
        field("type", CLASS, "").pooled(),
        field("name", SYMBOL, "").pooled(),
    ]),
    structure(PACKAGE, "jdk.types.Package", "Package", &[
        field("name", SYMBOL, "").pooled(),
        field("module", MODULE, "").pooled(),
        field("exported", BOOLEAN, ""),
    ]),
    structure(MODULE, "jdk.types.Module", "Module", &[
        field("name", SYMBOL, "").pooled(),
        field("version", SYMBOL, "").pooled(),
        field("location", SYMBOL, "").pooled(),
        field("classLoader", CLASS_LOADER, "").pooled(),
    ]),
    structure(METHOD, "jdk.types.Method", "Method", &[
        field("type", CLASS, "").pooled(),
        field("name", SYMBOL, "").pooled(),
        field("descriptor", SYMBOL, "").pooled(),
        field("modifiers", INT, ""),
        field("hidden", BOOLEAN, ""),
    ]),
    structure(STACK_TRACE, "jdk.types.StackTrace", "Stacktrace", &[
        field("truncated", BOOLEAN, ""),
        field("frames", STACK_FRAME, "").array(),
    ]),
    structure(STACK_FRAME, "jdk.types.StackFrame", "Stack Frame", &[
        field("method", METHOD, "").pooled(),
        field("lineNumber", INT, ""),
        field("bytecodeIndex", INT, ""),
        field("type", FRAME_TYPE, "").pooled(),
    ]),
    simple(SYMBOL, "jdk.types.Symbol", "Symbol", &[field("string", STRING, "")]),
    simple(FRAME_TYPE, "jdk.types.FrameType", "Frame Type", &[field("description", STRING, "")]),
    simple(THREAD_STATE, "jdk.types.ThreadState", "Thread State", &[field("name", STRING, "")]),
    simple(NETWORK_INTERFACE_NAME, "jdk.types.NetworkInterfaceName", "Network Interface", &[
        field("networkInterface", STRING, ""),
    ]),
    simple(EVENT_NAME, "flightline.types.EventName", "Event Name", &[field("name", STRING, "")]),
    simple(CHUNK_HEADER, "jdk.types.ChunkHeader", "Chunk Header", &[field("payload", BYTE, "").array()]),

    annotation(LABEL, "jdk.jfr.Label", &[field("value", STRING, "")]),
    annotation(DESCRIPTION, "jdk.jfr.Description", &[field("value", STRING, "")]),
    annotation(CATEGORY, "jdk.jfr.Category", &[field("value", STRING, "").array()]),
    annotation(TIMESTAMP, "jdk.jfr.Timestamp", &[field("value", STRING, "")]),
    annotation(TIMESPAN, "jdk.jfr.Timespan", &[field("value", STRING, "")]),
    annotation(DATA_AMOUNT, "jdk.jfr.DataAmount", &[field("value", STRING, "")]),
    annotation(PERCENTAGE, "jdk.jfr.Percentage", &[]),
    annotation(MEMORY_ADDRESS, "jdk.jfr.MemoryAddress", &[]),
    annotation(UNSIGNED, "jdk.jfr.Unsigned", &[]),
    annotation(FREQUENCY, "jdk.jfr.Frequency", &[]),
    annotation(CONTEXTUAL, "jdk.jfr.Contextual", &[]),
    annotation(CONTENT_TYPE, "jdk.jfr.ContentType", &[]),
];
