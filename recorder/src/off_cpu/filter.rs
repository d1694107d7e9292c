//! Filters that the kernel applies to tracepoints before it takes a sample.

use std::{ffi::CString, fs};

/// Longest text that the kernel takes, bytes.
const LONGEST: usize = 4000;

/// Threads that pass: those known and all that begin later, whose numbers are higher. So none is missed between its beginning and
/// our hearing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Sorted.
    tids: Vec<u32>,
    /// Numbers above this one belong to threads that begin later.
    last: u32,
}

impl Threads {
    /// Known threads, `last` being the number given out last when their listing began.
    pub fn new(tids: impl IntoIterator<Item = u32>, last: u32) -> Threads {
        let mut tids: Vec<u32> = tids.into_iter().filter(|tid| *tid <= last).collect();
        tids.sort_unstable();
        tids.dedup();
        Threads { tids, last }
    }

    /// Numbers above this one pass.
    pub fn last(&self) -> u32 {
        self.last
    }

    /// The filter on a field: as exact as fits, never too narrow. Where it does not fit, neighbours become ranges.
    pub fn text(&self, field: &str) -> CString {
        let mut ranges: Vec<(u32, u32)> = self.tids.iter().map(|tid| (*tid, *tid)).collect();
        let mut gap = 1;
        loop {
            ranges.dedup_by(|next, before| {
                let near = next.0 - before.1 <= gap;
                if near {
                    before.1 = next.1;
                }
                near
            });
            let parts = ranges.iter().map(|(from, to)| match to - from {
                0 => format!("{field}=={from}||"),
                _ => format!("({field}>={from}&&{field}<={to})||"),
            });
            let text = format!("{}{field}>{}", parts.collect::<String>(), self.last);
            if text.len() <= LONGEST {
                return CString::new(text).unwrap_or_default();
            }
            gap *= 2;
        }
    }
}

/// The number of a process or thread that the kernel gave out last.
pub fn last_number() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(threads: &Threads) -> String {
        threads.text("pid").into_string().unwrap()
    }

    #[test]
    fn known_ones_and_later_ones() {
        let threads = Threads::new([9, 3, 3, 8, 50], 20);
        assert_eq!(text(&threads), "pid==3||(pid>=8&&pid<=9)||pid>20");
        assert_eq!(threads.last(), 20);
        assert_eq!(text(&Threads::new([], 20)), "pid>20");
    }

    #[test]
    fn many_are_ranges_and_none_is_left_out() {
        let tids = (1..20_000).map(|i| i * 37 + i % 11);
        let threads = Threads::new(tids.clone(), 1 << 22);
        let text = text(&threads);
        assert!(text.len() <= LONGEST);
        let ranges: Vec<(u32, u32)> = text
            .split("||")
            .filter_map(|part| {
                let part = part.trim_matches(['(', ')']).replace("pid", "");
                let (from, to) = part.strip_prefix(">=")?.split_once("&&<=")?;
                Some((from.parse().ok()?, to.parse().ok()?))
            })
            .collect();
        for tid in tids {
            let exact = text.contains(&format!("pid=={tid}||"));
            assert!(exact || ranges.iter().any(|(from, to)| (*from..=*to).contains(&tid)), "{tid}");
        }
    }

    #[test]
    fn the_kernel_tells_its_last_number() {
        let before = last_number().unwrap();
        assert!(before > 0);
    }
}
