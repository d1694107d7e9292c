//! Tables for people: fitted to a width, with right-aligned numbers and their units.

use std::io::{self, Write};

use super::datum::{Datum, Unit};
use super::table::Table;
use crate::format::time;

/// Which part of a text that does not fit is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truncate {
    /// The beginning.
    Beginning,
    /// The end.
    #[default]
    End,
}

/// Options for the layout.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Maximum number of characters per line; `None`: no limit.
    pub width: Option<usize>,
    /// Maximum number of lines per cell.
    pub cell_height: usize,
    /// Which part of a text that does not fit is cut.
    pub truncate: Truncate,
    /// Emphasize headings with terminal escape sequences.
    pub colours: bool,
    /// Describe how each table was computed.
    pub verbose: bool,
}

impl Default for Layout {
    fn default() -> Self {
        Self { width: None, cell_height: 1, truncate: Truncate::End, colours: false, verbose: false }
    }
}

/// Number of spaces between columns.
const GAP: usize = 2;
/// Minimum width of a text column.
const NARROWEST: usize = 8;

/// Writes one table.
///
/// # Errors
/// `out` cannot be written.
pub fn write_text(table: &Table, layout: &Layout, out: &mut dyn Write) -> io::Result<()> {
    let (bold, plain) = if layout.colours { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    writeln!(out, "{bold}{}{plain}", clean(&table.title))?;
    if layout.verbose {
        writeln!(out, "{}", clean_lines(&table.explained))?;
    }
    writeln!(out)?;
    if table.form {
        form(table, layout, out)?;
    } else {
        Grid::new(table, layout).write(table, layout, out)?;
    }
    if table.more > 0 {
        writeln!(out, "… and {} more (--limit shows more)", grouped(&table.more.to_string()))?;
    }
    writeln!(out)
}

fn form(table: &Table, layout: &Layout, out: &mut dyn Write) -> io::Result<()> {
    let Some(row) = table.rows.first() else { return Ok(()) };
    let told = || table.headings.iter().zip(row).filter(|(heading, _)| !heading.empty);
    let widest = told().map(|(heading, _)| width(&heading.title)).max().unwrap_or(0);
    for (heading, datum) in told() {
        let pad = " ".repeat(widest - width(&heading.title));
        let room = layout.width.map_or(usize::MAX, |all| all.saturating_sub(widest + GAP).max(NARROWEST));
        let lines = cell(datum, room, layout.cell_height.max(5), layout.truncate);
        for (at, line) in lines.iter().enumerate() {
            if at == 0 {
                writeln!(out, "{}:{pad} {line}", clean(&heading.title))?;
            } else {
                writeln!(out, "{} {line}", " ".repeat(widest + 1))?;
            }
        }
    }
    Ok(())
}

/// The shown columns and their widths.
struct Grid {
    /// Position in the table, width, and whether the column has numbers.
    columns: Vec<(usize, usize, bool)>,
}

impl Grid {
    fn new(table: &Table, layout: &Layout) -> Self {
        let mut columns = Vec::new();
        for (at, heading) in table.headings.iter().enumerate().filter(|(_, heading)| !heading.empty) {
            let widths = table.rows.iter().filter_map(|row| row.get(at)).map(|datum| match datum {
                Datum::Stack(frames) => {
                    frames.iter().take(layout.cell_height).map(|frame| width(frame)).max().unwrap_or(0)
                }
                other => width(&text(other)),
            });
            let wide = widths.max().unwrap_or(0).max(width(&heading.title));
            columns.push((at, wide, heading.number));
        }
        let mut grid = Self { columns };
        if let Some(width) = layout.width {
            grid.fit(width);
        }
        grid
    }

    /// Reduces the widest text columns until all columns fit.
    fn fit(&mut self, width: usize) {
        let gaps = self.columns.len().saturating_sub(1) * GAP;
        let mut over =
            (self.columns.iter().map(|(_, wide, _)| wide).sum::<usize>() + gaps).saturating_sub(width);
        while over > 0 {
            let texts = || self.columns.iter().filter(|(_, wide, number)| !number && *wide > NARROWEST);
            let Some(widest) = texts().map(|&(_, wide, _)| wide).max() else { return };
            let second = texts().map(|&(_, wide, _)| wide).filter(|&wide| wide < widest).max();
            let same = texts().filter(|&&(_, wide, _)| wide == widest).count();
            let down_to = second.unwrap_or(NARROWEST).max(NARROWEST);
            let each = (widest - down_to).min(over.div_ceil(same)).max(1);
            for (_, wide, number) in &mut self.columns {
                if !*number && *wide == widest && over > 0 {
                    let take = each.min(over);
                    *wide -= take;
                    over -= take;
                }
            }
        }
    }

    fn write(&self, table: &Table, layout: &Layout, out: &mut dyn Write) -> io::Result<()> {
        let (bold, plain) = if layout.colours { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let heads: Vec<Vec<String>> = self
            .columns
            .iter()
            .map(|&(at, wide, _)| vec![shortened(&clean(&table.headings[at].title), wide, Truncate::End)])
            .collect();
        out.write_all(bold.as_bytes())?;
        self.lines(&heads, plain, out)?;
        let rule: Vec<Vec<String>> =
            self.columns.iter().map(|&(_, wide, _)| vec!["-".repeat(wide)]).collect();
        self.lines(&rule, "", out)?;
        for row in &table.rows {
            let cells: Vec<Vec<String>> = self
                .columns
                .iter()
                .map(|&(at, wide, _)| {
                    cell(row.get(at).unwrap_or(&Datum::Null), wide, layout.cell_height, layout.truncate)
                })
                .collect();
            self.lines(&cells, "", out)?;
        }
        Ok(())
    }

    fn lines(&self, cells: &[Vec<String>], end: &str, out: &mut dyn Write) -> io::Result<()> {
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        for at in 0..height {
            let mut line = String::new();
            for (&(_, wide, number), cell) in self.columns.iter().zip(cells) {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                let text = cell.get(at).map_or("", String::as_str);
                let pad = " ".repeat(wide.saturating_sub(width(text)));
                line.push_str(&if number { pad + text } else { text.to_owned() + &pad });
            }
            writeln!(out, "{}{end}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Returns the lines of a cell.
fn cell(datum: &Datum, wide: usize, height: usize, truncate: Truncate) -> Vec<String> {
    let height = height.max(1);
    if let Datum::Stack(frames) = datum {
        return frames.iter().take(height).map(|frame| shortened(&clean(frame), wide, truncate)).collect();
    }
    let text = text(datum);
    if height == 1 || width(&text) <= wide {
        return vec![shortened(&text, wide, truncate)];
    }
    let all: Vec<char> = text.chars().collect();
    let mut lines: Vec<String> = all.chunks(wide.max(1)).map(|line| line.iter().collect()).collect();
    if lines.len() > height {
        match truncate {
            Truncate::End => {
                lines.truncate(height - 1);
                let kept: usize = (height - 1) * wide;
                lines.push(shortened(&all[kept..].iter().collect::<String>(), wide, truncate));
            }
            Truncate::Beginning => {
                let kept = all.len() - (height - 1) * wide;
                lines = all[kept..].chunks(wide.max(1)).map(|line| line.iter().collect()).collect();
                lines.insert(0, shortened(&all[..kept].iter().collect::<String>(), wide, truncate));
            }
        }
    }
    lines
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn shortened(text: &str, wide: usize, truncate: Truncate) -> String {
    let length = width(text);
    if length <= wide {
        return text.to_owned();
    }
    let keep = wide.saturating_sub(1);
    match truncate {
        Truncate::End => text.chars().take(keep).chain(['…']).collect(),
        Truncate::Beginning => ['…'].into_iter().chain(text.chars().skip(length - keep)).collect(),
    }
}

/// Removes control characters: a recording must not control the terminal.
fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => clean.push_str("\\n"),
            '\t' => clean.push_str("\\t"),
            '\r' => clean.push_str("\\r"),
            c if c.is_control() => clean.push(char::REPLACEMENT_CHARACTER),
            c => clean.push(c),
        }
    }
    clean
}

fn clean_lines(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

/// Formats a value with its unit; for a stack, its leaf.
pub(crate) fn cell_text(datum: &Datum) -> String {
    text(datum)
}

/// Formats a value with its unit.
fn text(datum: &Datum) -> String {
    match datum {
        Datum::Null => "-".into(),
        Datum::Bool(v) => if *v { "true" } else { "false" }.into(),
        Datum::Int(v, unit) => whole(*v, *unit),
        Datum::Real(v, unit) => real(*v, *unit),
        Datum::Text(v) | Datum::Named(v, _) => clean(v),
        Datum::Stack(frames) => frames.first().map(|frame| clean(frame)).unwrap_or_default(),
    }
}

fn whole(value: i64, unit: Unit) -> String {
    match unit {
        Unit::One => grouped(&value.to_string()),
        Unit::Unsigned => grouped(&(value as u64).to_string()),
        Unit::Time => time::time_and_date(value),
        Unit::Span if value == i64::MAX => "forever".into(),
        Unit::Span => time::span(value),
        Unit::Address => format!("0x{value:x}"),
        Unit::Share => real(value as f64, unit),
        Unit::Bytes | Unit::Bits | Unit::BytesPerSecond | Unit::BitsPerSecond | Unit::Hertz => {
            scaled(value as f64, unit)
        }
    }
}

fn real(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Share => format!("{:.2} %", value * 100.0),
        Unit::Time | Unit::Span => whole(value.round() as i64, unit),
        Unit::Bytes | Unit::Bits | Unit::BytesPerSecond | Unit::BitsPerSecond | Unit::Hertz => {
            scaled(value, unit)
        }
        Unit::One | Unit::Unsigned | Unit::Address => match format!("{value:.2}").split_once('.') {
            Some((whole, part)) => format!("{}.{part}", grouped(whole)),
            None => value.to_string(),
        },
    }
}

fn scaled(value: f64, unit: Unit) -> String {
    let (bare, per) = match unit {
        Unit::Bits => ("bit", ""),
        Unit::BitsPerSecond => ("bit", "/s"),
        Unit::BytesPerSecond => ("B", "/s"),
        Unit::Hertz => ("Hz", ""),
        _ => ("B", ""),
    };
    // Memory uses powers of two, rates and frequencies powers of ten.
    let binary = matches!(unit, Unit::Bytes | Unit::Bits | Unit::BytesPerSecond);
    let (step, names): (f64, [&str; 6]) = if binary {
        (1024.0, ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
    } else {
        (1000.0, ["k", "M", "G", "T", "P", "E"])
    };
    let (mut size, mut prefix) = (value, "");
    for name in names {
        // A value that would be rounded to a full step uses the next unit.
        if size.abs() < step - 0.05 {
            break;
        }
        size /= step;
        prefix = name;
    }
    let digits = usize::from(!prefix.is_empty() || size.fract() != 0.0);
    format!("{size:.digits$} {prefix}{bare}{per}")
}

/// `1234567` → `1,234,567`
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let mut text = String::from(sign);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_with_units() {
        let check = |value: i64, unit: Unit, want: &str| assert_eq!(whole(value, unit), want);
        check(-1234567, Unit::One, "-1,234,567");
        check(999, Unit::One, "999");
        check(-1, Unit::Unsigned, "18,446,744,073,709,551,615");
        check(1023, Unit::Bytes, "1023 B");
        check(1024, Unit::Bytes, "1.0 KiB");
        check(1_048_575, Unit::Bytes, "1.0 MiB");
        check(1_500_000, Unit::BitsPerSecond, "1.5 Mbit/s");
        check(i64::MAX, Unit::Span, "forever");
        assert_eq!(real(0.12345, Unit::Share), "12.35 %");
        assert_eq!(real(1234.5, Unit::One), "1,234.50");
    }

    #[test]
    fn cells_are_shortened_and_wrapped() {
        assert_eq!(shortened("abcdef", 4, Truncate::End), "abc…");
        assert_eq!(shortened("abcdef", 4, Truncate::Beginning), "…def");
        assert_eq!(clean("a\x1b[31m\n"), "a\u{fffd}[31m\\n");
        let text = Datum::Text("abcdefghij".into());
        assert_eq!(cell(&text, 4, 2, Truncate::End), ["abcd", "efg…"]);
        assert_eq!(cell(&text, 4, 2, Truncate::Beginning), ["…def", "ghij"]);
        assert_eq!(cell(&text, 4, 3, Truncate::End), ["abcd", "efgh", "ij"]);
    }
}
