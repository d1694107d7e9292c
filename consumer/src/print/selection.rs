//! Selects the events to print.

use jfr_format::read::{Chunk, Class};

use super::{Patterns, glob};
use crate::time_range::Bound;

/// The conditions that an event must meet.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Event types by name.
    pub events: Patterns,
    /// Event types by category.
    pub categories: Categories,
    /// Start of the time range, inclusive.
    pub from: Option<Bound>,
    /// End of the time range, exclusive.
    pub to: Option<Bound>,
    /// End of the recording in nanoseconds since 1970, for bounds relative to it. Without it, such bounds
    /// are ignored.
    pub end: Option<i64>,
}

impl Selection {
    /// Returns true if events of this type can be selected.
    pub fn chooses(&self, class: &Class) -> bool {
        self.events.choose(&class.name) && self.categories.choose(class)
    }

    /// Returns the time range in nanoseconds since 1970; `start` is that of the first chunk.
    pub(super) fn range(&self, start: i64) -> Range {
        let at = |bound: Bound| match (bound.needs_end(), self.end) {
            (true, None) => None,
            (_, end) => Some(bound.at(start, end.unwrap_or(start))),
        };
        Range {
            from: self.from.and_then(at).unwrap_or(i64::MIN),
            to: self.to.and_then(at).unwrap_or(i64::MAX),
        }
    }
}

/// A time range in nanoseconds since 1970; the end is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    from: i64,
    to: i64,
}

impl Range {
    pub(super) const ALL: Self = Self { from: i64::MIN, to: i64::MAX };

    /// Returns true if an event between these ticks overlaps the range.
    pub(super) fn meets(self, chunk: &Chunk, start: i64, end: i64) -> bool {
        chunk.epoch_nanos(end.max(start)) >= self.from
            && (self.to == i64::MAX || chunk.epoch_nanos(start) < self.to)
    }
}

/// Category names: a full name (`Java Application`), a glob (`Java*`), or the initials of a name with
/// several words (`JVM` for `Java Virtual Machine`), as in the JDK's tool. An empty list matches
/// everything.
#[derive(Clone, Debug, Default)]
pub struct Categories(Vec<String>);

impl Categories {
    /// Creates it from a list of names.
    pub fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    /// Returns true if the type has one of the categories. As in the JDK, a type without a category is
    /// `Uncategorized`.
    pub fn choose(&self, class: &Class) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let of = class.annotation("jdk.jfr.Category").filter(|category| !category.values.is_empty());
        let Some(of) = of else { return self.matches("Uncategorized") };
        of.values.iter().any(|(_, category)| self.matches(category))
    }

    fn matches(&self, category: &str) -> bool {
        let capitals = category.contains(' ').then(|| capitals(category));
        self.0.iter().any(|name| glob(name, category) || capitals.as_ref() == Some(name))
    }
}

/// Returns the initials that are capital letters.
fn capitals(words: &str) -> String {
    words.split_whitespace().filter_map(|word| word.chars().next()).filter(|c| c.is_uppercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn category_patterns_are_matched() {
        let check = |name: &str, category: &str, want: bool| {
            assert_eq!(Categories::new(vec![name.into()]).matches(category), want, "{name} on {category}");
        };
        check("Java Application", "Java Application", true);
        check("Java*", "Java Virtual Machine", true);
        check("JVM", "Java Virtual Machine", true);
        check("JV?", "Java Virtual Machine", false);
        check("GC", "GC", true);
        check("GC", "Garbage Collector", true);
        check("Flight Recorder", "Flight recorder", false);
        check("FR", "Flight recorder", false);
        check("F", "Flight recorder", true);
        check("F", "Flight", false);
        check("Java", "Java Application", false);
    }
}
