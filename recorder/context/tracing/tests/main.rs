//! All tests of the layer in one executable.

mod layer;
mod told;
