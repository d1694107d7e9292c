//! flightline-tests
