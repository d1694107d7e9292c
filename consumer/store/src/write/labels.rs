//! Which labels become columns.

use std::collections::{BTreeMap, HashMap};

use crate::schema::{MOST_LABELS, label_column};

/// The columns of labels that a file has so far.
#[derive(Debug, Default)]
pub(super) struct Labels {
    /// By key: its column, or none if there are enough of them.
    known: HashMap<String, Option<usize>>,
    /// Names of the columns, and the keys they are of.
    columns: Vec<(String, String)>,
}

impl Labels {
    /// The column of a label; `None`: it goes to those that have none. A key whose column another key has goes there as well.
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
        // Ten thousand keys are asked for by name each time; a million need not be remembered.
        if self.known.len() < 1 << 16 {
            self.known.insert(key.to_owned(), column);
        }
        column
    }

    /// Names of the columns, in order.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// Keys that the names of columns do not tell.
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
    fn there_are_columns_for_some_and_room_for_all() {
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
