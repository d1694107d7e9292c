//! Wall-clock time of threads, compared with the threads' own clocks, and the cost and side effects of the
//! engine.
//!
//! A sample represents an interval, and the rest from rounding is carried over. So for each thread Σ samples
//! × interval is its life within a few intervals, and the running part is its CPU time. All sums are of the
//! threads' own clocks.

use flightline_tests::record::{Record, Recorded};
use flightline_tests::recording::Recording;
use flightline_tests::run::{beside, turn};
use flightline_tests::walls::{WallSample, sum, wall_samples};
use flightline_tests::{skip, victim};

const INTERVAL_MS: f64 = 10.0;

fn recorded(engines: &str, flags: &[&str], seconds: &str) -> Recorded {
    let program = victim::c("wall", flags);
    Record::new().option("-e").option(engines).run(program, &[seconds]).expect_code(0)
}

/// The time that samples represent in ms.
fn ms(samples: u64) -> f64 {
    samples as f64 * INTERVAL_MS
}

/// Asserts that a thread's samples agree with its own clocks.
fn check_thread(recorded: &Recorded, samples: &[WallSample], name: &str) {
    let truth = recorded.truth();
    let thread = truth.threads.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("{name} is missing"));
    let of =
        |state: &str| ms(sum(samples, |s| s.tid == thread.tid && (state.is_empty() || s.state == state)));
    let cpu = thread.cpu_ns as f64 / 1e6;
    let life = truth.counts[&format!("{name}_life")] as f64 / 1e6;
    let (all, running, queued) = (of(""), of("RUNNABLE"), of("WAITING_FOR_CPU"));
    let idle = all - running - queued;
    eprintln!(
        "{name:8} life {life:7.1} ms: {all:6.0}; CPU {cpu:7.1}: {running:6.0}; without processor {queued:5.0}; idle {idle:6.0}"
    );
    // The three states are rounded separately, and the thread's clocks do not include time that the host
    // took. A thread's own account of its life lacks the waits for a processor at its start and end.
    let stolen = recorded.stolen_ns as f64 / 1e6;
    let tolerance = |of: f64| 3.5 * INTERVAL_MS + 0.02 * of + stolen;
    let within = |is: f64, low: f64, high: f64| (low - tolerance(low)..=high + tolerance(high)).contains(&is);
    assert!(within(all, life, life + queued), "{name}: lived {life:.1} ms, recorded {all:.0} ms");
    assert!(within(running, cpu, cpu), "{name}: used {cpu:.1} ms of CPU, recorded {running:.0} ms");
    let off = life - cpu;
    assert!(within(idle, off - queued, off), "{name}: off for {off:.1} ms, recorded {idle:.0} + {queued:.0}");
}

fn known_answer(flags: &[&str]) {
    let turn = turn();
    let recorded = recorded("wall@10ms", flags, "4");
    let _place = turn.measured();
    let samples = wall_samples(&recorded.path);
    for name in ["sleeper", "spinner", "halves", "bursts", "waits", "main"] {
        check_thread(&recorded, &samples, name);
    }
    let truth = recorded.truth();
    assert_eq!(truth.counts["interrupted"], 0, "a wait of the program was cut short");

    // Threads shorter than an interval, in proportion: 150 independent trials of about 0.6. Five standard deviations are
    // exceeded by chance in one run of 1.7 million.
    let brief = ms(sum(&samples, |s| s.thread == "brief" || s.stack.iter().any(|f| f == "brief_nap")));
    let life = truth.counts["brief_life"] as f64 / 1e6;
    // The creator measures the time that the threads cannot: the wait for a processor at either end.
    let span = truth.counts["brief_span"] as f64 / 1e6;
    let sigma = INTERVAL_MS * (150.0f64 * 0.25).sqrt();
    eprintln!("brief: lived {life:.0} to {span:.0} ms together, recorded {brief:.0} ± {sigma:.0}");
    assert!(
        (life - 5.0 * sigma..=span + 5.0 * sigma + recorded.stolen_ns as f64 / 1e6).contains(&brief),
        "{brief} of {life} to {span}"
    );

    // Waits are attributed to the right place, within the time between two samples: some waits as short as an
    // interval are attributed to the next.
    let at = |place: &str| ms(sum(&samples, |s| s.stack.iter().any(|f| f == place)));
    // There is more if the recorder, too, waits for a processor. The spinner shows how busy the machine was.
    let spinner = truth.threads.iter().find(|t| t.name == "spinner").unwrap();
    let crowded = 1.0 - spinner.cpu_ns as f64 / truth.counts["spinner_life"] as f64;
    // The thread cannot report where it was preempted or overslept.
    let halves = truth.threads.iter().find(|t| t.name == "halves").unwrap();
    let asked = |place: &str| truth.counts[&format!("halves_{place}")] as f64 / 1e6;
    let off = (truth.counts["halves_life"] as f64 - halves.cpu_ns as f64) / 1e6;
    let unasked = off - asked("nap_a") - asked("nap_b");
    for place in ["nap_a", "nap_b"] {
        let (is, should) = (at(place), asked(place));
        eprintln!("{place}: {is:.0} of {should:.0} ms, {unasked:.0} ms more somewhere");
        let more = if is > should { unasked } else { 0.0 };
        assert!(
            (is - should).abs() <= (0.3 + crowded) * should + 4.0 * INTERVAL_MS + more,
            "{place}: {is:.0} of {should:.0} ms"
        );
    }

    // Stacks of waiting threads, walked from outside, reach their roots.
    let idle = |s: &WallSample| s.state != "RUNNABLE" && s.state != "WAITING_FOR_CPU" && s.thread != "brief";
    let all = sum(&samples, idle);
    let whole = sum(&samples, |s| idle(s) && s.whole);
    // If the recorder waits for a processor between its check and its walk, the thread may have continued.
    let least = 0.97 - 0.2 * crowded;
    assert!(whole as f64 >= least * all as f64, "only {whole} of {all} samples of waiting threads are whole");
    // In the run queue of a busy machine the thread may be before or after its function.
    let sleeper = |s: &WallSample| idle(s) && s.thread == "sleeper";
    let rooted = sum(&samples, |s| sleeper(s) && s.stack.iter().any(|f| f == "sleeper"));
    let sleeper = sum(&samples, sleeper);
    assert!(
        rooted as f64 >= 0.95 * sleeper as f64,
        "{rooted} of {sleeper} samples lead to the thread's function"
    );
}

