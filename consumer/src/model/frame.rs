//! Frames and stacks.

use std::sync::Arc;

use super::interner::Id;

/// What kind of code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// Machine code that no virtual machine made.
    Native,
    /// Code of the kernel.
    Kernel,
    /// Interpreted Java.
    Interpreted,
    /// Compiled Java.
    Compiled,
    /// Java inlined into its caller.
    Inlined,
    /// A native function inlined into its caller.
    NativeInlined,
    /// A Java method that is written in another language.
    NativeMethod,
    /// Machine code that a program which is no Java machine made at run time.
    Jit,
    /// No code: thread, process, "truncated".
    Marker,
    /// No code: the class of the object that was allocated, waited for or thrown.
    Class,
    /// The recording does not say.
    Unknown,
}

impl FrameKind {
    const ALL: [Self; 11] = [
        Self::Native,
        Self::Kernel,
        Self::Interpreted,
        Self::Compiled,
        Self::Inlined,
        Self::NativeInlined,
        Self::NativeMethod,
        Self::Jit,
        Self::Marker,
        Self::Class,
        Self::Unknown,
    ];

    /// The kind of a [`name`](Self::name); `Unknown` of what is none.
    pub fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|kind| kind.name() == name).unwrap_or(Self::Unknown)
    }

    /// What it is called where people and other programs read it: `tail --samples`, a store's frames.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Kernel => "kernel",
            Self::Interpreted => "interpreted",
            Self::Compiled => "compiled",
            Self::Inlined => "inlined",
            Self::NativeInlined => "native-inlined",
            Self::NativeMethod => "native-method",
            Self::Jit => "jit",
            Self::Marker => "marker",
            Self::Class => "class",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the class of the frame is a Java class rather than a library.
    pub fn is_java(self) -> bool {
        matches!(self, Self::Interpreted | Self::Compiled | Self::Inlined | Self::NativeMethod)
    }

    /// The kind, knowing that the method is native code: then it is no Java whatever the frame says.
    #[must_use]
    pub fn of_native(self) -> Self {
        match self {
            Self::Inlined => Self::NativeInlined,
            Self::Compiled => Self::Jit,
            Self::Unknown | Self::NativeMethod => Self::Native,
            kind => kind,
        }
    }

    /// Returns the kind of the function: how a method ran, or that a function was inlined here, does not make it another function.
    #[must_use]
    pub fn function_kind(self) -> Self {
        match self {
            Self::NativeInlined => Self::Native,
            kind if kind.is_java() => Self::Compiled,
            kind => kind,
        }
    }

    /// Whether the class of the frame is the file that the code is from.
    pub fn in_library(self) -> bool {
        matches!(self, Self::Native | Self::Kernel | Self::NativeInlined | Self::Jit)
    }
}

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function or method.
    pub function: Arc<str>,
    /// Java class with dots, or the file name of the library; may be empty.
    pub class: Arc<str>,
    /// Kind of code.
    pub kind: FrameKind,
    /// Source line; 0 or negative if unknown.
    pub line: i32,
    /// The place of a native function's code; `None` if the recording does not have it, or without `LoadOptions::places`.
    pub place: Option<Arc<CodePlace>>,
}

/// A file of machine code, and an address in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodePlace {
    /// The program or library.
    pub file: Arc<CodeFile>,
    /// Address within the file, as its symbols count; 0 if it was not recorded.
    pub address: u32,
}

/// A program or library, as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeFile {
    /// Path as the recorded program saw it; may be empty.
    pub path: String,
    /// Build id in hexadecimal; may be empty.
    pub build_id: String,
}

/// A call stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Leaf first.
    pub frames: Box<[Id<Frame>]>,
    /// The root is missing.
    pub truncated: bool,
}
