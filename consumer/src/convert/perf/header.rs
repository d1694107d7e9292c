//! Headers of samples.

use super::frame::{self, Frame};

/// A sample's first line. Every field but the command may be left out by `perf script -F`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    /// Thread name; may contain spaces, semicolons and colons.
    pub command: &'a str,
    /// Process id.
    pub pid: Option<&'a str>,
    /// Thread id.
    pub tid: Option<&'a str>,
    /// True if the line has a time, which other lines rarely have.
    pub has_time: bool,
    /// The number of events that the sample represents.
    pub period: Option<u64>,
    /// Event name with modifiers.
    pub event: Option<&'a str>,
    /// The text after the event, or the time if there is no event: the fields of a tracepoint, an address, or the frame.
    rest: &'a str,
}

/// A word and its position.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    start: usize,
    end: usize,
}

fn words(line: &str) -> Vec<Word<'_>> {
    let word = |text| {
        let start = str::as_ptr(text).addr() - line.as_ptr().addr();
        Word { text, start, end: start + text.len() }
    };
    line.split_ascii_whitespace().map(word).collect()
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `1234.567890:`
fn is_time(text: &str) -> bool {
    text.strip_suffix(':')
        .and_then(|text| text.split_once('.'))
        .is_some_and(|(s, part)| digits(s) && digits(part))
}

/// `2026-11-27`, of `-F +tod`.
fn is_date(text: &str) -> bool {
    text.len() == 10 && text.split('-').count() == 3 && text.split('-').all(digits)
}

/// `07:42:42.027778`, of `-F +tod`.
fn is_clock_time(text: &str) -> bool {
    text.split(':').count() == 3 && text.split([':', '.']).count() == 4 && text.split([':', '.']).all(digits)
}

/// `7`, `7/8` or `-1`.
fn is_thread(text: &str) -> bool {
    let number = |text: &str| digits(text.strip_prefix('-').unwrap_or(text));
    text.split_once('/').map_or_else(|| number(text), |(pid, tid)| number(pid) && number(tid))
}

/// `[003]`
fn is_processor(text: &str) -> bool {
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).is_some_and(digits)
}

impl<'a> Header<'a> {
    /// Parses a line. Any text can be a command.
    pub fn parse(line: &'a str) -> Header<'a> {
        let words = words(line);
        let time = words.iter().position(|word| is_time(word.text));
        // The event is the first word with a colon at its end: after the time, or after the command if
        // there is no time.
        let from = time.map_or(1, |time| time + 1);
        let is_event = |word: &&Word<'_>| word.text.len() > 1 && word.text.ends_with(':');
        let event = words.iter().skip(from).position(|word| is_event(&word)).map(|at| from + at);
        let mut header = Header { has_time: time.is_some(), ..Header::default() };
        let mut left = &words[..time.or(event).unwrap_or(words.len())];
        if let Some(event) = event {
            header.event = Some(words[event].text.trim_end_matches(':'));
            header.rest = line[words[event].end..].trim();
            header.period = match time {
                Some(time) => words[time + 1..event].iter().find_map(|word| word.text.parse().ok()),
                None => take_period(&mut left),
            };
        } else if let Some(time) = time {
            header.rest = line[words[time].end..].trim();
        }
        let follows_thread = |before: &[Word<'_>]| {
            before.last().is_some_and(|word| is_thread(word.text) || is_processor(word.text))
        };
        while let [before @ .., last] = left
            && (is_processor(last.text)
                || is_clock_time(last.text)
                || is_date(last.text)
                || is_flags(last.text) && follows_thread(before))
        {
            left = before;
        }
        if let [before @ .., last] = left
            && (is_thread(last.text) && !before.is_empty())
        {
            (header.pid, header.tid) = match last.text.split_once('/') {
                Some((pid, tid)) => (Some(pid), Some(tid)),
                None => (None, Some(last.text)),
            };
            left = before;
        }
        header.command = match left {
            [first, ..] => &line[first.start..left[left.len() - 1].end],
            [] => "",
        };
        header
    }

    /// The frame at the end of the line, which perf writes without `-g`.
    pub fn frame(&self) -> Option<Frame<'a>> {
        frame::at_end(self.rest)
    }
}

/// `perf script -F +misc`: `U`, `K`, `MKH`.
fn is_flags(text: &str) -> bool {
    !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| b"KUHGgEMFSsLi".contains(&byte))
}

