//! What the processes of an agent start: workers of nginx, backends of PostgreSQL. Each that lives for a while is a target of its own.

use std::collections::{HashMap, HashSet};
use std::fs;

/// A process as `/proc` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    parent: u32,
    name: String,
    /// Ticks after boot.
    started: u64,
}

/// Descendants that were there the last time.
#[derive(Debug, Default)]
pub struct Family {
    seen: HashSet<(u32, u64)>,
}

impl Family {
    /// Descendants of `roots` that were there the last time, too; without recorders and all that these started: it is theirs.
    pub fn grown(&mut self, roots: &[u32]) -> Vec<u32> {
        let processes = processes();
        let taken = taken(&processes);
        let now = descendants(&processes, roots, &taken);
        let mut grown: Vec<u32> =
            now.iter().filter(|process| self.seen.contains(process)).map(|process| process.0).collect();
        grown.sort_unstable();
        self.seen = now;
        grown
    }
}

fn processes() -> HashMap<u32, Entry> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, entry(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// Of a line of `/proc/PID/stat`; the name may hold anything.
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

/// Processes that another agent has.
fn taken(processes: &HashMap<u32, Entry>) -> HashSet<u32> {
    let own = std::process::id();
    let others = processes.iter().filter(|(pid, entry)| entry.name == RECORDER && **pid != own);
    let words = others.filter_map(|(pid, _)| fs::read(format!("/proc/{pid}/cmdline")).ok());
    words.flat_map(|words| of_agent(&words)).collect()
}

const RECORDER: &str = "flightline";

/// The numbers after `--pid` on the command line of an agent.
fn of_agent(words: &[u8]) -> Vec<u32> {
    let words: Vec<&str> =
        words.split(|b| *b == 0).filter_map(|word| std::str::from_utf8(word).ok()).collect();
    if words.get(1) != Some(&"agent") {
        return Vec::new();
    }
    let ours = words.iter().take_while(|word| **word != "--").collect::<Vec<_>>();
    let pairs = ours.windows(2).filter(|pair| matches!(*pair[0], "--pid" | "-p"));
    pairs.filter_map(|pair| pair[1].parse().ok()).collect()
}

fn descendants(processes: &HashMap<u32, Entry>, roots: &[u32], taken: &HashSet<u32>) -> HashSet<(u32, u64)> {
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
    fn lines_with_any_name_are_understood() {
        let fields: Vec<String> = (5..=52).map(|n| n.to_string()).collect();
        let line = |state: &str| format!("10 (a) b (c) {state} 3 {}", fields.join(" "));
        assert_eq!(entry(&line("S")), Some(Entry { parent: 3, name: "a) b (c".into(), started: 22 }));
        assert_eq!(entry(&line("Z")), None);
        assert_eq!(entry("10 (a"), None);
        let own = processes().remove(&std::process::id()).unwrap();
        assert_eq!(Some(own.started), super::super::process::started(std::process::id()));
    }

    #[test]
    fn what_recorders_start_is_theirs() {
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
        // A loop, as of numbers that are given anew while we look, has an end.
        let tree = HashMap::from([(10, process(11, "a")), (11, process(10, "b"))]);
        assert_eq!(descendants(&tree, &[10], &HashSet::new()), HashSet::from([(11, 7)]));
    }

    #[test]
    fn agents_tell_whom_they_have() {
        assert_eq!(of_agent(b"/bin/flightline\0agent\0--pid\x0042\0-p\x0043\0"), [42, 43]);
        assert_eq!(of_agent(b"flightline\0agent\0--\0x\0--pid\x0042\0"), [0_u32; 0]);
        assert_eq!(of_agent(b"flightline\0record\0--pid\x0042\0"), [0_u32; 0]);
    }

    #[test]
    fn what_lives_for_a_while_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut family = Family::default();
        let own = [std::process::id()];
        assert!(!family.grown(&own).contains(&child.id()));
        assert!(family.grown(&own).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!family.grown(&own).contains(&child.id()));
    }
}
