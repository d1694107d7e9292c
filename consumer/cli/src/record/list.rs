//! `flightline list`: which engines and events work here, and what to do about the others.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use flightline_recorder::engines;
use flightline_recorder::settings::ENGINES;

use crate::{Outcome, output};

/// Text after the options in the help.
pub const EXAMPLES: &str = "\
Examples:
  flightline list                               test all engines, options and events
  flightline record -e cpu,page-faults@100 -- PROGRAM
  flightline record -e uprobe:libc.so.6:malloc@1000 -- PROGRAM
  flightline record -e uprobe:libc.so.6:malloc@1000 -p PID
  flightline record -e sched:sched_switch -- PROGRAM
  flightline record --off-cpu --block-io=1ms -- PROGRAM

Exit status: 0 if CPU time can be sampled on this machine, 1 if not.";

/// Tries all engines and events and prints the result.
pub fn run() -> Result<Outcome> {
    let mut out = String::from("Ways to sample CPU time (--engine):\n");
    let mut best = None;
    for engine in engines::list() {
        if engine.refused.is_none() {
            best.get_or_insert(engine.name);
        }
        line(&mut out, engine.name, engine.about, &state(engine.refused.as_deref(), None));
    }
    out += &match best {
        Some(name) => {
            format!("  auto selects the first that works: {name} (timer if it is fast enough for the rate)\n")
        }
        None => "  no engine works on this machine\n".to_owned(),
    };
    out += "\nEngines (-e NAME[@INTERVAL]):\n";
    for engine in ENGINES {
        let _ = writeln!(out, "  {:25} {}; @{}", engine.name, engine.about, engine.interval);
    }
    out += "\nWaits, I/O and address space by the kernel's tracepoints (options of record):\n";
    for option in engines::tracepoint_options() {
        let state = state(option.refused.as_deref(), option.limited.as_deref());
        line(&mut out, option.name, option.about, &state);
    }
    out += "\nPerf events (-e NAME[@COUNT], one sample per COUNT events):\n";
    for event in engines::list_perf_events() {
        let limited = event.user_only.then_some("without kernel time");
        line(&mut out, &event.name, event.about, &state(event.refused.as_deref(), limited));
    }
    out += "\nFunctions (--trace FUNCTION:TIME):\n";
    let about = "calls that exceed TIME, with hardware breakpoints: at most two functions";
    line(&mut out, "--trace", about, &state(engines::trace_refused().as_deref(), None));
    output::text(Path::new("-"), |to| to.write_all(out.as_bytes()))?;
    Ok(if best.is_some() { Outcome::Whole } else { Outcome::Partial })
}

/// Returns the state of an engine: why the kernel refuses it, or the part that is missing.
fn state(refused: Option<&str>, limited: Option<&str>) -> String {
    match (refused, limited) {
        (None, None) => "works".to_owned(),
        (None, Some(limited)) => format!("works, {limited}"),
        (Some(why), _) => format!("refused: {why}"),
    }
}

fn line(out: &mut String, name: &str, about: &str, state: &str) {
    let _ = writeln!(out, "  {name:25} {about}\n  {:25} {state}", "");
}
