//! The formats of inputs. A format is recognized by the first bytes, not by the name of the file.
//!
//! The page `docs/guide/reference/input-formats.md` has the same table.

use crate::convert;

/// A format of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A recording.
    Jfr,
    /// A file of `perf record`.
    PerfData,
    /// Compressed data; pprof profiles usually are.
    Gzip,
    /// Compressed data.
    Xz,
    /// Compressed data.
    Zstd,
    /// Compressed data.
    Bzip2,
    /// Compressed data.
    Lz4,
    /// An archive.
    Zip,
    /// An uncompressed pprof profile. Other data can begin in the same way.
    Pprof,
    /// OTLP profiles. Other data can begin in the same way.
    Otlp,
    /// A file of speedscope.
    Speedscope,
    /// Output of `perf script`.
    PerfScript,
    /// Maps that bpftrace printed.
    Bpftrace,
    /// A report of VTune.
    Vtune,
    /// Stacks that DTrace printed.
    Dtrace,
    /// Folded text with two values for each stack.
    Differential,
    /// Folded text.
    Folded,
}

/// A row of the table of formats.
#[derive(Clone, Copy, Debug)]
pub struct FormatRow {
    /// The format.
    pub format: Format,
    /// Its name.
    pub name: &'static str,
    /// Usual extensions of files.
    pub extensions: &'static str,
    /// How its beginning is recognized.
    pub beginning: &'static str,
    /// The command that converts the data to a format that can be read; empty if it can be read itself.
    pub tool: &'static str,
    is: Recognizer,
}

/// Recognizes a format.
#[derive(Clone, Copy, Debug)]
enum Recognizer {
    /// By the first bytes.
    Bytes(fn(&[u8]) -> bool),
    /// By the first lines of a text.
    Text(fn(&[u8]) -> bool),
}

/// Number of bytes that [`detect_bytes`] needs.
pub const FIRST_BYTES: usize = 12;

/// All formats; an input has the first of them that its beginning fits.
pub const FORMATS: &[FormatRow] = &[
    bytes(Format::Jfr, "JFR recording", ".jfr", "`FLR\\0`", "", |head| head.starts_with(b"FLR\0")),
    bytes(
        Format::PerfData,
        "perf.data",
        ".data",
        "`PERFILE2`, in either byte order",
        "perf script -i",
        |head| head.starts_with(b"PERF") || head.starts_with(b"2ELI"),
    ),
    bytes(Format::Gzip, "gzip", ".gz", "`1f 8b`; a pprof profile in it is read", "gunzip -c", |head| {
        head.starts_with(&[0x1f, 0x8b])
    }),
    bytes(Format::Xz, "xz", ".xz", "`fd 37 7a 58`", "xz -dc", |head| head.starts_with(b"\xfd7zX")),
    bytes(Format::Zstd, "zstd", ".zst", "`28 b5 2f fd`", "zstd -dc", |head| {
        head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
    }),
    bytes(Format::Bzip2, "bzip2", ".bz2", "`BZh`", "bzip2 -dc", |head| head.starts_with(b"BZh")),
    bytes(Format::Lz4, "lz4", ".lz4", "`04 22 4d 18`", "lz4 -dc", |head| {
        head.starts_with(&[0x04, 0x22, 0x4d, 0x18])
    }),
    bytes(Format::Zip, "zip", ".zip", "`50 4b 03 04`", "unzip -p", |head| head.starts_with(b"PK\x03\x04")),
    bytes(Format::Pprof, "pprof, uncompressed", ".pb, .pprof", "field 1, 9 or 11 of `Profile`", "", is_pprof),
    bytes(Format::Otlp, "OTLP profiles", ".otlp", "field 1 or 2 of `ProfilesData`", "", |head| {
        matches!(head, [0x0a | 0x12, ..])
    }),
    text(
        Format::Speedscope,
        "speedscope",
        ".speedscope.json",
        "`{`, and `speedscope.app/` or `\"shared\"`",
        convert::is_speedscope,
    ),
    text(
        Format::PerfScript,
        "output of `perf script`",
        ".perf, .txt",
        "the header of a sample, then indented frames",
        convert::is_perf_script,
    ),
    text(
        Format::Bpftrace,
        "output of bpftrace",
        ".txt",
        "`@name[`, then indented frames",
        convert::is_bpftrace,
    ),
    text(
        Format::Vtune,
        "report of VTune",
        ".csv",
        "the columns of a report of call stacks",
        convert::is_vtune,
    ),
    text(
        Format::Dtrace,
        "output of DTrace",
        ".txt",
        "a blank line, then frames with a backtick, then a number",
        convert::is_dtrace,
    ),
    text(
        Format::Differential,
        "folded text of two profiles",
        ".folded, .txt",
        "all lines end in two numbers",
        crate::folded::is_differential,
    ),
    text(Format::Folded, "folded text", ".folded, .txt", "any other text", |_| true),
];