#[test]
fn wall_shares_are_correct_without_frame_pointers() {
    known_answer(victim::OPTIMISED);
}

#[test]
fn wall_shares_are_correct_with_frame_pointers() {
    known_answer(victim::FRAME_POINTERS);
}

/// The library is not loaded into the program: CPU samples and waits both come from outside.
#[test]
fn static_program_wall_shares_are_correct() {
    if !skip::perf_allowed(false) {
        return skip::skip("perf_event_open is not allowed: the wall clock from outside");
    }
    known_answer(victim::STATIC);
}

#[test]
fn wall_and_cpu_engines_do_not_affect_each_other() {
    let turn = turn();
    let recorded = recorded("cpu@2ms,wall@10ms", victim::OPTIMISED, "2.5");
    let _place = turn.measured();
    let samples = wall_samples(&recorded.path);
    for name in ["sleeper", "spinner", "halves", "bursts", "waits", "main"] {
        check_thread(&recorded, &samples, name);
    }
    let recording = recorded.read();
    let count = recording.samples_by_tid();
    for thread in recorded.truth().threads.iter().filter(|t| t.cpu_ns > 100_000_000) {
        let seen = count.get(&thread.tid).copied().unwrap_or(0) as i64 * 2_000_000;
        let lost = recording.lost_by_tid().get(&thread.tid).copied().unwrap_or(0) as i64;
        let off = seen + lost - thread.cpu_ns as i64;
        assert!(off.abs() <= 15_000_000, "{}: CPU samples are off by {off} ns", thread.name);
    }
    if let Some(foreign) = Recording::read_by_jdk(&recorded.path) {
        assert_eq!(foreign.samples.len(), recording.samples.len());
        for name in [
            "profiler.WallClockSample",
            "jdk.ResidentSetSize",
            "jdk.ThreadCPULoad",
            "flightline.ProcessUsage",
        ] {
            let ours = recording.events.get(name);
            assert!(ours.is_some_and(|n| *n > 0), "{name} is missing");
            assert_eq!(foreign.events.get(name), ours, "the JDK reads {name}");
        }
    } else {
        skip::skip("no JDK: wall-clock samples and metrics by another reader");
    }
}

/// The recorder's own CPU time in ms, as it reports it.
fn own_cpu_ms(recorded: &Recorded) -> u64 {
    let text = &recorded.finished.stderr;
    let (_, after) = text.split_once("CPU time of the recorder: ").unwrap_or_else(|| panic!("{text}"));
    after.split(' ').next().unwrap().parse().unwrap()
}

fn idle_threads(threads: &str, seconds: &str) -> Recorded {
    let program = victim::c("wall_idle", victim::OPTIMISED);
    let record = Record::new().option("-e").option("wall@10ms").option("--verbose");
    record.run(program, &[threads, seconds]).expect_code(0)
}

