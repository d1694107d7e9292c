//! Trees → pictures.

mod chain;
pub mod chart;
mod columns;
pub mod difference;
pub mod html;
pub mod java;
mod kinds;
mod page;
pub mod svg;
pub mod times;
pub mod trace;

pub(crate) use page::{escape, style_policy};

/// What is said on a picture beside the tree.
#[derive(Clone, Debug, Default)]
pub struct PictureOptions {
    /// Headline.
    pub title: String,
    /// Line below it.
    pub subtitle: Option<String>,
    /// Root at the top.
    pub inverted: bool,
}
