//! All tests of the public interface, in one executable.

mod hotspot;
mod image;
mod walk;
mod x86;
