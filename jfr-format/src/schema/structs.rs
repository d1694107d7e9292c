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
}

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
        field("classLoader", CLASS_LOADER, "Class Loader").pooled(),
        field("name", SYMBOL, "Name").pooled(),
        field("package", PACKAGE, "Package").pooled(),
        field("modifiers", INT, "Access Modifiers"),
        field("hidden", BOOLEAN, "Hidden"),
    ]),
    structure(THREAD, "java.lang.Thread", "Thread", &[
        field("osName", STRING, "OS Thread Name"),
        field("osThreadId", LONG, "OS Thread Id"),
        field("javaName", STRING, "Java Thread Name"),
        field("javaThreadId", LONG, "Java Thread Id"),
        field("group", THREAD_GROUP, "Thread Group").pooled(),
    ]),
    structure(THREAD_GROUP, "jdk.types.ThreadGroup", "Thread Group", &[
        field("parent", THREAD_GROUP, "Parent").pooled(),
        field("name", STRING, "Name"),
    ]),
    structure(CLASS_LOADER, "jdk.types.ClassLoader", "Class Loader", &[
        field("type", CLASS, "Type").pooled(),
        field("name", SYMBOL, "Name").pooled(),
    ]),
    structure(PACKAGE, "jdk.types.Package", "Package", &[
        field("name", SYMBOL, "Name").pooled(),
        field("module", MODULE, "Module").pooled(),
        field("exported", BOOLEAN, "Exported"),
    ]),
    structure(MODULE, "jdk.types.Module", "Module", &[
        field("name", SYMBOL, "Name").pooled(),
        field("version", SYMBOL, "Version").pooled(),
        field("location", SYMBOL, "Location").pooled(),
        field("classLoader", CLASS_LOADER, "Class Loader").pooled(),
    ]),
    structure(METHOD, "jdk.types.Method", "Method", &[
        field("type", CLASS, "Type").pooled(),
        field("name", SYMBOL, "Name").pooled(),
        field("descriptor", SYMBOL, "Descriptor").pooled(),
        field("modifiers", INT, "Access Modifiers"),
        field("hidden", BOOLEAN, "Hidden"),
    ]),
    structure(STACK_TRACE, "jdk.types.StackTrace", "Stacktrace", &[
        field("truncated", BOOLEAN, "Truncated"),
        field("frames", STACK_FRAME, "Stack Frames").array(),
    ]),
    structure(STACK_FRAME, "jdk.types.StackFrame", "Stack Frame", &[
        field("method", METHOD, "Method").pooled(),
        field("lineNumber", INT, "Line Number"),
        field("bytecodeIndex", INT, "Bytecode Index"),
        field("type", FRAME_TYPE, "Frame Type").pooled(),
    ]),
    simple(SYMBOL, "jdk.types.Symbol", "Symbol", &[field("string", STRING, "String")]),
    simple(FRAME_TYPE, "jdk.types.FrameType", "Frame Type", &[field("description", STRING, "Description")]),
    simple(THREAD_STATE, "jdk.types.ThreadState", "Thread State", &[field("name", STRING, "Name")]),
    simple(CHUNK_HEADER, "jdk.types.ChunkHeader", "Chunk Header", &[field("payload", BYTE, "Payload").array()]),

    annotation(LABEL, "jdk.jfr.Label", &[field("value", STRING, "")]),
    annotation(DESCRIPTION, "jdk.jfr.Description", &[field("value", STRING, "")]),
    annotation(CATEGORY, "jdk.jfr.Category", &[field("value", STRING, "").array()]),
    annotation(TIMESTAMP, "jdk.jfr.Timestamp", &[field("value", STRING, "")]),
    annotation(TIMESPAN, "jdk.jfr.Timespan", &[field("value", STRING, "")]),
    annotation(DATA_AMOUNT, "jdk.jfr.DataAmount", &[field("value", STRING, "")]),
    annotation(PERCENTAGE, "jdk.jfr.Percentage", &[]),
    annotation(MEMORY_ADDRESS, "jdk.jfr.MemoryAddress", &[]),
    annotation(UNSIGNED, "jdk.jfr.Unsigned", &[]),
    annotation(CONTENT_TYPE, "jdk.jfr.ContentType", &[]),
];
