//! The time spent in spans, compared with a program that measures it: async tasks that move between threads,
//! and threads of their own.
//!
//! `SPAN_LOAD_SECONDS` is the duration. `.ci/long contexts` runs longer, and allows 2 % for deterministic
//! figures.

use std::collections::HashMap;

use flightline_tests::record::Record;
use flightline_tests::run::beside;
use flightline_tests::span_truth::{BY, METRICS, Sums, attributed, known};
use flightline_tests::spans;

const CPU_NS: f64 = 1e6;
const WALL_NS: f64 = 2e6;
const ALLOC: f64 = 4096.0;

/// The random error of a sum: sampling once per interval gives at most that many independent samples.
fn chance(sum: f64, interval: f64) -> f64 {
    SIGMAS * (sum.max(interval) * interval).sqrt()
}

/// Some hundred sums are compared.
const SIGMAS: f64 = 4.5;

/// The tolerance of each metric.
fn tolerance(metric: &str, truth: &Sums, lost_ns: f64, stolen_ns: f64) -> f64 {
    let [_, cpu, _, off, queued, bytes, lock] = truth.map(|sum| sum as f64);
    match metric {
        "cpu" => 0.02 * cpu + chance(cpu, CPU_NS) + lost_ns,
        // Time that the hypervisor takes appears in the thread's next record.
        "off" => 0.02 * off + chance(off, WALL_NS) + stolen_ns,
        "wall" => {
            let [cpu, off] = ["cpu", "off"].map(|metric| tolerance(metric, truth, lost_ns, stolen_ns));
            cpu + off
        }
        "bytes" => 0.02 * bytes + chance(bytes, ALLOC),
        // All waits above the threshold. The program may be descheduled between its clock reading and ours.
        "lock" => 0.02 * lock + 2e6 + queued,
        _ => f64::INFINITY,
    }
}

#[test]
fn resource_use_is_attributed_to_correct_span() {
    let _place = beside();
    let seconds = std::env::var("SPAN_LOAD_SECONDS").unwrap_or_else(|_| "2".into());
    let strict = seconds.parse::<f64>().unwrap() >= 30.0;
    let events = "cpu,wall@2ms,alloc@4k,lock@10us";
    let record = Record::new().option("-e").option(events).option("--spans").option("all");
    // A large ring, in case the recorder has to wait for a processor.
    let record = record.option("--ring-size").option("16M");
    let recorded = record.run(env!("CARGO_BIN_EXE_span_load"), &[&seconds]).expect_code(0);
    print!("{}", recorded.finished.stderr);
    let truth = recorded.truth();
    let lost_ns = recorded.read().lost_by_tid().values().sum::<u64>() as f64;
    let all_queued: f64 = known(&truth, "name").values().map(|sums| sums[4] as f64).sum();
    let stolen = recorded.stolen_ns as f64 / 1e9;
    println!(
        "{:.1} s were spent waiting for a processor, {stolen:.1} s stolen of this machine",
        all_queued / 1e9
    );
    let mut lost: HashMap<String, [f64; 2]> = HashMap::new();
    for loss in spans::read(&recorded.path, &["flightline.EventLoss"]) {
        let sums = lost.entry(loss.field("event").to_owned()).or_default();
        sums[0] += loss.number("count") as f64;
        sums[1] += loss.number("value") as f64;
    }
    let lost = |event: &str, what: usize| lost.get(event).map_or(0.0, |sums| sums[what]);
    let mut wrong = Vec::new();
    for by in BY {
        let (rows, told) = attributed(&recorded.path, by);
        println!("== by {by}");
        for (key, sums) in known(&truth, by) {
            let row = rows.get(&key).unwrap_or_else(|| panic!("no row {key}: {told}"));
            print!("{key:32}");
            for ((metric, is), should) in METRICS.iter().zip(row).zip(sums) {
                if *metric == "queued" {
                    continue;
                }
                let (is, should) = (*is as f64, should as f64);
                let (off, unit) = (is - should, if *metric == "count" { 1.0 } else { 1e6 });
                let share = if should > 0.0 { format!("{:+.2} %", 100.0 * off / should) } else { "-".into() };
                print!(" {metric} {:.1} {share}", should / unit);
                // Every span is recorded, or lost and counted.
                let mut may = match *metric {
                    // Allocations and locks exactly; CPU time within its random error.
                    "bytes" if strict => 0.02 * should + 2e6,
                    // Also locks of the runtime and the allocator, whose holders wait for a processor.
                    "lock" if strict => 0.02 * should + 2e6 + 0.002 * sums[4] as f64,
                    _ => tolerance(metric, &sums, lost_ns, recorded.stolen_ns as f64),
                };
                may += match *metric {
                    "off" | "wall" => lost("waited", 1),
                    "bytes" => lost("alloc", 1),
                    "lock" => lost("lock", 1),
                    _ => 0.0,
                };
                if *metric == "count" {
                    may = lost("span", 0);
                }
                if off.abs() > may {
                    wrong.push(format!("{by} {key}: {metric} is {is}, not {should} ± {may:.0}"));
                }
            }
            println!();
        }
        let counts = &told["counts"];
        for name in ["late", "unwaited", "threadsDropped", "spansLeftOut", "stacksLeftOut"] {
            assert_eq!(counts[name], 0, "{counts}");
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
