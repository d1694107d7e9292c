//! All tests of the public interface, in one executable.

mod image;
mod walk;
mod x86;
