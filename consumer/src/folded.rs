//! Folded text: `root;caller;leaf 42`, one stack a line. A value may have a fraction (seconds, averages).
//! Differential text, written by difffolded.pl and `flightline diff`, has two values: before and after.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::Arc;

use crate::amount;
use crate::error::Error;
use crate::model::FrameKind;
use crate::tree::{Builder, Label, LabelId, NONE as ROOT, Tree};

/// Approximate number of bytes per write.
const BLOCK: usize = 64 << 10;

/// Writes the stacks of `tree`, in order of names.
///
/// # Errors
/// `out` cannot be written.
pub fn write(tree: &Tree, out: &mut impl Write) -> Result<(), Error> {
    let names: Vec<String> = tree.labels.iter().map(|l| clean(&l.text)).collect();
    let (_, decimals) = amount::decimals(&tree.unit);
    let mut text: Vec<u8> = Vec::with_capacity(2 * BLOCK);
    let mut stacks = tree.stacks();
    while let Some((path, weight)) = stacks.next() {
        for (i, label) in path.iter().enumerate() {
            if i > 0 {
                text.push(b';');
            }
            text.extend_from_slice(names[label.index()].as_bytes());
            // Also inside a line: stacks may be deep and names long.
            if text.len() >= BLOCK {
                out.write_all(&text).map_err(Error::Write)?;
                text.clear();
            }
        }
        text.push(b' ');
        amount::write_decimal(weight, decimals, &mut text).map_err(Error::Write)?;
        text.push(b'\n');
    }
    out.write_all(&text).map_err(Error::Write)?;
    Ok(())
}

/// Replaces the characters that have a meaning in the format.
pub fn clean(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            ';' => ':',
            '\n' | '\r' => ' ',
            c => c,
        })
        .collect()
}

/// Lines of a text that were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Number of lines.
    pub lines: u64,
    /// Number of the first of them, from 1; 0 if there is none.
    pub first: u64,
}

impl Skipped {
    /// Counts a line by its number.
    pub fn add(&mut self, line: u64) {
        self.first = if self.lines == 0 { line } else { self.first };
        self.lines += 1;
    }

    /// A remark for the user; `lines` describes the lines. `None` if no line was skipped.
    pub fn note(&self, lines: &str) -> Option<String> {
        (self.lines > 0).then(|| format!("skipped {lines}: {}, the first is line {}", self.lines, self.first))
    }
}

/// The result of reading folded text.
#[derive(Debug)]
pub struct Folded {
    /// The stacks. If values have fractions, the unit names the divisor of the weights: tenths,
    /// hundredths and so on.
    pub tree: Tree,
    /// The stacks before, if the text is differential; `tree` then has the stacks after, in the same
    /// unit.
    pub before: Option<Tree>,
    /// Lines that are not folded text. Comments (`# …`) are not counted.
    pub skipped: Skipped,
}

/// Reads folded text.
///
/// # Errors
/// `input` cannot be read, or most of its lines are not folded text.
pub fn read(input: impl BufRead) -> Result<Tree, Error> {
    Ok(read_chosen(input, false, |_| true)?.tree)
}

/// Reads the stacks of folded text for which `choose` returns true. `differential` text has two values
/// per line.
///
/// # Errors
/// As for [`read`].
pub fn read_chosen(
    mut input: impl BufRead,
    differential: bool,
    mut choose: impl FnMut(&str) -> bool,
) -> Result<Folded, Error> {
    let (mut after, mut before) = (Reader::default(), Reader::default());
    let (mut taken, mut skipped) = (0, Skipped::default());
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes).map_err(Error::Read)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some(text) = content(&text) else { continue };
        let values = match (split(text), differential) {
            (Some((stack, value)), false) => Some((stack, None, value)),
            (Some((rest, value)), true) => split(rest).map(|(stack, first)| (stack, Some(first), value)),
            (None, _) => None,
        };
        let Some((stack, first, value)) = values else {
            skipped.add(line);
            continue;
        };
        taken += 1;
        if choose(stack) {
            after.add(stack, value);
            if let Some(first) = first {
                before.add(stack, first);
            }
        }
    }
    // This is some other text with numbers.
    if skipped.lines > taken {
        return Err(Error::FoldedLine { line: usize::try_from(skipped.first).unwrap_or(usize::MAX) });
    }
    let decimals = after.decimals.max(before.decimals);
    let finish = |mut reader: Reader| {
        reader.scale_to(decimals);
        reader.builder.finish(amount::with_decimals("samples", decimals))
    };
    Ok(Folded { tree: finish(after), before: differential.then(|| finish(before)), skipped })
}

