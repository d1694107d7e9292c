//! Spans, scopes and the labels of samples.

mod contexts;
mod durations;
mod samples;
mod scopes;
