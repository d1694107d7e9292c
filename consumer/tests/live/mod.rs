//! Live streams: contents, transports and damage.

mod damage;
mod fixtures;
mod make;
mod reading;
mod spans;
mod transports;