/// Returns true if all lines of `head`, the beginning of a text, have two values.
pub fn is_differential(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    // The last line may be cut.
    let whole = text.rfind('\n').map_or(&*text, |end| &text[..end]);
    let mut lines = whole.lines().filter_map(content).peekable();
    lines.peek().is_some() && lines.all(|line| split(line).is_some_and(|(rest, _)| split(rest).is_some()))
}

/// Returns a line without its end and a byte order mark; `None` if it is empty or a comment.
fn content(line: &str) -> Option<&str> {
    let line = line.trim_start_matches('\u{feff}').trim_end_matches(['\n', '\r']);
    let is_comment = line == "#" || line.starts_with("# ");
    (!is_comment && !line.trim().is_empty()).then_some(line)
}

/// Adds stacks to a tree. Consecutive stacks mostly share their first frames, which are not looked up
/// again.
#[derive(Default)]
struct Reader {
    builder: Builder,
    labels: HashMap<Arc<str>, LabelId>,
    /// The previous stack, and for each of its frames the end in the text and the node.
    before: String,
    frames: Vec<(usize, u32)>,
    /// Weights are multiples of 10 to the power of minus this number.
    decimals: u32,
}

impl Reader {
    /// Scales the weights to at least this many decimals.
    fn scale_to(&mut self, decimals: u32) {
        if decimals > self.decimals {
            self.builder.multiply(10u64.pow(decimals - self.decimals));
            self.decimals = decimals;
        }
    }

    fn add(&mut self, stack: &str, value: Decimal) {
        self.scale_to(value.decimals);
        let value = value.mantissa.saturating_mul(10u64.pow(self.decimals - value.decimals));
        let alike = stack.bytes().zip(self.before.bytes()).take_while(|(a, b)| a == b).count();
        let ends_here = |end: usize| stack.as_bytes().get(end).is_none_or(|&next| next == b';');
        let common = self.frames.iter().take_while(|&&(end, _)| end <= alike && ends_here(end)).count();
        self.frames.truncate(common);
        let (mut end, mut node) = self.frames.last().copied().unwrap_or((0, ROOT));
        // After the separator, unless this is the first frame.
        let rest = if self.frames.is_empty() { Some(stack) } else { stack.get(end + 1..) };
        let mut first = self.frames.is_empty();
        for frame in rest.into_iter().flat_map(|rest| rest.split(';')) {
            end += frame.len() + usize::from(!first);
            first = false;
            // Austin writes `thread; 250` for a thread without a stack.
            if !frame.is_empty() {
                let label = self.label(frame);
                node = self.builder.child(node, label);
            }
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
        let label = self.builder.label(Label { text: text.clone(), module: None, kind: frame_kind(frame) });
        self.labels.insert(text, label);
        label
    }
}

/// A value: `mantissa` / 10^`decimals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decimal {
    mantissa: u64,
    decimals: u32,
}

/// Decimals of a value; further ones are rounded.
const MOST_DECIMALS: u32 = 9;

impl Decimal {
    fn parse(text: &str) -> Option<Decimal> {
        if let Ok(mantissa) = text.parse() {
            return Some(Decimal { mantissa, decimals: 0 });
        }
        let value: f64 = text.parse().ok()?;
        // In this range, the cast is exact except for the fraction.
        if !(0.0..=9e15).contains(&value) {
            return None;
        }
        // Uses the decimal digits as written: 0.1 has one digit although no binary fraction equals it.
        let digits = format!("{value:.*}", MOST_DECIMALS as usize);
        let (whole, fraction) = digits.split_once('.')?;
        let fraction = fraction.trim_end_matches('0');
        let mantissa = format!("{whole}{fraction}").parse();
        let Ok(mantissa) = mantissa else {
            return Some(Decimal { mantissa: value.round() as u64, decimals: 0 });
        };
        Some(Decimal { mantissa, decimals: fraction.len() as u32 })
    }
}

fn split(line: &str) -> Option<(&str, Decimal)> {
    let (stack, value) = line.trim_end().rsplit_once([' ', '\t'])?;
    Some((stack.trim_end(), Decimal::parse(value)?))
}

