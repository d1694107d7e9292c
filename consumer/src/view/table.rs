//! A finished table.

use super::datum::{Datum, Unit};

/// A table with its description.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name of the view.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Headings of the columns.
    pub headings: Vec<Heading>,
    /// Rows; each has one value per heading.
    pub rows: Vec<Vec<Datum>>,
    /// A single row, to be shown as a list of names and values.
    pub form: bool,
    /// Number of rows, or of events of rows, that were left out.
    pub more: u64,
    /// True if some of these were left out because of the memory limit.
    pub full: bool,
    /// Number of events used.
    pub events: u64,
    /// Event types that it can be computed from.
    pub needs: Vec<String>,
    /// Description of how it was computed.
    pub explained: String,
}

/// A column's heading.
#[derive(Clone, Debug)]
pub struct Heading {
    /// Text.
    pub title: String,
    /// Unit of the column's numbers.
    pub unit: Unit,
    /// True if the column has numbers.
    pub number: bool,
    /// True if no row has a value, because it is not recorded.
    pub empty: bool,
}

impl Table {
    /// Returns true if there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.events == 0 || self.rows.is_empty()
    }
}
