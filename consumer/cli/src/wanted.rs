//! Names of event types and categories given on the command line, and what the recordings declare.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use flightline_consumer::print::{Categories, Patterns};
use flightline_consumer::view::similar;
use jfr_format::read::{Chunk, Class};

/// Names kept to suggest one of; recordings declare a few hundred.
const MOST: usize = 10_000;

/// Names asked for, each with whether something had it.
#[derive(Debug, Default)]
pub struct Wanted {
    events: Vec<(String, Patterns, bool)>,
    categories: Vec<(String, Categories, bool)>,
    known_events: BTreeSet<String>,
    known_categories: BTreeSet<String>,
    last: Option<(u32, usize)>,
}

impl Wanted {
    /// Names of `--events` and `--categories`.
    pub fn new(events: &[String], categories: &[String]) -> Self {
        let event = |name: &String| (name.clone(), Patterns::new(vec![name.clone()]), false);
        let category = |name: &String| (name.clone(), Categories::new(vec![name.clone()]), false);
        Self {
            events: events.iter().map(event).collect(),
            categories: categories.iter().map(category).collect(),
            ..Self::default()
        }
    }

    /// Takes note of the types of a chunk.
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

    /// Another recording follows.
    pub fn next_input(&mut self) {
        self.last = None;
    }

    /// # Errors
    /// A name nothing had.
    pub fn check(&self, within: &str) -> Result<()> {
        if let Some((name, ..)) = self.events.iter().find(|(.., found)| !found) {
            bail!("no event type in {within} is called {name:?}{}", self.hint(name));
        }
        if let Some((name, ..)) = self.categories.iter().find(|(.., found)| !found) {
            let known: Vec<&str> = self.known_categories.iter().map(String::as_str).collect();
            let there = if known.is_empty() { "none".into() } else { known.join(", ") };
            bail!("no event type in {within} is of category {name:?}; there are: {there}");
        }
        Ok(())
    }

    fn hint(&self, name: &str) -> String {
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
            "; flightline summary tells what there is".into()
        } else {
            format!("; did you mean {}?", like.join(", "))
        }
    }
}

/// Whether all characters of `short` stand in `long` in their order.
fn abbreviates(short: &str, long: &str) -> bool {
    let mut long = long.chars();
    short.chars().all(|c| long.any(|other| other.eq_ignore_ascii_case(&c)))
}

fn keep(names: &mut BTreeSet<String>, name: &str) {
    if names.len() < MOST && !names.contains(name) {
        names.insert(name.to_owned());
    }
}