/// Suffixes of the stackcollapse programs.
fn frame_kind(frame: &str) -> FrameKind {
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

    fn folded_text(tree: &Tree) -> String {
        let mut out = Vec::new();
        write(tree, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn round_trip(text: &str) -> String {
        folded_text(&read(text.as_bytes()).unwrap())
    }

    #[test]
    fn names_with_spaces_and_fractional_values_are_parsed() {
        let text = "operator new(unsigned long);a b 3\nmain;x 1.6\nmain;x 2\r\n\n";
        assert_eq!(round_trip(text), "main;x 3.6\noperator new(unsigned long);a b 3\n");
    }

    #[test]
    fn fractional_values_are_summed_and_scaled() {
        for (text, want) in [
            ("a 0.3\nb 0.4\nc 0.2\n", "a 0.3\nb 0.4\nc 0.2\n"),
            ("a 1\na 0.25\nb 1e-3\n", "a 1.25\nb 0.001\n"),
            ("a 1.50\na 0.5\n", "a 2\n"),
            ("a 0.0000000001\nb 1\n", "b 1\n"),
            ("a 0.1\nb 18446744073709551615\n", "a 0.1\nb 1844674407370955161.5\n"),
            ("a 999999999999999.5\n", "a 999999999999999.5\n"),
        ] {
            assert_eq!(round_trip(text), want, "{text}");
        }
        let tree = read("a 0.25\nb 1\n".as_bytes()).unwrap();
        assert_eq!((tree.total, tree.unit.as_str()), (125, "samples/100"));
    }

    #[test]
    fn byte_order_marks_and_comments_are_skipped() {
        let text = "\u{feff}main;a 3\n# austin: 3.6\n#\n#private;f 1\n\u{feff}main;b 2\n";
        assert_eq!(round_trip(text), "#private;f 1\nmain;a 3\nmain;b 2\n");
    }

    #[test]
    fn invalid_lines_are_skipped_and_counted() {
        let folded =
            read_chosen("main;a 3\nthis is no stack\nx\nmain;b 2\n".as_bytes(), false, |_| true).unwrap();
        assert_eq!((folded.skipped.lines, folded.skipped.first, folded.tree.total), (2, 2, 5));
    }

    #[test]
    fn differential_text_yields_two_trees() {
        let text = "# of difffolded.pl\nmain;a 3 4\nmain;b 2 0.5\n";
        assert!(is_differential(text.as_bytes()) && is_differential(b"a 3 4\nb"));
        for other in ["", "# x\n", "main;a 3\n", "main;a 3 4\nmain;b 3\n"] {
            assert!(!is_differential(other.as_bytes()), "{other}");
        }
        let folded = read_chosen(text.as_bytes(), true, |_| true).unwrap();
        let of = |tree: &Tree| (folded_text(tree), tree.unit.clone());
        assert_eq!(of(&folded.tree), ("main;a 4\nmain;b 0.5\n".into(), "samples/10".into()));
        assert_eq!(of(&folded.before.unwrap()), ("main;a 3\nmain;b 2\n".into(), "samples/10".into()));
    }

    #[test]
    fn frames_with_common_prefix_are_distinct() {
        let text = "a;b 1\na;bc 2\na;b;c 3\na;b 4\na 5\nab 6\na;b; 7\n;x 8\n;;x 9\n;x;y 10\na;é 11\na;è 12\n";
        let want = "a 5\na;b 12\na;b;c 3\na;bc 2\na;è 12\na;é 11\nab 6\nx 17\nx;y 10\n";
        assert_eq!(round_trip(text), want);
        let turned: Vec<&str> = text.lines().rev().collect();
        assert_eq!(round_trip(&turned.join("\n")), want);
    }

    #[test]
    fn parse_error_has_line_number() {
        for (text, at) in [("a;b", 1), ("\n# c\nb x", 3), ("a -1", 1), ("a nan", 1), ("a 1e300", 1)] {
            match read(text.as_bytes()) {
                Err(Error::FoldedLine { line }) => assert_eq!(line, at, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn separators_in_names_are_replaced() {
        let mut builder = Builder::default();
        let label = Label { text: "a;b\nc".into(), module: None, kind: FrameKind::Native };
        let label = builder.label(label);
        builder.add([label], 1);
        let mut out = Vec::new();
        write(&builder.finish("samples"), &mut out).unwrap();
        assert_eq!(out, b"a:b c 1\n");
    }
}
