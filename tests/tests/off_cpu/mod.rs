//! Time off CPU: the intervals, their graphs, and the time of threads by span.

mod by_span;
mod graphs;
mod intervals;
