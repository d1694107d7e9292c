//! Writes the malformed recordings into a folder: `malformed DIR`. Prints name, size, number of events,
//! whether these are all, and the defect, tab-separated.

use std::path::PathBuf;

/// Runs the program.
pub fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(crate::arguments().nth(1).expect("usage: malformed DIR"));
    std::fs::create_dir_all(&folder)?;
    for case in flightline_tests::malformed::cases() {
        std::fs::write(folder.join(case.name).with_extension("jfr"), &case.bytes)?;
        let whole = if case.lossless() { "whole" } else { "partial" };
        println!("{}\t{}\t{}\t{whole}\t{}", case.name, case.bytes.len(), case.events, case.wrong);
    }
    Ok(())
}
