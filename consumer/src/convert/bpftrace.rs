//! Maps of bpftrace with stacks as keys, as it prints them at its end.
//!
//! ```text
//! @samples[bash,                key before the stack
//!     leaf+12                   frames, leaf first
//!     main+34
//! , 42]: 7                      keys behind the stack, value
//! ```
//!
//! Keys that are no stacks become frames below the stack. The first of two stacks is on top: `@[kstack, ustack]`.
//! Reference: the section "Map printing" of bpftrace's documentation, and the output of its versions 0.9 to 0.21.

use std::collections::BTreeMap;
use std::io::BufRead;

use super::folded_text;
use super::perf::frame_names;
use crate::error::Error;
use crate::folded::{Skipped, clean};

/// Stacks and their values.
#[derive(Debug, Default)]
pub(super) struct Maps {
    stacks: BTreeMap<String, u64>,
    /// Lines outside of stacks that are neither empty nor about the probes.
    skipped: Skipped,
}

/// Returns true if a text has a map with a stack in its key.
pub(crate) fn is(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    let lines: Vec<&str> = head.lines().collect();
    lines.windows(2).any(|pair| {
        let indented = pair[1].starts_with([' ', '\t']) && !pair[1].trim().is_empty();
        opening_keys(pair[0]).is_some() && (indented || closing(pair[1]).is_some())
    })
}

/// The keys of a line that opens a stack: `@name[key, key, `.
fn opening_keys(line: &str) -> Option<&str> {
    let (name, keys) = line.strip_prefix('@')?.split_once('[')?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_open = keys.trim_end().is_empty() || keys.trim_end().ends_with(',');
    (is_name && is_open).then_some(keys)
}

/// The keys and the value of a line that closes a stack: `, key]: 7`.
fn closing(line: &str) -> Option<(&str, u64)> {
    let (keys, value) = line.trim_end().rsplit_once("]: ")?;
    Some((keys, value.parse().ok()?))
}

fn keys(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(", ").map(|key| key.trim().trim_matches(',')).filter(|key| !key.is_empty()).map(clean)
}

/// Reads all maps.
///
/// # Errors
/// `input` cannot be read.
pub(super) fn read(mut input: impl BufRead) -> Result<Maps, Error> {
    let mut maps = Maps::default();
    // The keys and the frames, leaf first, of the stack that is being read.
    let mut open: Option<(Vec<String>, Vec<String>)> = None;
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes).map_err(Error::Read)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        let line = text.trim_end_matches(['\n', '\r']);
        if let Some(first) = opening_keys(line) {
            open = Some((keys(first).collect(), Vec::new()));
        } else if let Some((roots, frames)) = &mut open {
            match closing(line) {
                Some((last, value)) => {
                    roots.extend(keys(last));
                    let stack: Vec<&str> =
                        roots.iter().chain(frames.iter().rev()).map(String::as_str).collect();
                    if !stack.is_empty() {
                        let sum = maps.stacks.entry(stack.join(";")).or_default();
                        *sum = sum.saturating_add(value);
                    }
                    open = None;
                }
                None => frames.extend(names(line)),
            }
        } else if !line.trim().is_empty() && !line.starts_with("Attach") && line != "^C" {
            maps.skipped.add(number);
        }
    }
    Ok(maps)
}

/// The functions of a frame: `name+12` or, as perf writes them, `ffff12 name+12 (/lib/x.so)`.
fn names(line: &str) -> Vec<String> {
    let line = line.trim();
    if matches!(line, "" | ",") {
        return Vec::new();
    }
    let without_offset = |name: &str| match name.rsplit_once('+') {
        Some((name, offset)) if !name.is_empty() && offset.bytes().all(|byte| byte.is_ascii_digit()) => {
            clean(name)
        }
        _ => clean(name),
    };
    match frame_names(line) {
        Some(names) => names.iter().map(|name| without_offset(name)).collect(),
        None => vec![without_offset(line)],
    }
}

impl Maps {
    /// Remarks for the user.
    pub fn notes(&self) -> Vec<String> {
        self.skipped.note("lines outside of maps with stacks").into_iter().collect()
    }

    /// Folded text, in order of stacks.
    pub fn folded(&self) -> Vec<u8> {
        folded_text(&self.stacks)
    }
}

#[cfg(test)]
mod tests {
    use super::super::for_each_change;
    use super::*;

    fn folded(text: &str) -> String {
        assert!(is(text.as_bytes()), "{text}");
        String::from_utf8(read(text.as_bytes()).unwrap().folded()).unwrap()
    }

    #[test]
    fn keys_become_root_frames() {
        let text = "Attaching 1 probe...\n^C\n\n@[\n    do_syscall_64+93\n    entry+68\n]: 12\n@[\n    a+1\n    main+2\n, dd]: 3\n\
                    @by_comm[bash, 7, \n    a+1\n    main+2\n]: 4\n@[\n    do_syscall_64+9\n    entry+6\n]: 1\n";
        assert_eq!(folded(text), "bash;7;main;a 4\ndd;main;a 3\nentry;do_syscall_64 13\n");
    }

    #[test]
    fn first_stack_is_the_leaf_end() {
        let text = "@[\n    kernel_leaf+1\n    entry+2\n, \n    leaf+1\n    main+2\n, dd]: 5\n";
        assert_eq!(folded(text), "dd;main;leaf;entry;kernel_leaf 5\n");
    }

    #[test]
    fn perf_style_frames_are_parsed() {
        let text = "@[\n\t7f10 read+18 (/usr/lib/libc.so.6)\n\t55aa main+2 (/bin/dd)\n]: 5\n";
        assert_eq!(folded(text), "main;read 5\n");
    }

    #[test]
    fn arbitrary_input_is_read_without_error() {
        let text = b"@[\n    a+1\n    main+2\n, dd]: 3\n@x[1, \n]: 4\n@y: 7\n";
        assert_eq!(read(&text[..]).unwrap().skipped.lines, 1);
        for_each_change(text, b"[]+,\n9\0\xff", |changed| {
            is(changed);
            read(changed).unwrap().folded();
        });
    }
}
