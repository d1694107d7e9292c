//! All tests of the public interface, in one executable.

mod collect;
mod deliveries;
mod dump;
mod edit;
mod edited;
mod examples;
mod fixed_geometry;
mod follow;
mod hostile;
mod metadata;
mod native_image;
mod own_events;
mod patched;
mod prefixes;
mod repair;
mod round_trip;
mod splits;
mod stacks;
mod stream_parts;
mod views;
mod visits;
mod walk;
