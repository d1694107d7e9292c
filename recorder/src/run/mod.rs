//! Ways to run a recorder: with a command (`command`, `helper`), for running processes (`running`), for the
//! own process (`guard`), for a service.

pub mod command;
pub(crate) mod drain_options;
pub mod engines;
pub(crate) mod guard;
pub mod helper;
pub(crate) mod preload;
pub(crate) mod running;
pub(crate) mod service;
pub(crate) mod unjoined_children;
