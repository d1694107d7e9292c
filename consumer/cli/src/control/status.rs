//! Formats the answer of `flightline ctl status`.

use std::{collections::BTreeSet, fmt::Write};

use flightline_recorder::settings::units::format_bytes;
use serde_json::Value;

use crate::control::ctl::files;
use crate::diagnostics::count;

/// Formats a recorder's status.
pub fn text(answer: &Value) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<12}{value}");
    };
    line("state", word(&answer["state"]).to_owned());
    if answer["state"] == "waiting" {
        return out;
    }
    line("since", time(&answer["seconds"]));
    line(
        "engines",
        format!("{} ({})", word(&answer["engines"]), answer["engine"].as_str().unwrap_or("none yet")),
    );
    if let Some(interval) = interval(answer) {
        line("interval", interval);
    }
    line("output", format!("{}, {}", files(answer), bytes(&answer["bytes"])));
    let refused = answer["recordings"].as_array().into_iter().flatten().map(|r| word(&r["refused"]));
    // The processes of a repository usually report the same.
    for reason in refused.filter(|reason| !reason.is_empty()).collect::<BTreeSet<_>>() {
        line("refused", reason.to_owned());
    }
    line(
        "samples",
        format!(
            "{}, {} in the last second, of {} of CPU time",
            answer["samples"],
            answer["samplesPerSecond"],
            time(&answer["cpuSeconds"])
        ),
    );
    let lost = answer["lost"].as_array().map_or(&[][..], Vec::as_slice);
    if lost.is_empty() {
        line("lost", "nothing".to_owned());
    }
    for lost in lost {
        let (samples, cause) = (&lost["samples"], word(&lost["cause"]));
        line("lost", format!("{} of CPU time, {samples} samples: {cause}", time(&lost["cpuSeconds"])));
    }
    for kind in answer["events"].as_array().into_iter().flatten() {
        line("events", format!("{} {}, {} lost", kind["events"], word(&kind["kind"]), kind["lost"]));
    }
    if let Some(cost) = cost(answer) {
        line("cost", cost);
    }
    for process in answer["processes"].as_array().into_iter().flatten() {
        line(
            "process",
            format!(
                "{} {}: {}, {}, {} of CPU time, {} of it lost{}",
                process["pid"],
                word(&process["name"]),
                count(process["threads"].as_u64().unwrap_or(0), "thread"),
                count(process["samples"].as_u64().unwrap_or(0), "sample"),
                time(&process["cpuSeconds"]),
                time(&process["lostCpuSeconds"]),
                ring(process)
            ),
        );
    }
    line(
        "recorder",
        format!(
            "pid {}, {} resident, {} of CPU time",
            answer["pid"],
            bytes(&answer["recorder"]["residentBytes"]),
            time(&answer["recorder"]["cpuSeconds"])
        ),
    );
    out
}

/// Returns the interval of CPU samples, and why it differs from the requested one.
fn interval(answer: &Value) -> Option<String> {
    let ms = |key: &str| Some(answer[key].as_f64()? / 1e6);
    let (asked, now) = (ms("periodNs")?, ms("samplingPeriodNs")?);
    let mut text = format!("{now:.3} ms of CPU time");
    if now > asked {
        let _ = write!(text, ", {asked:.3} ms requested; the weights of samples are adjusted");
    }
    if let Some(budget) = answer["budget"].as_f64() {
        let _ = write!(text, "; budget {}", percent(budget));
    }
    Some(text)
}

/// Returns the overhead by cause.
fn cost(answer: &Value) -> Option<String> {
    let cost = &answer["cost"];
    let (now, all) = (cost["shareLastSecond"].as_f64()?, cost["share"].as_f64()?);
    let mut text = format!("{} of CPU time in the last second, {} in all:", percent(now), percent(all));
    let causes =
        [("handlers", "handlers"), ("delivery", "their signals"), ("calls", "calls"), ("writer", "writer")];
    for (key, name) in causes {
        let _ = write!(text, " {name} {},", time(&cost[key]));
    }
    let _ = write!(
        text,
        " {} of that at any sampling rate; reading symbols {}",
        time(&cost["fixed"]),
        time(&cost["symbols"])
    );
    Some(text)
}

