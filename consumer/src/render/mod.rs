//! Draws trees.

mod chain;
pub mod chart;
mod columns;
pub mod difference;
pub mod html;
pub mod java;
mod kinds;
mod name_hash;
mod page;
pub mod svg;
pub mod times;
pub mod trace;

pub(crate) use page::{escape, style_policy};

/// Text around a flame graph, and its orientation.
#[derive(Clone, Debug, Default)]
pub struct PictureOptions {
    /// Headline.
    pub title: String,
    /// Line below it.
    pub subtitle: Option<String>,
    /// Root at the top.
    pub inverted: bool,
}
