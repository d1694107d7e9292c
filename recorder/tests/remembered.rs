//! Tests that the drain's memory does not grow with the number of chunks: counts its cached entries by kind,
//! with programs that never repeat themselves. Memory over time is tested by `.ci/long soak`.

use crate::fake_program;

use std::{fs, path::Path, time::Duration};

use flightline_recorder::{Drain, Settings, Target, repository::Repository, session::SessionClient};

use fake_program::{Fake, SLOTS};

const PERIOD_NS: u64 = 100_000;

/// Starts a drain with chunks of 2 MiB, of which eight are retained.
fn drain(dir: &Path) -> Drain {
    let repository = Repository { max_size: Some(16 << 20), ..Repository::new(dir.join("repository")) };
    let mut settings = Settings::default();
    settings.cpu.period = Duration::from_nanos(PERIOD_NS);
    Drain::start(settings, Target::Repository(repository)).unwrap()
}

type Counts = Vec<(&'static str, usize)>;

fn of(counts: &Counts, kind: &str) -> usize {
    counts.iter().find(|(name, _)| *name == kind).unwrap().1
}

/// Updates the highest count of each kind.
fn highest(peaks: &mut Counts, now: &Counts) {
    peaks.resize(now.len(), ("", 0));
    peaks.iter_mut().zip(now).for_each(|(peak, now)| *peak = (now.0, peak.1.max(now.1)));
}

/// Checks that no kind has grown by `more` or above.
#[track_caller]
fn assert_no_more(before: &Counts, now: &Counts, more: usize) {
    for ((kind, before), (_, now)) in before.iter().zip(now) {
        assert!(*now <= before + more, "{kind}: {now}, it was {before}");
    }
}

/// Returns addresses of code in a file: the kernel's vDSO in our own memory, which is read immediately and
/// has no lines.
fn addresses() -> Vec<u64> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let vdso = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
    let start = u64::from_str_radix(vdso.split('-').next().unwrap(), 16).unwrap();
    (0..64).map(|i| start + 0x800 + i * 4).collect()
}

#[test]
fn stack_memory_is_bounded_over_many_chunks() {
    const DEPTH: usize = 250;
    const EPOCHS: usize = 3;
    /// Rounds between two flushes, at which the limits are applied.
    const ROUNDS: usize = 16;
    let dir = tempfile::tempdir().unwrap();
    let mut drain = drain(dir.path());
    let seen = SessionClient::open(drain.session_dir()).unwrap();
    let fake = Fake::new(drain.session_dir(), std::process::id(), 1);
    // No thread uses more CPU time than possible.
    (0..SLOTS).for_each(|slot| fake.start_thread(slot, 1000 + slot, PERIOD_NS));
    let addresses = addresses();
    // Load the symbols first, because samples that wait for them would come at the same time.
    fake.sample(0, PERIOD_NS, &addresses, 0);
    while of(&drain.remembered().into(), "addresses") < addresses.len() {
        drain.round();
    }
    let (mut random, mut stacks, mut in_round) = (88172645463325252u64, 0usize, 0);
    let (mut epochs, mut before) = (vec![Counts::new()], 0);
    while epochs.len() <= EPOCHS {
        for _ in 0..ROUNDS {
            let mut frames = [0; DEPTH];
            let begin = stacks;
            loop {
                for frame in &mut frames {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    *frame = addresses[(random >> 30) as usize % addresses.len()];
                }
                if !fake.sample(stacks as u32 % SLOTS, PERIOD_NS, &frames, 0) {
                    break;
                }
                stacks += 1;
            }
            in_round = stacks - begin;
            drain.round();
            let now: Counts = drain.remembered().into();
            // The dictionary was cleared, so another epoch starts.
            if of(&now, "stacks") < before {
                epochs.push(Counts::new());
            }
            before = of(&now, "stacks");
            highest(epochs.last_mut().unwrap(), &now);
        }
        seen.ask_flush();
        assert!(stacks < 200_000, "nothing is forgotten: {} {:?}", epochs.len(), epochs);
    }
    let report = drain.finish(&|| false);
    eprintln!("{stacks} stacks, {in_round} a round, {} chunks: {:?}", report.output.chunks, epochs[1]);
    assert!(report.output.chunks > 20 && report.cpu.samples as usize == stacks + 1);
    for epoch in &epochs[1..EPOCHS] {
        assert_no_more(&epochs[0], epoch, (ROUNDS + 1) * in_round);
        assert!(of(epoch, "stacks") * 2 < stacks);
    }
}

#[test]
fn thread_memory_is_bounded_over_many_chunks() {
    const BATCHES: u32 = 1600;
    let dir = tempfile::tempdir().unwrap();
    let mut drain = drain(dir.path());
    let seen = SessionClient::open(drain.session_dir()).unwrap();
    let fake = Fake::new(drain.session_dir(), std::process::id(), 1);
    let mut halves = [Counts::new(), Counts::new()];
    for batch in 0..BATCHES {
        for slot in 0..SLOTS {
            fake.start_thread(slot, 10_000 + batch * SLOTS + slot, PERIOD_NS);
            fake.sample(slot, PERIOD_NS, &[1, 2, 3], 0);
            fake.end_thread(slot, 0);
        }
        if batch % 4 == 0 {
            seen.ask_flush();
        }
        drain.round();
        highest(&mut halves[usize::from(batch >= BATCHES / 2)], &drain.remembered().into());
    }
    let report = drain.finish(&|| false);
    let all = (BATCHES * SLOTS) as usize;
    eprintln!("{} threads, {} chunks: {halves:?}", report.threads, report.output.chunks);
    assert!(report.threads as usize == all && report.output.chunks > 5);
    assert_no_more(&halves[0], &halves[1], 8 * SLOTS as usize);
    assert!(of(&halves[1], "threads") < all / 2 && of(&halves[1], "accounts") <= 8 * SLOTS as usize);
}
