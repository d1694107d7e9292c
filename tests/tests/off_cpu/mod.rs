//! Time off CPU: the intervals, their graphs, and their spans.

mod by_span;
mod graphs;
mod intervals;
