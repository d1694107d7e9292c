//! The preloaded object.
