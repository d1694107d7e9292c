//! `perf script`, by inferno.

use std::collections::HashMap;
use std::io::{BufRead, Write};

use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};

use crate::error::Error;

/// Whether this is how the output of `perf script` begins: a line of a sample, then an indented one with an address.
pub(super) fn is(head: &[u8]) -> bool {
    first(&String::from_utf8_lossy(head)).is_some()
}

/// The line of the first sample.
fn first(head: &str) -> Option<&str> {
    let lines: Vec<&str> = head.lines().filter(|line| !line.starts_with('#')).take(64).collect();
    let frame = |line: &str| {
        let indented = line.starts_with([' ', '\t']);
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| word.len() > 2 && u64::from_str_radix(word, 16).is_ok());
        indented && address.is_some() && words.next().is_some()
    };
    let sample = |line: &str| !line.starts_with(char::is_whitespace) && line.trim_end().ends_with(':');
    lines.windows(2).find(|pair| sample(pair[0]) && frame(pair[1])).map(|pair| pair[0])
}

/// What weights count: the event, of which lines tell how much a sample stands for, or samples.
pub(super) fn unit(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let mut words = first(&head)?.split_whitespace().rev();
    // `cycles:u:`: how it was counted is no part of the name.
    let event = words.next()?.split(':').next()?;
    words.next()?.parse::<u64>().ok()?;
    Some(if ["cpu-clock", "task-clock"].contains(&event) { "ns" } else { event }.to_owned())
}

/// The event of a line of a sample, without how it was counted.
fn event(line: &str) -> Option<&str> {
    let is =
        !line.starts_with(char::is_whitespace) && !line.starts_with('#') && line.trim_end().ends_with(':');
    line.split_whitespace().next_back().filter(|_| is)?.split(':').next()
}

/// How many samples there are of each event, most first.
pub(super) fn events(script: &[u8]) -> Vec<(String, u64)> {
    let mut counts: HashMap<&str, u64> = HashMap::new();
    let lines = script.split(|&byte| byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(event).for_each(|name| *counts.entry(name).or_default() += 1);
    let mut counts: Vec<_> = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    counts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
}

/// Folded text of the samples of one event, of the first if none is named, with the command as the root; kernel code is marked
/// `_[k]`, code made at run time `_[j]`.
pub(super) fn read(input: &mut impl BufRead, event: Option<&str>, out: &mut impl Write) -> Result<(), Error> {
    let mut options = Options::default();
    options.event_filter = event.map(str::to_owned);
    options.annotate_kernel = true;
    options.annotate_jit = true;
    options.nthreads = 1;
    Folder::from(options).collapse(input, out).map_err(Error::Read)
}

#[cfg(test)]
mod tests {
    use super::super::{Text, folded};
    use crate::folded as text;

    const SCRIPT: &str = "\
# perf script of a program
worker 4711/4712 [001] 12.345678:  10101010 cycles:
\tffffffff81000010 do_syscall_64+0x10 ([kernel.kallsyms])
\t          401020 inner(int)+0x20 (/usr/bin/app)
\t          401000 main+0x0 (/usr/bin/app)

worker 4711/4712 [001] 12.355678:  10101010 cycles:
\t          401020 inner(int)+0x20 (/usr/bin/app)
\t          401000 main+0x0 (/usr/bin/app)

";

    #[test]
    fn samples_of_perf_script() {
        let fold = |script: &str| {
            let Text { text: script, unit } =
                folded(Box::new(std::io::Cursor::new(script.to_owned()))).unwrap();
            let mut out = Vec::new();
            text::write(&text::read(script).unwrap(), &mut out).unwrap();
            (String::from_utf8(out).unwrap(), unit)
        };
        let (folded, unit) = fold(SCRIPT);
        // inferno leaves parameters out.
        let want = "worker;main;inner 10101010\nworker;main;inner;do_syscall_64_[k] 10101010\n";
        assert_eq!((folded.as_str(), unit.as_deref()), (want, Some("cycles")));
        assert_eq!(fold(&SCRIPT.replace("cycles:", "cpu-clock:pppH:")).1.as_deref(), Some("ns"));
        let (folded, unit) = fold(&SCRIPT.replace("10101010 ", ""));
        assert_eq!((folded, unit), (want.replace("10101010", "1"), None));
    }

    #[test]
    fn folded_text_is_passed_on() {
        for text in ["a;b 1\n", "", "x: 1\n", "a b c:\n d e\n", "\u{0}\u{ff}"] {
            let mut out = Vec::new();
            let mut passed = folded(Box::new(text.as_bytes())).unwrap().text;
            std::io::Read::read_to_end(&mut passed, &mut out).unwrap();
            assert_eq!(out, text.as_bytes());
        }
    }
}
