//! Filters that the kernel applies to tracepoints before it takes a sample.
//!
//! All known threads pass, and all whose TID is above the highest one allocated so far. No thread is
//! therefore missed between its start and the time at which the recorder learns of it.

use std::{ffi::CString, fs};

/// Longest text, bytes: the kernel takes a page, and other conditions may come with it.
const LONGEST: usize = 3600;
/// Numbers begin anew here (RESERVED_PIDS of the kernel).
const FIRST: u32 = 300;
/// Threads that may begin before the filters are looked at again and their numbers have begun anew.
const AHEAD: u32 = 4096;

/// Threads that pass: those known and all that begin later, whose numbers are higher, or low where they soon begin anew. So none is
/// missed between its beginning and our hearing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Sorted.
    tids: Vec<u32>,
    /// Numbers above this one belong to threads that begin later.
    last: u32,
    /// And those below this one.
    anew: u32,
}

impl Threads {
    /// Known threads, `last` being the number given out last when their listing began.
    pub fn new(tids: impl IntoIterator<Item = u32>, last: Last) -> Threads {
        let (anew, last) = (last.anew(), last.number);
        let mut tids: Vec<u32> = tids.into_iter().filter(|tid| (anew..=last).contains(tid)).collect();
        tids.sort_unstable();
        tids.dedup();
        Threads { tids, last, anew }
    }

    /// Whether those that begin after `last` may not all pass, or too many do.
    pub fn is_old(&self, last: Last) -> bool {
        self.last > last.number || (self.anew == 0) != (last.anew() == 0)
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

/// The number of a process or thread that the kernel gave out last, and the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    number: u32,
    most: u32,
}

impl Last {
    /// Of now.
    pub fn now() -> Option<Last> {
        let number =
            fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next_back()?.parse().ok()?;
        let most = fs::read_to_string("/proc/sys/kernel/pid_max").ok()?.trim().parse().ok()?;
        Some(Last { number, most })
    }

    /// Below which numbers may soon be given out anew: 0 if they are not near their end.
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
    fn known_ones_and_later_ones() {
        let last = |number| Last { number, most: 1 << 22 };
        let threads = Threads::new([9, 3, 3, 8, 50], last(20));
        assert_eq!(text(&threads), "pid==3||(pid>=8&&pid<=9)||pid>20");
        assert_eq!(text(&Threads::new([], last(20))), "pid>20");
        assert!(!threads.is_old(last(5000)) && threads.is_old(last(19)));
    }

    #[test]
    fn numbers_that_begin_anew() {
        let last = |number| Last { number, most: 32_768 };
        let before = Threads::new([400, 24_000], last(28_672));
        assert_eq!(text(&before), "pid==400||pid==24000||pid>28672");
        // As soon as it is near: it is not looked at again before the end comes.
        let near = Threads::new([400, 24_000], last(28_673));
        assert_eq!(text(&near), "pid<4396||pid==24000||pid>28673");
        assert!(before.is_old(last(28_673)) && !near.is_old(last(32_767)) && near.is_old(last(500)));
    }

    #[test]
    fn many_are_ranges_and_none_is_left_out() {
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
