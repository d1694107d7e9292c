//! Stacks and their names: native code, Java, real programs.

mod frames;
mod java;
mod programs;
mod thread_names;
mod walk;
