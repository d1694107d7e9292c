//! A report for the terminal.

use std::io::Write;

use super::{Report, Severity};
use crate::error::Error;

/// Writes the findings, each with the command that shows the details of `files`.
///
/// # Errors
/// `out` cannot be written.
pub fn write_text(report: &Report<'_>, files: &str, out: &mut (impl Write + ?Sized)) -> Result<(), Error> {
    let mut text = format!("{}\n{}\n\n", report.name, report.headline());
    for finding in &report.findings {
        let mark = match finding.severity {
            Severity::High => "!!",
            Severity::Medium => "! ",
            Severity::Low => "  ",
            Severity::Unknown => "? ",
        };
        text.push_str(&format!("{mark} {}: {}\n", finding.area.name(), finding.text));
        if !finding.advice.is_empty() {
            text.push_str(&format!("     {}\n", finding.advice));
        }
        if !finding.view.is_empty() && finding.severity <= Severity::Medium {
            text.push_str(&format!("     flightline view {} {files}\n", finding.view));
        }
    }
    if let Some(before) = &report.before {
        text.push_str(&format!("\n{:<24} {:>22} {:>22}\n", "Measure", before.name, "this recording"));
        for [name, then, now] in report.compared() {
            text.push_str(&format!("{name:<24} {then:>22} {now:>22}\n"));
        }
    }
    text.push_str("\n!! probably the cause of a problem, ! worth a look, ? not recorded. The limits are rules of thumb.\n");
    out.write_all(text.as_bytes()).map_err(Error::Write)
}
