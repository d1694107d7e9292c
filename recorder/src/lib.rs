//! flightline-recorder
