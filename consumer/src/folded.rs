//! Folded text: `root;caller;leaf 42`, one stack a line.

use std::io::{BufRead, Write};
use std::sync::Arc;

use crate::error::Error;
use crate::model::FrameKind;
use crate::tree::{Builder, Label, LabelId, Tree};

/// Bytes written at a time, about.
const BLOCK: usize = 64 << 10;

/// Writes the stacks of `tree`, in order of names.
///
/// # Errors
/// `out` cannot be written.
pub fn write(tree: &Tree, out: &mut impl Write) -> Result<(), Error> {
    let names: Vec<String> = tree.labels.iter().map(|l| clean(&l.text)).collect();
    let mut text: Vec<u8> = Vec::with_capacity(2 * BLOCK);
    let mut stacks = tree.stacks();
    while let Some((path, weight)) = stacks.next() {
        for (i, label) in path.iter().enumerate() {
            if i > 0 {
                text.push(b';');
            }
            text.extend_from_slice(names[label.index()].as_bytes());
            // Within a line, too: stacks may be deep and names long.
            if text.len() >= BLOCK {
                out.write_all(&text).map_err(Error::Write)?;
                text.clear();
            }
        }
        writeln!(text, " {weight}").map_err(Error::Write)?;
    }
    out.write_all(&text).map_err(Error::Write)?;
    Ok(())
}

/// A name without the characters that have a meaning in the format.
pub(crate) fn clean(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            ';' => ':',
            '\n' | '\r' => ' ',
            c => c,
        })
        .collect()
}

/// Reads folded text. Values may have a fraction; it is rounded.
///
/// # Errors
/// `input` cannot be read, or a line is not folded text.
pub fn read(input: impl BufRead) -> Result<Tree, Error> {
    read_marked(input, |text| Some(text.to_owned()))
}

/// Reads folded text; `choose` may change a stack or leave it out.
///
/// # Errors
/// As [`read`].
pub fn read_marked(
    mut input: impl BufRead,
    mut choose: impl FnMut(&str) -> Option<String>,
) -> Result<Tree, Error> {
    let mut builder = Builder::default();
    let mut bytes = Vec::new();
    let mut path: Vec<LabelId> = Vec::new();
    for line in 1.. {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes).map_err(Error::Read)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        if text.trim().is_empty() {
            continue;
        }
        let (stack, value) = split(text).ok_or(Error::FoldedLine { line })?;
        let Some(stack) = choose(stack) else { continue };
        path.clear();
        path.extend(stack.split(';').map(|frame| {
            let label = Label { text: Arc::from(frame), module: None, kind: kind_of(frame) };
            builder.label(label)
        }));
        builder.add(path.iter().copied(), value);
    }
    Ok(builder.finish("samples"))
}

fn split(line: &str) -> Option<(&str, u64)> {
    let (stack, value) = line.trim_end().rsplit_once([' ', '\t'])?;
    let value = match value.parse::<u64>() {
        Ok(value) => value,
        Err(_) => {
            let value: f64 = value.parse().ok()?;
            // The range check makes the cast exact but for the fraction.
            if !(0.0..=9e15).contains(&value) {
                return None;
            }
            value.round() as u64
        }
    };
    Some((stack.trim_end(), value))
}

/// The suffixes of the stackcollapse family.
fn kind_of(frame: &str) -> FrameKind {
    match frame.len().checked_sub(4).and_then(|at| frame.get(at..)) {
        Some("_[k]") => FrameKind::Kernel,
        Some("_[j]" | "_[1]") => FrameKind::Compiled,
        Some("_[i]") => FrameKind::Inlined,
        Some("_[0]") => FrameKind::Interpreted,
        _ if frame.starts_with('[') && frame.ends_with(']') => FrameKind::Marker,
        _ => FrameKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> String {
        let mut out = Vec::new();
        write(&read(text.as_bytes()).unwrap(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn names_with_spaces_and_fractions() {
        let text = "operator new(unsigned long);a b 3\nmain;x 1.6\nmain;x 2\r\n\n";
        assert_eq!(round_trip(text), "main;x 4\noperator new(unsigned long);a b 3\n");
    }

    #[test]
    fn what_is_no_folded_text_is_told_by_line() {
        for (text, at) in [("a;b", 1), ("a 1\nb x", 2), ("a -1", 1), ("a nan", 1), ("a 1e300", 1)] {
            match read(text.as_bytes()) {
                Err(Error::FoldedLine { line }) => assert_eq!(line, at, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn separators_in_names_do_not_split_them() {
        let mut builder = Builder::default();
        let label = Label { text: "a;b\nc".into(), module: None, kind: FrameKind::Native };
        let label = builder.label(label);
        builder.add([label], 1);
        let mut out = Vec::new();
        write(&builder.finish("samples"), &mut out).unwrap();
        assert_eq!(out, b"a:b c 1\n");
    }
}
