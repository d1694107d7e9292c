//! The cost of recording is in the recording. A budget makes samples rarer without changing the time that
//! they represent.

use std::collections::HashMap;
use std::process::Command;

use flightline_tests::controlled::{Controlled, LIMIT};
use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::{run, turn, until};
use flightline_tests::{victim, walls};
use serde_json::Value;

const COST: &str = "flightline.RecorderCost";

/// Nanoseconds of a field: a number, or an ISO duration of seconds.
#[track_caller]
fn ns(values: &Value, field: &str) -> u64 {
    let value = &values[field];
    let seconds = value.as_str().and_then(|t| t.strip_prefix("PT")?.strip_suffix('S')?.parse::<f64>().ok());
    value.as_u64().or(seconds.map(|s| (s * 1e9) as u64)).unwrap_or_else(|| panic!("{field}: {values}"))
}

#[test]
fn recording_contains_its_own_cost() {
    let turn = turn();
    let recorded = Record::new().run(victim::c("conservation", victim::OPTIMISED), &["200"]).expect_code(0);
    let _place = turn.measured();
    let costs = walls::events(&recorded.path, COST);
    let sum = |field: &str| costs.iter().map(|(_, values)| ns(values, field)).sum::<u64>();
    let recording = recorded.read();
    let cpu: u64 =
        recording.ledger.iter().map(|l| (l.tid, l.cpu_ns)).collect::<HashMap<_, _>>().values().sum();
    // One account of the whole process, one of each thread: ids may be reused, and clocks continue after the
    // last reading.
    let recorded_cpu = sum("cpuTime");
    assert!(
        recorded_cpu >= cpu * 9 / 10 && recorded_cpu > 0,
        "{recorded_cpu} ns of CPU time recorded, threads used {cpu}"
    );
    assert!(sum("signals") > 100, "{costs:?}");
    for (field, least) in [("handlers", 100), ("delivery", 50)] {
        let each = sum(field) / sum("signals");
        assert!((least..1_000_000).contains(&each), "{field}: {each} ns a signal");
    }
    assert!(sum("writer") > sum("fixed") && sum("fixed") > 0 && sum("bytes") > 0, "{costs:?}");
    assert!(costs.iter().all(|(_, values)| ns(values, "period") == 1_000_000), "{costs:?}");
}

/// `flightline ctl status` without `--json`.
fn plain_status(pid: u32) -> String {
    let mut command = Command::new(victim::flightline());
    run(command.args(["ctl", "-p", &pid.to_string(), "status"]), LIMIT).expect_success("status").stdout_text()
}

#[test]
fn budget_lengthens_period_and_preserves_cpu_time() {
    const EVENT_NS: u64 = 500_000;
    let turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jfr");
    // This budget is impossible, so samples become as rare as the limits allow.
    let mut victim = Controlled::recorded(&path, &["-F", "2000", "--budget", "0.01%"]);
    let status = until(LIMIT, "rarer samples", || {
        victim.work("during", 200);
        let status = victim.ask(&["status"]);
        (status["samplingPeriodNs"].as_u64()? >= 4 * EVENT_NS).then_some(status)
    });
    assert!(status["cost"]["handlers"].as_f64().unwrap() > 0.0, "{status}");
    let plain = plain_status(victim.pid);
    for part in ["requested", "; budget 0.010 %", "of CPU time in the last second, ", "at any sampling rate"]
    {
        assert!(plain.contains(part), "{part}: {plain}");
    }
    victim.work("resumed", 2000);
    assert_eq!(victim.end(0), 0);
    let _place = turn.measured();
    let recording = Recording::read(&path).unwrap();
    assert!(recording.warnings.is_empty(), "{:?}", recording.warnings);
    assert_eq!(recording.chunks, 1, "readers that know nothing of it see equal weights");
    let costs = walls::events(&path, COST);
    let (_, last) = costs.last().unwrap();
    let longest = ns(last, "period");
    assert!(longest >= 4 * EVENT_NS, "{last}");
    let signals: u64 = costs.iter().map(|(_, values)| ns(values, "signals")).sum();
    let events = recording.samples.len() as u64;
    assert!(signals < events, "{signals} signals for {events} events");
    // By thread: the events represent the time that the account reports as sampled. The difference is at most
    // half an event from rounding, an interval for the first sample, which represents a whole one whenever it
    // occurred, and up to an event of the first thread's time before it samples itself.
    let accounts: HashMap<u64, (u64, u64, u64)> =
        recording.ledger.iter().map(|l| (l.tid, (l.cpu_ns, l.sampled_ns, l.lost_ns))).collect();
    let by_tid = recording.samples_by_tid();
    for (tid, (cpu, sampled, lost)) in accounts {
        let seen = by_tid.get(&tid).copied().unwrap_or(0) * EVENT_NS;
        assert!(
            seen.abs_diff(sampled) <= EVENT_NS * 5 / 2 + 1,
            "{tid}: {seen} ns in events, {sampled} sampled"
        );
        let rest = cpu.saturating_sub(sampled + lost);
        assert!(rest <= longest + 20_000_000, "{tid}: {rest} ns of {cpu} in no account");
    }
}
