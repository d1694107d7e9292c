//! `whole RATE FILE [SECONDS]`: prints the share of the CPU time on stacks that reach the root, relative to
//! the threads' clocks and to SECONDS (the system's count for the program); and where stacks end and where
//! they are truncated.

use std::path::PathBuf;

use flightline_tests::recording::Recording;
use flightline_tests::whole;

/// Runs the program.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = crate::arguments_text().skip(1);
    let (Some(rate), Some(file)) = (args.next(), args.next()) else {
        return Err("usage: whole RATE FILE [SECONDS]".into());
    };
    let recording = Recording::read(&PathBuf::from(file))?;
    let share = whole::share(&recording, 1e9 / rate.parse::<f64>()?);
    println!("{:.3} % of {:.3} s by the threads' clocks", share.percent(), share.seconds);
    if let Some(used) = args.next() {
        let used: f64 = used.parse()?;
        println!("{:.3} % of {used:.3} s by the system's account", 100.0 * share.whole / used);
    }
    let roots = whole::roots(&recording);
    println!("{} roots: {:?}", roots.len(), roots.iter().take(12).collect::<Vec<_>>());
    println!("{}", whole::cut(&recording, 25));
    Ok(())
}
