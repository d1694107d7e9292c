//! The CSV file of `vtune -report top-down -call-stack-mode all -column="CPU Time:Self","Module" -format csv`, which inferno folds.

use std::io::BufRead;

use inferno::collapse::{Collapse, vtune};

use crate::error::Error;

/// Returns true if a text has the header of the report.
pub(crate) fn is(head: &[u8]) -> bool {
    vtune::Folder::default().is_applicable(&String::from_utf8_lossy(head)) == Some(true)
}

/// Reads all stacks as folded text, in ns.
///
/// # Errors
/// `input` cannot be read, or does not have the format that its beginning indicates.
pub(super) fn read(input: impl BufRead) -> Result<Vec<u8>, Error> {
    let mut folded = Vec::new();
    vtune::Folder::default().collapse(input, &mut folded).map_err(Error::Read)?;
    // inferno writes milliseconds; append zeros to convert them to nanoseconds.
    let lines = folded.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.flat_map(|line| [line, b"000000\n"].concat()).collect())
}

#[cfg(test)]
mod tests {
    use super::super::for_each_change;
    use super::*;

    const TEXT: &str = "\
Function Stack,CPU Time:Self,Module
Total,0,
 main,1.5,app
  \"load<a, b>\",0.25,app
";

    #[test]
    fn times_are_in_nanoseconds() {
        assert!(is(TEXT.as_bytes()));
        let folded = String::from_utf8(read(TEXT.as_bytes()).unwrap()).unwrap();
        assert_eq!(folded, "Total;app`main 1500000000\nTotal;app`main;app`load<a, b> 250000000\n");
    }

    #[test]
    fn arbitrary_input_does_not_panic() {
        for_each_change(TEXT.as_bytes(), b" ,\"\n9-.`\0\xff\xc3", |changed| {
            is(changed);
            let _ = read(changed);
        });
    }
}
