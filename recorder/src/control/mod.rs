//! Control of a running recording: `flightline ctl`, and other clients of the drain's socket.
//!
//! The socket is in the session directory, which only its owner may enter, and the drain gets the client's
//! user from the kernel. A request is one line of text, the answer one line of JSON.
//!
//! ```text
//! find.rs     process → waiting, recorded (session directory), or out of reach     client.rs  sends requests
//! server.rs   the drain's end of the socket                                        status.rs  the status as JSON
//! threads.rs  the thread of a program that receives a command                      join.rs    mailbox and command
//! ```
//!
//! Pauses, delayed starts and changes of engines use one mechanism. The session's page says what to record,
//! which is nothing during a pause, and has a counter of changes. Each program copies the counter to its file
//! when it has applied the change.

mod client;
mod find;
mod join;
mod server;
pub(crate) mod status;
mod threads;

pub use client::{ask, ask_within};
pub use find::{Condition, Finder, TargetProcess, find};
pub use join::{Joining, join};
pub(crate) use server::{Request, Server, Until};
pub(crate) use threads::Commander;

/// Name of the socket in the session directory.
pub(crate) const SOCKET: &str = "control";
/// Longest request line, bytes.
pub(crate) const REQUEST_BYTES: usize = 4096;
