//! A finished table.

use super::datum::{Datum, Unit};

/// Rows and what they are about.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name of the view.
    pub name: String,
    /// Headline.
    pub title: String,
    /// Of the columns.
    pub headings: Vec<Heading>,
    /// As many values per row as there are headings.
    pub rows: Vec<Vec<Datum>>,
    /// One row, better shown as a list of names and values.
    pub form: bool,
    /// Rows, or events of rows, left out.
    pub more: u64,
    /// Some of these because memory is bounded, not because of a limit.
    pub full: bool,
    /// Events it was made from.
    pub events: u64,
    /// Event types it can be made from.
    pub needs: Vec<String>,
    /// How it came about.
    pub explained: String,
}

/// A column's head.
#[derive(Clone, Debug)]
pub struct Heading {
    /// Text.
    pub title: String,
    /// Of the numbers below.
    pub unit: Unit,
    /// Below are numbers.
    pub number: bool,
    /// No row has a value: the recording does not tell.
    pub empty: bool,
}

impl Table {
    /// Whether nothing was found to show.
    pub fn is_empty(&self) -> bool {
        self.events == 0 || self.rows.is_empty()
    }
}
