//! All tests of the public interface in one executable.

mod fold;
mod hostile;
mod keyed;
mod live;
mod print;
mod print_bounds;
