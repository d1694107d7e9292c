//! flightline-capture
