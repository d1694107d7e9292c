//! Filters that the kernel applies to tracepoints before it writes a sample.
//!
//! All known threads pass, and all whose TID is above the highest one allocated so far. No thread is
//! therefore missed between its start and the time at which the recorder learns of it.

use std::{ffi::CString, fs};

/// Limit of the text, bytes: the kernel accepts one page, which other conditions share.
const LONGEST: usize = 3600;
/// After the highest TID, the kernel continues here (RESERVED_PIDS).
const FIRST: u32 = 300;
/// Number of threads that may start between the wrap of TIDs and the next update of the filters.
const AHEAD: u32 = 4096;

/// TIDs accepted by the kernel filter: all known threads, and every TID above the highest allocated so far,
/// or from 1 if TIDs are about to wrap. So new threads are recorded from their start, before the drain knows
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Known TIDs, sorted.
    tids: Vec<u32>,
    /// TIDs above this one belong to new threads.
    last: u32,
    /// TIDs below this one also belong to new threads, after a wrap.
    anew: u32,
}

impl Threads {
    /// Returns a filter of known threads. `last` is the TID allocated last before they were listed.
    pub fn new(tids: impl IntoIterator<Item = u32>, last: Last) -> Threads {
        let (anew, last) = (last.anew(), last.number);
        let mut tids: Vec<u32> = tids.into_iter().filter(|tid| (anew..=last).contains(tid)).collect();
        tids.sort_unstable();
        tids.dedup();
        Threads { tids, last, anew }
    }

    /// Returns true if the filter may miss threads that start after `last`, or passes too many.
    pub fn is_old(&self, last: Last) -> bool {
        self.last > last.number || (self.anew == 0) != (last.anew() == 0)
    }

    /// Returns the filter on a field: as exact as the limit permits, never too narrow. If it is too long,
    /// neighbouring TIDs become ranges.
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
            let anew = match self.anew {
                0 => String::new(),
                anew => format!("{field}<{anew}||"),
            };
            let text = format!("{anew}{}{field}>{}", parts.collect::<String>(), self.last);
            if text.len() <= LONGEST {
                return CString::new(text).unwrap_or_default();
            }
            gap *= 2;
        }
    }
}

/// The TID or PID that the kernel allocated last, and the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    number: u32,
    most: u32,
}

impl Last {
    /// Reads the current values.
    pub fn now() -> Option<Last> {
        let number =
            fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next_back()?.parse().ok()?;
        let most = fs::read_to_string("/proc/sys/kernel/pid_max").ok()?.trim().parse().ok()?;
        Some(Last { number, most })
    }

    /// Returns the bound below which TIDs may be reused soon; 0 if a wrap is not near.
    fn anew(self) -> u32 {
        let left = self.most.saturating_sub(self.number);
        if left < AHEAD { (FIRST + AHEAD).min(self.number) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(threads: &Threads) -> String {
        threads.text("pid").into_string().unwrap()
    }

    #[test]
    fn filter_accepts_known_and_later_tids() {
        let last = |number| Last { number, most: 1 << 22 };
        let threads = Threads::new([9, 3, 3, 8, 50], last(20));
        assert_eq!(text(&threads), "pid==3||(pid>=8&&pid<=9)||pid>20");
        assert_eq!(text(&Threads::new([], last(20))), "pid>20");
        assert!(!threads.is_old(last(5000)) && threads.is_old(last(19)));
    }

    #[test]
    fn filter_accepts_low_tids_before_wraparound() {
        let last = |number| Last { number, most: 32_768 };
        let before = Threads::new([400, 24_000], last(28_672));
        assert_eq!(text(&before), "pid==400||pid==24000||pid>28672");
        // The filter accepts low TIDs as soon as a wrap is near, because it may not be updated before the
        // wrap.
        let near = Threads::new([400, 24_000], last(28_673));
        assert_eq!(text(&near), "pid<4396||pid==24000||pid>28673");
        assert!(before.is_old(last(28_673)) && !near.is_old(last(32_767)) && near.is_old(last(500)));
    }

    #[test]
    fn many_tids_are_merged_into_ranges_without_omissions() {
        let tids = (1..20_000).map(|i| i * 37 + i % 11);
        let threads = Threads::new(tids.clone(), Last { number: 1 << 21, most: 1 << 22 });
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
    fn last_thread_number_is_read_from_the_kernel() {
        let last = Last::now().unwrap();
        assert!(last.number > 0 && last.number <= last.most);
    }
}
