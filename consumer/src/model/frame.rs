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
    /// No code: thread, process, "truncated".
    Marker,
    /// The recording does not say.
    Unknown,
}

impl FrameKind {
    /// Whether the class of the frame is a Java class rather than a library.
    pub fn is_java(self) -> bool {
        matches!(self, Self::Interpreted | Self::Compiled | Self::Inlined)
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
}

/// A call stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Leaf first.
    pub frames: Box<[Id<Frame>]>,
    /// The root is missing.
    pub truncated: bool,
}
