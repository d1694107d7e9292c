//! Checks names of event types and categories against what recordings declare.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use flightline_consumer::print::{Categories, Patterns};
use flightline_consumer::view::similar;
use jfr_format::read::{Chunk, Class};

/// Maximum number of names retained for suggestions; recordings declare a few hundred.
const MOST: usize = 10_000;

/// Requested names, and whether each was found.
#[derive(Debug, Default)]
pub struct EventFilter {
    events: Vec<(String, Patterns, bool)>,
    categories: Vec<(String, Categories, bool)>,
    known_events: BTreeSet<String>,
    known_categories: BTreeSet<String>,
    last: Option<(u32, usize)>,
}

impl EventFilter {
    /// Creates the set from `--event` and `--categories`.
    pub fn new(events: &[String], categories: &[String]) -> Self {
        let event = |name: &String| (name.clone(), Patterns::new(vec![name.clone()]), false);
        let category = |name: &String| (name.clone(), Categories::new(vec![name.clone()]), false);
        Self {
            events: events.iter().map(event).collect(),
            categories: categories.iter().map(category).collect(),
            ..Self::default()
        }
    }

    /// Records the types of a chunk.
    pub fn see(&mut self, chunk: &Chunk) {
        let classes = chunk.types.classes();
        let now = Some((chunk.index.0, classes.len()));
        if self.last == now || self.events.is_empty() && self.categories.is_empty() {
            return;
        }
        self.last = now;
        for class in classes.iter().filter(|class| class.is_event()) {
            self.category(class);
            for (_, pattern, found) in &mut self.events {
                *found |= pattern.choose(&class.name);
            }
            keep(&mut self.known_events, &class.name);
        }
    }

    fn category(&mut self, class: &Class) {
        for (_, pattern, found) in &mut self.categories {
            *found |= pattern.choose(class);
        }
        let of = class.annotation("jdk.jfr.Category");
        for (_, name) in of.into_iter().flat_map(|category| &category.values) {
            keep(&mut self.known_categories, name);
        }
    }

    /// Starts another recording.
    pub fn next_input(&mut self) {
        self.last = None;
    }

    /// # Errors
    /// Returns an error if a requested name exists in none of the inputs.
    pub fn check(&self, within: &str) -> Result<()> {
        match self.unmet(within).into_iter().next() {
            Some(unmet) => bail!(unmet),
            None => Ok(()),
        }
    }

    /// Returns a message for each name that was not found.
    pub fn unmet(&self, within: &str) -> Vec<String> {
        let events = self
            .events
            .iter()
            .filter(|(.., found)| !found)
            .map(|(name, ..)| format!("no event type named {name:?} in {within}{}", self.hint(name)));
        let categories = self.categories.iter().filter(|(.., found)| !found).map(|(name, ..)| {
            let known = || self.known_categories.iter().map(String::as_str);
            let like = similar(name, known());
            let hint = match &like[..] {
                [] if known().next().is_none() => "; none has a category".to_owned(),
                [] => format!("; categories: {}", known().collect::<Vec<_>>().join(", ")),
                like => format!("; did you mean {}?", like.join(", ")),
            };
            format!("no event type of category {name:?} in {within}{hint}")
        });
        events.chain(categories).collect()
    }

    fn hint(&self, name: &str) -> String {
        if name.is_empty() {
            return "; omit the option to select all".into();
        }
        let simple = |full: &str| full.rsplit('.').next().unwrap_or_default().to_owned();
        let all = || self.known_events.iter().map(String::as_str);
        let near = |name: &str, known: BTreeSet<String>| -> Vec<String> {
            similar(name, known.iter().map(String::as_str)).into_iter().map(str::to_owned).collect()
        };
        let mut like = Vec::new();
        if name.contains('.') {
            like = near(name, self.known_events.clone());
        }
        if like.is_empty() {
            like = near(&simple(name), all().map(simple).collect());
        }
        if like.is_empty() {
            let mut names: Vec<String> = all().map(simple).filter(|other| abbreviates(name, other)).collect();
            names.sort_by_key(String::len);
            like = names;
        }
        like.truncate(3);
        if like.is_empty() {
            "; `flightline summary` lists the events".into()
        } else {
            format!("; did you mean {}?", like.join(", "))
        }
    }
}

/// Returns true if `short` consists of the beginnings of words in `long`, as `TPark` of `ThreadPark`.
fn abbreviates(short: &str, long: &str) -> bool {
    let mut rest = long.chars().peekable();
    short.chars().enumerate().all(|(at, c)| {
        let next = rest.peek().is_some_and(|next| next.eq_ignore_ascii_case(&c));
        if next && at > 0 {
            rest.next();
            return true;
        }
        rest.any(|other| other.is_ascii_uppercase() && other.eq_ignore_ascii_case(&c))
    })
}

fn keep(names: &mut BTreeSet<String>, name: &str) {
    if names.len() < MOST && !names.contains(name) {
        names.insert(name.to_owned());
    }
}
