//! flightline-consumer
