//! The processes of this machine and their descendants.

use std::collections::{HashMap, HashSet};
use std::fs;

/// The name of recorders.
pub const RECORDER: &str = "flightline";

/// A process as `/proc` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub parent: u32,
    pub name: String,
    /// Ticks after boot.
    pub started: u64,
}

/// Lists all processes but those that have ended.
pub fn processes() -> HashMap<u32, Entry> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, entry(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// Parses a line of `/proc/PID/stat`; the name may contain anything. Returns `None` for a process that has
/// ended.
fn entry(stat: &str) -> Option<Entry> {
    let (_, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    Some(Entry { parent, name: name.to_owned(), started: fields.nth(17)?.parse().ok()? })
}

/// Returns the descendants of `roots` with their start times, without recorders, `taken` and the descendants
/// of these.
pub fn descendants(
    processes: &HashMap<u32, Entry>,
    roots: &[u32],
    taken: &HashSet<u32>,
) -> HashSet<(u32, u64)> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, entry) in processes {
        children.entry(entry.parent).or_default().push(*pid);
    }
    let mut found = HashSet::new();
    let mut left: Vec<u32> = roots.to_vec();
    while let Some(parent) = left.pop() {
        for pid in children.remove(&parent).into_iter().flatten() {
            let Some(entry) = processes.get(&pid) else { continue };
            if entry.name == RECORDER || taken.contains(&pid) {
                continue;
            }
            left.push(pid);
            if !roots.contains(&pid) {
                found.insert((pid, entry.started));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: u32, name: &str) -> Entry {
        Entry { parent, name: name.to_owned(), started: 7 }
    }

    #[test]
    fn stat_line_with_parentheses_in_name_is_parsed() {
        let fields: Vec<String> = (5..=52).map(|n| n.to_string()).collect();
        let line = |state: &str| format!("10 (a) b (c) {state} 3 {}", fields.join(" "));
        assert_eq!(entry(&line("S")), Some(Entry { parent: 3, name: "a) b (c".into(), started: 22 }));
        assert_eq!(entry(&line("Z")), None);
        assert_eq!(entry("10 (a"), None);
    }

    #[test]
    fn descendants_exclude_recorders_children_and_joined_processes() {
        let tree = HashMap::from([
            (10, process(1, "nginx")),
            (11, process(10, "nginx")),
            (12, process(11, "sh")),
            (13, process(10, "flightline")),
            (14, process(13, "server")),
            (15, process(10, "joined")),
            (16, process(15, "of joined")),
            (20, process(1, "other")),
        ]);
        let found = descendants(&tree, &[10], &HashSet::from([15]));
        assert_eq!(found, HashSet::from([(11, 7), (12, 7)]));
        // Terminates on cycles, which PID reuse during the scan can cause.
        let tree = HashMap::from([(10, process(11, "a")), (11, process(10, "b"))]);
        assert_eq!(descendants(&tree, &[10], &HashSet::new()), HashSet::from([(11, 7)]));
    }
}
