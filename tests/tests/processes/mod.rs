//! How processes are selected, recorded and controlled, from inside and from outside,
//! and how the command reports errors.

mod control;
mod crowds;
mod dump;
mod errors;
mod library;
mod outside;
mod outside_uprobes;
mod own_samples;
mod repository;
mod repository_limits;
