//! The profiling service, its agents, and exports to other systems.

mod access;
mod agent;
mod agent_joins;
mod export;
mod hostile_clients;
mod interop;
mod runs;
mod samples_store;
mod store;
mod windows;