const fn bytes(
    format: Format,
    name: &'static str,
    extensions: &'static str,
    beginning: &'static str,
    tool: &'static str,
    is: fn(&[u8]) -> bool,
) -> FormatRow {
    FormatRow { format, name, extensions, beginning, tool, is: Recognizer::Bytes(is) }
}

const fn text(
    format: Format,
    name: &'static str,
    extensions: &'static str,
    beginning: &'static str,
    is: fn(&[u8]) -> bool,
) -> FormatRow {
    FormatRow { format, name, extensions, beginning, tool: "", is: Recognizer::Text(is) }
}

/// Returns the format of data that begins with `head`, at least [`FIRST_BYTES`] if there are so many; `None`
/// for text.
pub fn detect_bytes(head: &[u8]) -> Option<&'static FormatRow> {
    FORMATS.iter().find(|row| matches!(row.is, Recognizer::Bytes(is) if is(head)))
}

/// Returns the format of a text that begins with `head`.
pub fn detect_text(head: &[u8]) -> Format {
    let row = FORMATS.iter().find(|row| matches!(row.is, Recognizer::Text(is) if is(head)));
    row.map_or(Format::Folded, |row| row.format)
}

/// Returns true if bytes begin with field 1 of a profile, the types of its values. Go writes the type of the
/// period (field 11) or the time (field 9) before it.
fn is_pprof(bytes: &[u8]) -> bool {
    const FIRST: u8 = 0x0a;
    const TIME: u8 = 9 << 3;
    const PERIOD_TYPE: u8 = 11 << 3 | 2;
    match bytes {
        [FIRST, _, ..] => true,
        // A message of two numbers, the first with the tag 8.
        [PERIOD_TYPE, _, 8, ..] => true,
        [TIME, time @ ..] => {
            let behind = time.iter().position(|byte| byte & 0x80 == 0).and_then(|last| time.get(last + 1));
            behind == Some(&FIRST)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognized_by_first_bytes() {
        let of = |head: &[u8]| detect_bytes(head).map(|row| row.format);
        assert_eq!(of(b"FLR\0\0\x02"), Some(Format::Jfr));
        assert_eq!(of(b"PERFILE2"), Some(Format::PerfData));
        assert_eq!(of(&[0x1f, 0x8b, 8]), Some(Format::Gzip));
        assert_eq!(of(&[0x0a, 4, 8, 1]), Some(Format::Pprof));
        assert_eq!(of(&[0x48, 0x80, 1, 0x0a]), Some(Format::Pprof));
        assert_eq!(of(&[0x12, 4]), Some(Format::Otlp));
        assert_eq!(of(b"main;run 5"), None);
        assert_eq!(detect_text(b"main;run 5\n"), Format::Folded);
        assert_eq!(detect_text(b"main;run 5 6\n"), Format::Differential);
        assert_eq!(detect_text(b"{\"shared\":{}}"), Format::Speedscope);
    }

    /// The documentation has exactly the rows of the table.
    #[test]
    fn documentation_lists_all_formats() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/reference/input-formats.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        let expected: Vec<String> = FORMATS
            .iter()
            .map(|FormatRow { name, extensions, beginning, tool, .. }| {
                let tool = if tool.is_empty() { "read".to_owned() } else { format!("convert with `{tool}`") };
                format!("| {name} | `{}` | {beginning} | {tool} |", extensions.replace(", ", "`, `"))
            })
            .collect();
        assert_eq!(rows, expected);
    }
}
