//! Text of DTrace and VTune, which inferno folds.

use std::io::BufRead;

use inferno::collapse::{Collapse, dtrace, vtune};

use crate::error::Error;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Stacks and their counts, as `dtrace` prints `@[ustack()] = count()`.
    Dtrace,
    /// CSV of `vtune -report top-down -call-stack-mode all -column="CPU Time:Self","Module" -report-out FILE -format csv`.
    Vtune,
}

impl Format {
    /// The unit of the values, if it is known.
    pub fn unit(self) -> Option<&'static str> {
        match self {
            Self::Dtrace => None,
            Self::Vtune => Some("ns"),
        }
    }
}

/// The format that a text begins as.
pub(super) fn format_of(head: &[u8]) -> Option<Format> {
    let head = String::from_utf8_lossy(head);
    if dtrace::Folder::default().is_applicable(&head) == Some(true) {
        Some(Format::Dtrace)
    } else if vtune::Folder::default().is_applicable(&head) == Some(true) {
        Some(Format::Vtune)
    } else {
        None
    }
}

/// Returns the folded text.
///
/// # Errors
/// `input` cannot be read, or is not what it begins as.
pub(super) fn read(format: Format, input: impl BufRead) -> Result<Vec<u8>, Error> {
    let mut folded = Vec::new();
    match format {
        Format::Dtrace => dtrace::Folder::default().collapse(input, &mut folded),
        Format::Vtune => vtune::Folder::default().collapse(input, &mut folded),
    }
    .map_err(Error::Read)?;
    if format == Format::Vtune {
        // inferno writes milliseconds.
        folded = folded.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).fold(
            Vec::with_capacity(folded.len()),
            |mut text, line| {
                text.extend_from_slice(line);
                text.extend_from_slice(b"000000\n");
                text
            },
        );
    }
    Ok(folded)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DTRACE: &str = "\
CPU     ID                    FUNCTION:NAME
  0  64091                        :tick-60s


              libc.so.1`read+0xa
              app`load+0x12
              app`main+0x20
               12

              app`main+0x31
                3
";
    const VTUNE: &str = "\
Function Stack,CPU Time:Self,Module
Total,0,
  main,1.5,app
    load,0.25,app
";

    fn folded(text: &str) -> String {
        let format = format_of(text.as_bytes()).unwrap();
        String::from_utf8(read(format, text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn stacks_of_dtrace() {
        assert_eq!(folded(DTRACE), "app`main 3\napp`main;app`load;libc.so.1`read 12\n");
    }

    #[test]
    fn times_of_vtune_are_in_nanoseconds() {
        assert_eq!(folded(VTUNE), "app`main 1500000000\napp`main;app`load 250000000\n");
    }

    #[test]
    fn no_byte_makes_it_panic() {
        for text in [DTRACE, VTUNE] {
            let format = format_of(text.as_bytes()).unwrap();
            for at in 0..text.len() {
                for byte in [b' ', b',', b'`', b'"', b'+', b'\n', b'9', b'(', b':', 0, 0xff, 0xc3] {
                    let mut changed = text.as_bytes().to_vec();
                    changed[at] = byte;
                    format_of(&changed);
                    let _ = read(format, &changed[..]);
                    changed.splice(at..at, [0xc3, 0xa4]);
                    let _ = read(format, &changed[..]);
                    let _ = read(format, &text.as_bytes()[..at]);
                }
            }
        }
    }
}