/// Returns the fill level of a process's ring; a process recorded from outside has none.
fn ring(process: &Value) -> String {
    match process["ringBytes"].is_null() {
        true => String::new(),
        false => {
            format!(", ring {} of {} in use", bytes(&process["ringUsedBytes"]), bytes(&process["ringBytes"]))
        }
    }
}

fn bytes(value: &Value) -> String {
    format_bytes(value.as_u64().unwrap_or(0))
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn percent(share: f64) -> String {
    let digits = if share < 0.001 { 3 } else { 2 };
    format!("{:.digits$} %", 100.0 * share)
}

/// Formats seconds or milliseconds.
fn time(seconds: &Value) -> String {
    let seconds = seconds.as_f64().unwrap_or(0.0).max(0.0);
    match seconds {
        1.0.. => format!("{seconds:.3} s"),
        _ => format!("{:.1} ms", 1e3 * seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn status_text_lists_cost_interval_and_losses() {
        let answer = json!({
            "state": "recording", "seconds": 61.25, "engines": "cpu@10ms", "engine": "perf", "outputs": ["", "a.jfr"],
            "bytes": 1234, "samples": 90, "samplesPerSecond": 2, "cpuSeconds": 1.5, "periodNs": 10_000_000,
            "samplingPeriodNs": 40_000_000, "budget": 0.005, "pid": 7,
            "lost": [{"cause": "ring full", "samples": 3, "cpuSeconds": 0.03}],
            "cost": {"handlers": 0.01, "delivery": 0.02, "calls": 0, "writer": 0.125, "fixed": 0.1, "symbols": 1.5,
                "share": 0.0042, "shareLastSecond": 0.00051},
            "recordings": [{"refused": "/r: No space left on device"}, {"refused": null},
                {"refused": "/r: No space left on device"}],
            "processes": [
                {"pid": 8, "name": "a", "threads": 1, "samples": 60, "cpuSeconds": 1, "lostCpuSeconds": 0,
                    "ringUsedBytes": 0, "ringBytes": 4096},
                {"pid": 9, "name": "b", "threads": 2, "samples": 30, "cpuSeconds": 0.5, "lostCpuSeconds": 0.03},
            ], "recorder": {"residentBytes": 9, "cpuSeconds": 0.25},
        });
        let expected = "\
state       recording
since       61.250 s
engines     cpu@10ms (perf)
interval    40.000 ms of CPU time, 10.000 ms requested; the weights of samples are adjusted; budget 0.50 %
output      a.jfr, 1234 bytes
refused     /r: No space left on device
samples     90, 2 in the last second, of 1.500 s of CPU time
lost        30.0 ms of CPU time, 3 samples: ring full
cost        0.051 % of CPU time in the last second, 0.42 % in all: handlers 10.0 ms, their signals 20.0 ms, calls 0.0 ms, \
writer 125.0 ms, 100.0 ms of that at any sampling rate; reading symbols 1.500 s
process     8 a: 1 thread, 60 samples, 1.000 s of CPU time, 0.0 ms of it lost, ring 0 bytes of 4096 bytes in use
process     9 b: 2 threads, 30 samples, 500.0 ms of CPU time, 30.0 ms of it lost
recorder    pid 7, 9 bytes resident, 250.0 ms of CPU time
";
        assert_eq!(text(&answer), expected);
        assert_eq!(text(&json!({"state": "waiting"})), "state       waiting\n");
        let plain =
            text(&json!({"state": "recording", "periodNs": 1e7, "samplingPeriodNs": 1e7, "lost": []}));
        assert!(
            plain.contains("interval    10.000 ms of CPU time\n") && plain.contains("lost        nothing\n")
        );
    }
}
