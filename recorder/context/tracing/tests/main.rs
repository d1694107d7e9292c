//! The tests of the layer that need no recorder.

mod layer;
