//! Lists processors and threads.

use std::{fs, path::Path};

/// Returns the threads of a process.
pub fn list_threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the online processors.
pub fn online() -> Vec<u32> {
    let text = fs::read_to_string(Path::new("/sys/devices/system/cpu/online")).unwrap_or_default();
    let cpus = ranges(text.trim());
    if cpus.is_empty() {
        let count = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        return (0..count).collect();
    }
    cpus
}

/// Parses a list of ranges: `0-3,8` → 0 1 2 3 8.
fn ranges(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        (last < 1 << 16).then_some(first..=last)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_lists_are_parsed() {
        assert_eq!(ranges("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(ranges("0"), [0]);
        assert_eq!(ranges(""), [0u32; 0]);
        assert_eq!(ranges("x-y,4-2,7"), [7]);
        assert!(!online().is_empty());
    }
}
