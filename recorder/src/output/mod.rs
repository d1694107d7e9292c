//! Outputs: files and streams (`sink`), repositories, copies (`dump`), and metrics of the recorder
//! (`exposition`).

pub mod dump;
pub mod exposition;
pub mod repository;
pub mod sink;
