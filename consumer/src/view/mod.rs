//! Predefined tables for any recording: hot methods, pauses, allocation, contention, …
//!
//! ```text
//! catalog (declarations) ─┐
//! any event type ─────────┴─► Plan ─► Viewer: events ─► rows ─► Table ─► text | JSON | CSV
//! ```
//! Fields are found by the names in the metadata. A column is empty if the producer's version does not
//! have the field.
//!
//! ```no_run
//! use flightline_consumer::view::{self, Plan, Viewer};
//! use jfr_format::read::Input;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plan = Plan::from_view(view::find("hot-methods").ok_or("no such view")?);
//! let mut viewer = Viewer::new(vec![plan], Default::default());
//! let mut input = Input::open("run.jfr".as_ref())?;
//! while let Some(item) = input.next()? {
//!     viewer.take(item);
//! }
//! for table in viewer.finish() {
//!     view::write_csv(&table, &mut std::io::stdout())?;
//! }
//! # Ok(()) }
//! ```
//!
//! Rows, values for quantiles and live allocations are bounded; what exceeds the limits is counted.

mod accumulator;
mod catalog;
mod datum;
pub mod definition;
mod engine;
mod export;
mod live;
mod lock_frames;
mod names;
mod path;
mod plan;
pub(crate) mod quantiles;
mod recorded_by;
mod rows;
mod table;
mod text;

pub use catalog::{all, find};
pub use datum::{Datum, Unit};
pub use definition::{Category, View};
pub use engine::{Enabled, Options, Viewer};
pub use export::{write_csv, write_json, write_json_list};
pub(crate) use live::Live as Unfreed;
pub use plan::Plan;
pub use recorded_by::{native_option, recording_instructions};
pub use table::{Heading, Table};
pub(crate) use text::cell_text;
pub use text::{Layout, Truncate, write_text};

/// Returns the names in `all` that are similar to `name`, most similar first.
pub fn similar<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let mut found: Vec<(usize, &str)> = all
        .filter_map(|other| {
            let low = other.to_lowercase();
            let far = strsim::levenshtein(beginning(&name), beginning(&low));
            let near = far <= 1 + name.len().min(low.len()) / 4;
            let part = name.len() >= 3 && (low.contains(&name) || name.contains(&low));
            (near || part).then_some((far, other))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, name)| name).take(5).collect()
}

/// Returns the first 64 characters, so that long names of recordings are compared quickly.
fn beginning(name: &str) -> &str {
    name.char_indices().nth(64).map_or(name, |(end, _)| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_view_names_are_suggested() {
        assert_eq!(similar("hot-method", all().map(|v| v.name))[0], "hot-methods");
        assert_eq!(similar("gcpauses", all().map(|v| v.name))[0], "gc-pauses");
        assert!(similar("qqqq", all().map(|v| v.name)).is_empty());
    }
}
