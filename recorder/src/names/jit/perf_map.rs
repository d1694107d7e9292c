//! `perf-<pid>.map`: lines `START SIZE name`, numbers hexadecimal.

use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

use super::{Codes, Grown, PIECE};

/// Limit of a line. The rest of longer lines is skipped.
const MAX_LINE: usize = 16 << 10;

/// The position in a file.
#[derive(Default)]
pub struct Reader {
    at: u64,
    /// The position is in a line that is too long.
    skipping: bool,
}

impl Grown for Reader {
    fn read(&mut self, file: &File, codes: &mut Codes) -> bool {
        if file.metadata().map_or(0, |m| m.len()) <= self.at {
            return false;
        }
        let mut piece = vec![0; PIECE];
        let Ok(read) = file.read_at(&mut piece, self.at) else { return false };
        // A line is complete once its newline is written.
        let text = &piece[..read];
        let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        if whole == 0 {
            if read > MAX_LINE {
                self.skipping = true;
                self.at += read as u64;
            }
            return read > MAX_LINE;
        }
        self.at += whole as u64;
        for line in text[..whole].split(|b| *b == b'\n') {
            if !std::mem::take(&mut self.skipping)
                && let Some((start, size, name)) = parse(&line[..line.len().min(MAX_LINE)])
            {
                codes.add(start, size, &name, Arc::new([]));
            }
        }
        true
    }
}

fn parse(line: &[u8]) -> Option<(u64, u64, String)> {
    let line = String::from_utf8_lossy(line);
    let (start, rest) = line.trim_start().split_once(' ')?;
    let (size, name) = rest.trim_start().split_once(' ')?;
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
    Some((hex(start)?, hex(size)?, name.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn perf_map_lines_are_parsed() {
        assert_eq!(parse(b"7f00 1a py::f:/x y.py"), Some((0x7f00, 0x1a, "py::f:/x y.py".into())));
        assert_eq!(parse(b"0x10 0x2 a"), Some((16, 2, "a".into())));
        for bad in ["", "1", "1 2", "g 2 a", "1 -2 a", "10000000000000000 1 a"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn growing_file_is_read_incrementally() {
        let mut file = tempfile::tempfile().unwrap();
        let (mut reader, mut codes) = (Reader::default(), Codes::default());
        let name = |codes: &Codes, at| codes.find(at).map(|(n, _)| n.to_string());
        assert!(!reader.read(&file, &mut codes));
        file.write_all(b"100 10 one\n200 10 tw").unwrap();
        assert!(reader.read(&file, &mut codes));
        assert_eq!((name(&codes, 0x100).as_deref(), name(&codes, 0x200)), (Some("one"), None));
        assert!(!reader.read(&file, &mut codes), "half a line is none");
        file.write_all(b"o\n").unwrap();
        file.write_all(&vec![b'x'; 2 * PIECE]).unwrap();
        assert!(reader.read(&file, &mut codes));
        assert_eq!(name(&codes, 0x200).as_deref(), Some("two"));
        file.write_all(b"\n300 10 three\n").unwrap();
        while reader.read(&file, &mut codes) {}
        assert_eq!(name(&codes, 0x300).as_deref(), Some("three"), "after a line without end");
    }
}
