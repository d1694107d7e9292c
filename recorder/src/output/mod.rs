//! Where recordings go: files and streams (`sink`), repositories, copies (`dump`), and figures about the recorder (`exposition`).

pub mod dump;
pub mod exposition;
pub mod repository;
pub mod sink;