#[test]
fn thousand_idle_threads_have_low_cost() {
    let turn = turn();
    // Both include the costs of start and end.
    let (short, long) = (idle_threads("1000", "2"), idle_threads("1000", "10"));
    let _place = turn.measured();
    let cost = own_cpu_ms(&long).saturating_sub(own_cpu_ms(&short));
    // Half a percent of a processor is the goal (40 ms of 8 s); a busy virtual machine adds to any process's CPU time.
    let stolen = (short.stolen_ns + long.stolen_ns) / 1_000_000;
    eprintln!("1000 idle threads, 10 ms: {cost} ms of CPU time in 8 s");
    assert!(cost <= 120 + stolen, "{cost} ms ({stolen} ms stolen) of CPU time for 8 s of 1000 idle threads");
    let samples = wall_samples(&long.path);
    let events = samples.len();
    let seconds = ms(sum(&samples, |s| s.state == "SLEEPING")) / 1e3;
    let truly = long.truth().counts["idle_ms"] as f64 / 1e3;
    let main_waits = 10.0;
    assert!(
        (0.98 * truly..=1.08 * truly + main_waits).contains(&seconds),
        "{seconds} thread-seconds asleep, truly {truly}"
    );
    assert!(events <= 6 * 1001, "{events} events: waits must be batched");
    let whole = sum(&samples, |s| s.whole && s.stack.iter().any(|f| f == "idle"));
    assert!(ms(whole) / 1e3 >= 0.97 * seconds, "stacks of {whole} of {seconds} s");
    assert!(!long.truth().counts.contains_key("interrupted"), "a sleep was cut short");
}

/// A thread that has run since its last sample may wait in another place, even if no thread runs now.
#[test]
fn wait_site_is_updated_after_last_thread_stops_running() {
    let turn = turn();
    let program = victim::c("wall_moves", victim::OPTIMISED);
    let recorded = Record::new().option("-e").option("wall@10ms").run(program, &["20", "2"]).expect_code(0);
    let _place = turn.measured();
    let samples = wall_samples(&recorded.path);
    let of = |name: &str| ms(sum(&samples, |s| s.stack.iter().any(|f| f == name)));
    let truth = recorded.truth();
    let (first, second) = (of("waits_first"), of("waits_second"));
    let (first_truth, second_truth) = (truth.counts["first_ms"] as f64, truth.counts["second_ms"] as f64);
    eprintln!("waits_first {first} ms, truly {first_truth}; waits_second {second} ms, truly {second_truth}");
    // Threads are checked every 10 ms, and at least every 150 ms if none runs. The time between two checks
    // may be attributed to either place.
    let between = 20.0 * 150.0;
    assert!(first <= first_truth + between, "{first} ms, truly {first_truth}");
    assert!((second - second_truth).abs() <= between, "{second} ms, truly {second_truth}");
}

#[test]
fn short_lived_children_sleep_is_recorded() {
    let _place = beside();
    let script = "i=0; while [ $i -lt 60 ]; do (exec sleep 0.01) & i=$((i+1)); done; wait; exec sh -c 'sleep 0.2; exit 7'";
    let record = Record::new().option("-e").option("wall@2ms");
    let recorded = record.run("/bin/sh", &["-c", script]).expect_code(7);
    let samples = wall_samples(&recorded.path);
    let slept = sum(&samples, |s| s.thread == "sleep" && s.state == "SLEEPING") as f64 * 2.0;
    // 60 × 10 ms and 200 ms, unless a busy machine makes it longer.
    assert!(slept >= 0.8 * 800.0, "{slept} ms of sleep");
}

#[test]
fn threads_option_limits_wall_and_cpu_samples() {
    let _place = beside();
    let program = victim::c("wall", victim::OPTIMISED);
    let record = Record::new()
        .option("-e")
        .option("cpu,wall@10ms")
        .option("--only-thread")
        .option("^(spinner|halves)$");
    let recorded = record.run(program, &["1.5"]).expect_code(0);
    let truth = recorded.truth();
    let tid = |name: &str| truth.threads.iter().find(|t| t.name == name).unwrap().tid;
    let samples = wall_samples(&recorded.path);
    let others = samples.iter().filter(|s| s.tid != tid("spinner") && s.tid != tid("halves")).count();
    assert!(others == 0 && !samples.is_empty(), "{others} of {} samples are of other threads", samples.len());
    let count = recorded.read().samples_by_tid();
    assert!(count.contains_key(&tid("spinner")) && !count.contains_key(&tid("bursts")), "{count:?}");
    let refused = Record::new().option("--only-thread").option("(").run("/bin/true", &[]);
    assert_eq!((refused.finished.code(), refused.finished.stderr.lines().count()), (2, 1));
}

#[test]
fn invalid_wall_intervals_are_rejected() {
    let _place = beside();
    for bad in ["wall@0ms", "wall@2s", "wall@soon"] {
        let refused = Record::new().option("-e").option(bad).run("/bin/true", &[]);
        assert_eq!(refused.finished.code(), 2, "{bad}: {}", refused.finished.stderr);
        assert_eq!(refused.finished.stderr.lines().count(), 1, "{}", refused.finished.stderr);
    }
}
