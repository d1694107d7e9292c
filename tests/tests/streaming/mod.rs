//! Recordings that are read while they are written.

mod collect;
mod languages;
mod live;
mod live_readers;
mod pipe_and_socket;
