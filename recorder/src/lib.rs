//! flightline-recorder
pub mod rows;
