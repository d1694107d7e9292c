//! flightline-recorder

mod clock;
pub mod command;
mod demangle;
pub mod drain;
mod elf;
mod error;
mod images;
mod intern;
mod ledger;
pub mod loss;
mod modules;
pub mod preload;
mod proc_file;

mod process;
pub mod program;
mod recording;
pub mod rows;
mod sequences;
mod session;
pub mod settings;
pub mod sink;
mod symbols;
mod system;
mod tell;
mod threads;

pub use drain::Drain;
pub use error::Error;
pub use loss::Report;
pub use settings::{Engine, Settings};
pub use sink::Target;
