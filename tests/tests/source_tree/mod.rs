//! Checks of the source tree, its documents, names and packages.

mod house;
mod modules;
mod names;
mod packaging;
mod readme;
