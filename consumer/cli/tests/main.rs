//! All tests of the command line in one executable.

mod agents;
mod convert;
mod cpi;
mod diff;
mod events;
mod export_rows;
mod formats;
mod inputs;
mod java;
mod jobs;
mod journeys;
mod labels;
mod measure;
mod misuse;
mod offline;
mod print;
mod redact;
mod repair;
mod slower;
mod spans;
mod summary;
mod view;
