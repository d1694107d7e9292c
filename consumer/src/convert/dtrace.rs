//! Stacks and their counts as `dtrace` prints `@[stack()] = count()`.
//!
//! ```text
//!               libc.so.1`read+0xa        frames, leaf first
//!               app`main+0x20
//!                12                       count
//! ```

use std::collections::BTreeMap;
use std::io::BufRead;

use super::folded_text;
use super::perf::{tidy, without_offset};
use crate::error::Error;
use crate::folded::clean;

/// Returns true if a text has a stack with a count below it, and nothing but such stacks after its first empty line.
pub(crate) fn is(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    let mut frames = 0;
    for line in head.lines().skip_while(|line| !line.trim().is_empty()).map(str::trim) {
        if frames > 0 && line.parse::<u64>().is_ok() {
            return true;
        }
        let is_address =
            line.strip_prefix("0x").is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok());
        match line {
            "" => {}
            _ if line.contains('`') || is_address => frames += 1,
            _ => return false,
        }
    }
    false
}

/// Reads all stacks as folded text, in order of stacks.
///
/// # Errors
/// `input` cannot be read.
pub(super) fn read(mut input: impl BufRead) -> Result<Vec<u8>, Error> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    let mut frames: Vec<String> = Vec::new();
    let mut bytes = Vec::new();
    let mut is_header = true;
    loop {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes).map_err(Error::Read)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        let line = text.trim();
        if line.is_empty() {
            is_header = false;
        } else if is_header {
            continue;
        } else if let Ok(count) = line.parse::<u64>() {
            frames.reverse();
            if !frames.is_empty() {
                let sum = stacks.entry(frames.join(";")).or_default();
                *sum = sum.saturating_add(count);
            }
            frames.clear();
        } else {
            frames.push(name(line));
        }
    }
    Ok(folded_text(&stacks))
}

/// A frame without its offset and arguments.
fn name(line: &str) -> String {
    let line = without_offset(line);
    match line.split_once('`') {
        Some((module, function)) => clean(&format!("{module}`{}", tidy(function))),
        None => clean(line),
    }
}

#[cfg(test)]
mod tests {
    use super::super::for_each_change;
    use super::*;

    const TEXT: &str = "\
CPU     ID                    FUNCTION:NAME
  0  64091                        :tick-60s


              libc.so.1`read+0xa
              app`load(int)+0x12
              app`main+0x20
               12

              app`main+0x31
                3

              0x7fff1
              app`main+0x31
                1
";

    #[test]
    fn stacks_are_leaf_first() {
        assert!(is(TEXT.as_bytes()));
        let folded = String::from_utf8(read(TEXT.as_bytes()).unwrap()).unwrap();
        assert_eq!(folded, "app`main 3\napp`main;0x7fff1 1\napp`main;app`load;libc.so.1`read 12\n");
    }

    #[test]
    fn arbitrary_input_is_read_without_error() {
        for_each_change(TEXT.as_bytes(), b" `+\n9(;\0\xff", |changed| {
            is(changed);
            read(changed).unwrap();
        });
    }
}
