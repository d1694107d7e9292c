//! Assigns labels to columns.

use std::collections::{BTreeMap, HashMap};

use crate::schema::{MOST_LABELS, label_column};

/// The label columns of a file.
#[derive(Debug, Default)]
pub(super) struct Labels {
    /// Column by key; `None` if the limit was reached.
    known: HashMap<String, Option<usize>>,
    /// Column names and their keys.
    columns: Vec<(String, String)>,
}

impl Labels {
    /// Returns the column of a label; `None` if the label goes to the map column. That includes keys whose
    /// column name is used by another key.
    pub(super) fn column(&mut self, key: &str) -> Option<usize> {
        if let Some(&known) = self.known.get(key) {
            return known;
        }
        let name = label_column(key);
        let taken = self.columns.iter().any(|(column, _)| *column == name);
        let column = (!taken && self.columns.len() < MOST_LABELS).then(|| {
            self.columns.push((name, key.to_owned()));
            self.columns.len() - 1
        });
        // Ten thousand keys need fast lookups; a million need not be cached.
        if self.known.len() < 1 << 16 {
            self.known.insert(key.to_owned(), column);
        }
        column
    }

    /// Returns the column names, in order.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the keys that differ from their column names.
    pub(super) fn renamed(&self) -> BTreeMap<String, String> {
        let renamed = |(name, key): &&(String, String)| {
            label_column(key).len() != key.len() + 6 || !name.ends_with(key.as_str())
        };
        self.columns.iter().filter(renamed).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_column_count_is_limited() {
        let mut labels = Labels::default();
        assert_eq!(labels.column("Task"), Some(0));
        assert_eq!(labels.column("task"), None);
        assert_eq!(labels.column("Task"), Some(0));
        for number in 0..10_000 {
            assert_eq!(labels.column(&format!("k{number}")).is_some(), number < MOST_LABELS - 1);
        }
        assert_eq!(labels.columns().next(), Some("label_task"));
        assert_eq!(labels.renamed(), BTreeMap::from([("label_task".to_owned(), "Task".to_owned())]));
    }
}
