//! Ways to run a recorder: a command with a program (`command`, `helper`), running processes (`running`), the own process (`guard`), a service.

pub mod command;
pub mod drain_options;
pub mod engines;
pub(crate) mod guard;
pub mod helper;
pub mod preload;
pub mod running;
pub(crate) mod service;
pub(crate) mod unjoined_children;