/// Without a time, the number before the event is a period if it is as wide as one: `%10lu`, where a thread id is `%7d`.
fn take_period(left: &mut &[Word<'_>]) -> Option<u64> {
    let [before @ .., last] = *left else { return None };
    let period = last.text.parse().ok()?;
    let previous = before.last()?;
    let follows_thread = before.len() > 1 && is_thread(previous.text);
    (follows_thread || last.end - previous.end > 10).then(|| {
        *left = before;
        period
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(line: &str) -> (String, Option<&str>, Option<&str>, Option<u64>, Option<&str>) {
        let header = Header::parse(line);
        (header.command.to_owned(), header.pid, header.tid, header.period, header.event)
    }

    #[test]
    fn optional_header_fields_may_be_missing() {
        for (line, command, pid, tid, period, event) in [
            ("java 25607 4794564.109216: cycles:", "java", None, Some("25607"), None, Some("cycles")),
            (
                "V8 Worker 24636/25607 [000] 94.109216: 77 cycles:u:",
                "V8 Worker",
                Some("24636"),
                Some("25607"),
                Some(77),
                Some("cycles:u"),
            ),
            (
                "prog 1 [000] 1.0: 1000 cpu_core/cycles/P: ",
                "prog",
                None,
                Some("1"),
                Some(1000),
                Some("cpu_core/cycles/P"),
            ),
            (":-1 -1 [003] 609678.457663: 1 cycles: ", ":-1", None, Some("-1"), Some(1), Some("cycles")),
            ("a;b 1 [003] 609678.457663: 1 cycles: ", "a;b", None, Some("1"), Some(1), Some("cycles")),
            (
                "kworker/0:1-ev 9 [000] 1.5: 3 cycles:",
                "kworker/0:1-ev",
                None,
                Some("9"),
                Some(3),
                Some("cycles"),
            ),
            (
                "prog 7959 [000]  3.8: sched:sched_switch: prev_comm=x ==> y: 1",
                "prog",
                None,
                Some("7959"),
                None,
                Some("sched:sched_switch"),
            ),
            (
                "            prog  7985  3234.162944:    1001001 cpu-clock:pppH:      5582 w+0x5c (/p)",
                "prog",
                None,
                Some("7985"),
                Some(1_001_001),
                Some("cpu-clock:pppH"),
            ),
            ("prog cycles: ", "prog", None, None, None, Some("cycles")),
            ("prog       1 cycles: ", "prog", None, Some("1"), None, Some("cycles")),
            ("prog       1000 cycles: ", "prog", None, None, Some(1000), Some("cycles")),
            ("prog     1/7       1000 cycles: ", "prog", Some("1"), Some("7"), Some(1000), Some("cycles")),
            ("prog     7 MK [000] 1.2: cycles: ", "prog", None, Some("7"), None, Some("cycles")),
            ("prog 7/8 [000] K     1.2: 5 cycles:", "prog", Some("7"), Some("8"), Some(5), Some("cycles")),
            (
                "prog 9 2026-11-27 07:42:42.02 1.2: 5 cycles:",
                "prog",
                None,
                Some("9"),
                Some(5),
                Some("cycles"),
            ),
            ("prog 9 1.2:   7f00 strcmp+0x3 (/lib/x)", "prog", None, Some("9"), None, None),
            ("prog ", "prog", None, None, None, None),
            ("my prog     1/7 ", "my prog", Some("1"), Some("7"), None, None),
            ("12 1 [000] 1.0: cycles:", "12", None, Some("1"), None, Some("cycles")),
            ("1.5: cycles:", "", None, None, None, Some("cycles")),
            ("", "", None, None, None, None),
        ] {
            assert_eq!(parts(line), (command.to_owned(), pid, tid, period, event), "{line}");
        }
    }

    #[test]
    fn frame_without_call_chain_follows_the_event() {
        let names = |line: &str| Header::parse(line).frame().map(|frame| frame.names().join(" "));
        assert_eq!(names("p 1 2.0: 3 cycles:  5582fec462a5 w+0x5c (/bin/prog)").as_deref(), Some("w"));
        assert_eq!(names("p 1 2.0: 3 cycles:  7f00 5582fec462a5 w+0x5c (/bin/prog)").as_deref(), Some("w"));
        assert_eq!(
            names("p 1 2.0: 3 mem: 7f00 8 |OP LOAD|BLK  N/A 5 0 55d0a1 main+0x1 (/x)").as_deref(),
            Some("main")
        );
        assert_eq!(
            names("p 1 2.0: 3 faults: 7f00aa data+0x1 (/x) 7f00bb f(int) const+0x3d (/x)").as_deref(),
            Some("f")
        );
        assert_eq!(names("p 1 2.0:    7f00 strcmp+0x3 (/x)").as_deref(), Some("strcmp"));
        assert_eq!(
            names("p 1 2.0: sched:sched_switch: prev_comm=x ffff81 go+0x3 ([kernel])").as_deref(),
            Some("go_[k]")
        );
        assert_eq!(names("p 1 2.0: block:rq: 8,0 W 0 () 12345678 + 8 [kworker]"), None);
        assert_eq!(names("p 1 2.0: sched:sched_switch: prev_comm=x"), None);
        assert_eq!(names("p 1 2.0: 3 cycles: "), None);
        assert_eq!(names("p 1 2.0: 3 cycles: 7f00"), None);
    }
}
