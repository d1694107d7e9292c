//! Current activity by thread, as a table and as a flame graph of block characters, from the samples of the
//! last intervals.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;

use flightline_consumer::live::Sample;

use crate::diagnostics;

/// Maximum number of distinct stacks per interval; others are merged.
const MOST: usize = 20_000;
/// Maximum depth of a stack.
const DEEPEST: usize = 200;
/// Name of the merged stacks.
const OTHERS: &str = "[others]";

type Names = Vec<Arc<str>>;

/// A thread, its samples, and its functions with self and total samples.
pub type ThreadRows = (String, u64, Vec<(String, u64, u64)>);

/// Samples by thread and stack, outermost function first.
#[derive(Debug, Default)]
pub struct Hot {
    turns: VecDeque<HashMap<(Arc<str>, Names), u64>>,
    length: usize,
}

impl Hot {
    /// Creates a table over `length` intervals.
    pub fn new(length: usize) -> Self {
        Self { turns: VecDeque::from([HashMap::new()]), length: length.max(1) }
    }

    /// Adds a sample.
    pub fn take(&mut self, sample: &Sample) {
        let Some(turn) = self.turns.back_mut() else { return };
        let thread = sample
            .thread
            .as_deref()
            .map_or_else(|| "unknown".into(), |t| format!("{} ({})", t.name(), t.os_id));
        let frames = sample.stack.iter().flat_map(|stack| stack.frames.iter().rev().take(DEEPEST));
        let mut key = (thread.into(), frames.map(|frame| frame.function.clone()).collect());
        if turn.len() >= MOST && !turn.contains_key(&key) {
            key = (OTHERS.into(), vec![OTHERS.into()]);
        }
        *turn.entry(key).or_default() += sample.weight.samples;
    }

    /// Starts the next interval.
    pub fn turn(&mut self) {
        self.turns.push_back(HashMap::new());
        while self.turns.len() > self.length {
            self.turns.pop_front();
        }
    }

    fn all(&self) -> impl Iterator<Item = (&Arc<str>, &Names, u64)> {
        self.turns.iter().flatten().map(|((thread, names), samples)| (thread, names, *samples))
    }

    /// Total number of samples.
    pub fn total(&self) -> u64 {
        self.all().map(|(_, _, samples)| samples).sum()
    }

