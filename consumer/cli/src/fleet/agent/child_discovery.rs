//! Finds the children of an agent's processes: workers of nginx, backends of PostgreSQL. A child that lives
//! for a while becomes a target of its own.

use std::collections::{HashMap, HashSet};
use std::fs;

use crate::discovery::processes::{Entry, RECORDER, descendants, processes};

/// Descendants seen in the previous scan.
#[derive(Debug, Default)]
pub struct Family {
    seen: HashSet<(u32, u64)>,
}

impl Family {
    /// Returns descendants of `roots` that were also seen in the previous scan. Excludes recorders and their
    /// descendants, which are recorded already.
    pub fn grown(&mut self, roots: &[u32]) -> Vec<u32> {
        let processes = processes();
        let taken = other_agents_pids(&processes);
        let now = descendants(&processes, roots, &taken);
        let mut grown: Vec<u32> =
            now.iter().filter(|process| self.seen.contains(process)).map(|process| process.0).collect();
        grown.sort_unstable();
        self.seen = now;
        grown
    }
}

/// Returns processes that belong to other agents.
fn other_agents_pids(processes: &HashMap<u32, Entry>) -> HashSet<u32> {
    let own = std::process::id();
    let others = processes.iter().filter(|(pid, entry)| entry.name == RECORDER && **pid != own);
    let words = others.filter_map(|(pid, _)| fs::read(format!("/proc/{pid}/cmdline")).ok());
    words.flat_map(|words| agent_pids(&words)).collect()
}

/// Returns the PIDs after `--pid` on an agent's command line.
fn agent_pids(words: &[u8]) -> Vec<u32> {
    let words: Vec<&str> =
        words.split(|b| *b == 0).filter_map(|word| std::str::from_utf8(word).ok()).collect();
    if words.get(1) != Some(&"agent") {
        return Vec::new();
    }
    let ours = words.iter().take_while(|word| **word != "--").collect::<Vec<_>>();
    let pairs = ours.windows(2).filter(|pair| matches!(*pair[0], "--pid" | "-p"));
    pairs.filter_map(|pair| pair[1].parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_list_and_single_lookup_agree_on_start_time() {
        let own = processes().remove(&std::process::id()).unwrap();
        assert_eq!(Some(own.started), super::super::process::started(std::process::id()));
    }

    #[test]
    fn agent_command_line_is_parsed_into_pids() {
        assert_eq!(agent_pids(b"/bin/flightline\0agent\0--pid\x0042\0-p\x0043\0"), [42, 43]);
        assert_eq!(agent_pids(b"flightline\0agent\0--\0x\0--pid\x0042\0"), [0_u32; 0]);
        assert_eq!(agent_pids(b"flightline\0record\0--pid\x0042\0"), [0_u32; 0]);
    }

    #[test]
    fn child_is_found_on_second_scan_and_dropped_at_exit() {
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
