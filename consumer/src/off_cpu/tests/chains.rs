//! Synthetic threads that fall asleep and wake each other at random. Each stores the chain of wakers of
//! its last sleep.

use std::collections::HashMap;

use super::*;

const THREADS: usize = 14;
const DEPTHS: [usize; 4] = [1, 3, DEPTH, 12];
/// Length of stored chains; longer than any requested depth.
const CARRIED: usize = 16;

/// The waker of a sleep, and the end of the sleep.
#[derive(Clone, Copy)]
struct Ended {
    by: Option<usize>,
    over: i64,
}

/// The state of a thread.
#[derive(Clone, Default)]
struct State {
    /// Start of its sleep.
    asleep: Option<i64>,
    /// Time from which it runs.
    runs: i64,
    /// The end of its last sleep, before it the end of its waker's last sleep at the wake-up, and so on.
    carried: Vec<Ended>,
}

/// Counts of the chains, to verify that each kind occurs.
#[derive(Debug, Default)]
struct Met {
    longest: usize,
    loops: usize,
    cut_by_depth: usize,
    over_before: usize,
    /// Consecutive wake-ups by one thread without a sleep in between.
    woken_at_once: usize,
}

fn name(of: usize) -> String {
    format!("t{of}")
}

/// The expected chain, up to `depth` wakers, of a sleep that began at `start`, from the chain stored at
/// the wake-up.
fn chain(sleeper: usize, start: i64, carried: &[Ended], depth: usize, met: &mut Met) -> String {
    let mut text = format!("{};wait", name(sleeper));
    let mut seen = vec![sleeper];
    for (level, ended) in carried.iter().enumerate() {
        // The first is the sleep itself.
        if level > 0 && ended.over <= start {
            met.over_before += 1;
            break;
        }
        if level == depth {
            met.cut_by_depth += 1;
            break;
        }
        met.longest = met.longest.max(level + 1);
        let Some(by) = ended.by else {
            text.push_str(";--;[irq]");
            break;
        };
        text.push_str(&format!(";--;wake;{}", name(by)));
        if seen.contains(&by) {
            met.loops += 1;
            break;
        }
        seen.push(by);
    }
    text
}

/// Depth, fan-in and loops: the chain that ended each sleep is known.
#[test]
fn random_wakeup_chains_match_reference_and_totals() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let names: Vec<String> = (0..THREADS).map(name).collect();
    let mut met = Met::default();
    for round in 0..60 {
        let depth = DEPTHS[round % DEPTHS.len()];
        let mut threads = vec![State::default(); THREADS];
        let mut woke: Vec<usize> = vec![0; THREADS];
        let mut intervals = Vec::new();
        let mut truth: HashMap<String, u64> = HashMap::new();
        let mut time = 1;
        for _ in 0..800 {
            time += 1 + next(40) as i64;
            let at = next(THREADS as u64) as usize;
            let awake = |of: &State| of.asleep.is_none() && of.runs <= time;
            let Some(start) = threads[at].asleep else {
                if !awake(&threads[at]) {
                    continue;
                }
                if next(5) == 0 {
                    // Preempted: no thread caused it, and it is not a link.
                    let nanos = 1 + next(60);
                    intervals.push(TestInterval(&names[at], time, nanos, nanos, "R", "wait", None));
                    threads[at].runs = time + nanos as i64;
                } else {
                    threads[at].asleep = Some(time);
                    woke[at] = 0;
                }
                continue;
            };
            let by = match next(5) {
                0 => None,
                _ => (0..4).map(|_| next(THREADS as u64) as usize).find(|&by| awake(&threads[by])),
            };
            let queue = next(20);
            let over = time + queue as i64;
            let mut carried = vec![Ended { by, over }];
            if let Some(by) = by {
                carried.extend(threads[by].carried.iter().take(CARRIED));
                woke[by] += 1;
                met.woken_at_once = met.woken_at_once.max(woke[by]);
            }
            let nanos = (over - start) as u64;
            *truth.entry(chain(at, start, &carried, depth, &mut met)).or_default() += nanos;
            let waker = by.map_or(("irq", "kirq"), |by| (names[by].as_str(), "wake"));
            let state = if next(4) == 0 { "D" } else { "S" };
            intervals.push(TestInterval(&names[at], start, nanos, queue, state, "wait", Some(waker)));
            threads[at] = State { asleep: None, runs: over, carried };
        }
        // In random order.
        (1..intervals.len()).rev().for_each(|i| intervals.swap(i, next(i as u64 + 1) as usize));
        let user = |graph| Options { user_only: true, depth, ..Options::new(graph) };
        let mut expected: Vec<String> =
            truth.iter().map(|(chain, nanos)| format!("{chain} {nanos}")).collect();
        let mut found = lines(&intervals, user(Graph::Chain));
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "round {round}, {depth} levels");
        let total = |of| graph(&intervals, Options::new(of)).0.total;
        let off = total(Graph::OffCpu);
        let queued = Options { states: States::BLOCKED, ..Options::new(Graph::Time) };
        // Without preempted threads, like the other graphs.
        let queued = lines(&intervals, queued);
        let queued = queued.iter().filter(|line| line.contains("[runnable]"));
        let queued: u64 = queued.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(off, total(Graph::Wakeup) + queued);
        assert_eq!([total(Graph::OffWake), total(Graph::Chain)], [off, off]);
    }
    let Met { longest, loops, cut_by_depth, over_before, woken_at_once } = met;
    assert!(longest > DEPTH && loops >= 50 && cut_by_depth >= 100, "{met:?}");
    assert!(over_before >= 100 && woken_at_once >= 4, "{met:?}");
}