    /// Returns the threads, most samples first, with their functions by self samples: name, self, total.
    pub fn threads(&self) -> Vec<ThreadRows> {
        type Functions<'a> = HashMap<&'a str, (u64, u64)>;
        let mut threads: HashMap<&str, (u64, Functions<'_>)> = HashMap::new();
        for (thread, names, samples) in self.all() {
            let of = threads.entry(thread).or_default();
            of.0 += samples;
            let mut seen: Vec<&str> = Vec::new();
            for (at, name) in names.iter().enumerate() {
                let function = of.1.entry(name).or_default();
                function.0 += if at + 1 == names.len() { samples } else { 0 };
                // Count a recursive function once per stack.
                if !seen.contains(&&**name) {
                    function.1 += samples;
                    seen.push(name);
                }
            }
        }
        let mut list: Vec<_> = threads
            .into_iter()
            .map(|(thread, (samples, functions))| {
                let mut rows: Vec<_> =
                    functions.into_iter().map(|(name, (own, total))| (name.to_owned(), own, total)).collect();
                rows.sort_by(|a, b| (b.1, b.2, &a.0).cmp(&(a.1, a.2, &b.0)));
                (thread.to_owned(), samples, rows)
            })
            .collect();
        list.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        list
    }

    /// Draws a flame graph, root at the top, within the given columns and lines, optionally with one tower
    /// per thread.
    pub fn flame(&self, columns: usize, lines: usize, per_thread: bool, colours: bool) -> String {
        let mut root = Node::default();
        for (thread, names, samples) in self.all() {
            root.total += samples;
            let mut node = &mut root;
            let tower = per_thread.then_some(thread);
            for name in tower.into_iter().chain(names).take(lines) {
                node = node.below.entry(name.clone()).or_default();
                node.total += samples;
            }
        }
        let mut rows = vec![Vec::new(); lines];
        root.place(0, columns.max(1), 0, &mut rows);
        let mut text = String::new();
        for row in rows.iter().take_while(|row| !row.is_empty()) {
            let mut at = 0;
            for cell in row {
                text.extend(std::iter::repeat_n(' ', cell.from - at));
                cell.write(colours, &mut text);
                at = cell.to;
            }
            text.push('\n');
        }
        text
    }
}

#[derive(Debug, Default)]
struct Node {
    total: u64,
    below: BTreeMap<Arc<str>, Node>,
}

/// A block.
#[derive(Clone, Debug)]
struct Cell {
    from: usize,
    to: usize,
    name: Arc<str>,
}

impl Node {
    fn place(&self, from: usize, to: usize, depth: usize, rows: &mut [Vec<Cell>]) {
        if depth >= rows.len() || self.total == 0 {
            return;
        }
        let mut before = 0u64;
        let column = |samples: u64| {
            let share = u128::from(samples) * (to - from) as u128 / u128::from(self.total);
            from + usize::try_from(share).unwrap_or(0).min(to - from)
        };
        for (name, node) in &self.below {
            let (begin, end) = (column(before), column(before + node.total));
            before += node.total;
            if end > begin {
                if let Some(row) = rows.get_mut(depth) {
                    row.push(Cell { from: begin, to: end, name: name.clone() });
                }
                node.place(begin, end, depth + 1, rows);
            }
        }
    }
}

impl Cell {
    fn write(&self, colours: bool, text: &mut String) {
        let width = self.to - self.from;
        // Assume that each character takes one column.
        let label: String = diagnostics::plain(&self.name).chars().take(width - 1).collect();
        let fill = width - 1 - label.chars().count();
        if colours {
            // A name always has the same warm colour.
            let warm = [208, 214, 220, 209, 215, 221, 202, 216];
            let hash =
                self.name.bytes().fold(5381usize, |hash, byte| hash.wrapping_mul(33) ^ usize::from(byte));
            let colour = warm.get(hash % warm.len()).copied().unwrap_or(214);
            let _ = write!(text, "\x1b[48;5;{colour};38;5;16m▏{label}{}\x1b[0m", " ".repeat(fill));
        } else {
            let _ = write!(text, "▌{label}{}", "▄".repeat(fill));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(stacks: &[(&str, &[&str], u64)]) -> Hot {
        let mut hot = Hot::new(3);
        for (thread, names, samples) in stacks {
            let names = names.iter().map(|name| Arc::from(*name)).collect();
            *hot.turns.back_mut().unwrap().entry((Arc::from(*thread), names)).or_default() += samples;
        }
        hot
    }

    #[test]
    fn flame_block_width_is_proportional_to_weight() {
        let hot = hot(&[
            ("a (1)", &["main", "parse"], 30),
            ("a (1)", &["main", "x\x1b[2J"], 10),
            ("b (2)", &["run"], 40),
        ]);
        assert_eq!(hot.flame(16, 5, false, false), "▌main▄▄▄▌run▄▄▄▄\n▌parse▌x\n");
        assert_eq!(hot.flame(16, 5, true, false).lines().next().unwrap(), "▌a (1)▄▄▌b (2)▄▄");
        assert_eq!(hot.flame(16, 1, false, false).lines().count(), 1);
        let coloured = hot.flame(40, 5, false, true);
        assert!(coloured.contains("\x1b[48;5;") && !coloured.contains("\x1b[2J"), "{coloured:?}");
        assert_eq!(Hot::new(2).flame(16, 5, false, false), "");
    }

    #[test]
    fn functions_are_counted_per_thread_until_window_expires() {
        let mut hot = hot(&[("a (1)", &["f", "g", "f"], 3), ("a (1)", &["f", "g"], 1), ("b (2)", &["f"], 9)]);
        let threads = hot.threads();
        assert_eq!((threads[0].0.as_str(), threads[0].1), ("b (2)", 9));
        assert_eq!(threads[1].2, [("f".to_owned(), 3, 4), ("g".to_owned(), 1, 4)]);
        hot.turn();
        assert_eq!(hot.total(), 13);
        hot.turn();
        hot.turn();
        assert_eq!(hot.total(), 0);
    }
}
