//! `print_agrees FLIGHTLINE JDK DEPTH FILE…`: compares `flightline print --json` with the JDK's `jfr print --json`.
//! JDK is the home of a JDK. DEPTH is that of stacks, or `default`. Exit status 1 if something differs that may not.

use std::path::Path;

use flightline_tests::jfr_tool::JfrTool;
use flightline_tests::print_agreement::compare;

/// Runs the program.
pub fn main() {
    let args: Vec<String> = crate::arguments_text().skip(1).collect();
    let [flightline, jdk, depth, files @ ..] = args.as_slice() else {
        eprintln!("usage: print_agrees FLIGHTLINE JDK DEPTH FILE…");
        std::process::exit(2);
    };
    let depth = (depth != "default").then(|| depth.parse().expect("a depth"));
    let mut jfr = JfrTool::start(jdk.as_ref());
    let mut failed = false;
    for file in files.iter().map(Path::new) {
        let agreement = compare(flightline.as_ref(), &mut jfr, file, file, depth);
        println!("{}: {agreement}", file.file_name().unwrap_or_default().display());
        failed |= !agreement.differences.is_empty() || agreement.jdk_failed.is_some();
    }
    std::process::exit(i32::from(failed));
}
