//! Folded text: `root;caller;leaf 42`, one stack a line.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::Arc;

use crate::error::Error;
use crate::model::FrameKind;
use crate::tree::{Builder, Label, LabelId, NONE as ROOT, Tree};

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
pub fn clean(name: &str) -> String {
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
    read_chosen(input, |_| true)
}

/// Reads the stacks of folded text that `choose` wants.
///
/// # Errors
/// As [`read`].
pub fn read_chosen(mut input: impl BufRead, mut choose: impl FnMut(&str) -> bool) -> Result<Tree, Error> {
    let mut reader = Reader::default();
    let mut bytes = Vec::new();
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
        if choose(stack) {
            reader.add(stack, value);
        }
    }
    Ok(reader.builder.finish("samples"))
}

/// Puts stacks into a tree. Neighbours mostly have their first frames in common: those are not looked up again.
#[derive(Default)]
struct Reader {
    builder: Builder,
    labels: HashMap<Arc<str>, LabelId>,
    /// The stack before, and where each frame of it ends, with its node.
    before: String,
    frames: Vec<(usize, u32)>,
}

impl Reader {
    fn add(&mut self, stack: &str, value: u64) {
        let alike = stack.bytes().zip(self.before.bytes()).take_while(|(a, b)| a == b).count();
        let ends_here = |end: usize| stack.as_bytes().get(end).is_none_or(|&next| next == b';');
        let common = self.frames.iter().take_while(|&&(end, _)| end <= alike && ends_here(end)).count();
        self.frames.truncate(common);
        let (mut end, mut node) = self.frames.last().copied().unwrap_or((0, ROOT));
        // Behind the separator, unless this is the first frame.
        let rest = if self.frames.is_empty() { Some(stack) } else { stack.get(end + 1..) };
        let mut first = self.frames.is_empty();
        for frame in rest.into_iter().flat_map(|rest| rest.split(';')) {
            end += frame.len() + usize::from(!first);
            first = false;
            let label = self.label(frame);
            node = self.builder.child(node, label);
            self.frames.push((end, node));
        }
        self.builder.weigh(node, value);
        self.before.clear();
        self.before.push_str(stack);
    }

    fn label(&mut self, frame: &str) -> LabelId {
        if let Some(&label) = self.labels.get(frame) {
            return label;
        }
        let text: Arc<str> = Arc::from(frame);
        let label = self.builder.label(Label { text: text.clone(), module: None, kind: kind_of(frame) });
        self.labels.insert(text, label);
        label
    }
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
    fn frames_that_begin_alike_are_not_taken_for_one_another() {
        let text = "a;b 1\na;bc 2\na;b;c 3\na;b 4\na 5\nab 6\na;b; 7\n;x 8\n;;x 9\n;x;y 10\na;é 11\na;è 12\n";
        let want = ";;x 9\n;x 8\n;x;y 10\na 5\na;b 5\na;b; 7\na;b;c 3\na;bc 2\na;è 12\na;é 11\nab 6\n";
        assert_eq!(round_trip(text), want);
        let turned: Vec<&str> = text.lines().rev().collect();
        assert_eq!(round_trip(&turned.join("\n")), want);
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
