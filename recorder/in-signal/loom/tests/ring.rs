//! The ring under every interleaving, bounded by the number of preemptions: three of them find nearly all
//! faults.

use flightline_in_signal_loom::layout::{MIN_RING_WORDS, RingHeader, record};
use flightline_in_signal_loom::ring::{Next, Refused, Ring};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

struct Memory {
    header: RingHeader,
    words: Vec<AtomicU64>,
}

impl Memory {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        let header = RingHeader { head: zero(), tail: zero(), releasing: zero() };
        Arc::new(Self { header, words: (0..MIN_RING_WORDS).map(|_| zero()).collect() })
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.header, &self.words).expect("a power of two")
    }

    /// Writes a record in which every word is `value`.
    fn put(&self, value: u64, payload: usize) -> Result<(), Refused> {
        let claim = self.ring().claim(record::SAMPLE, payload)?;
        claim.words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
        claim.publish();
        Ok(())
    }

    /// Reads all records, until the ring is empty or the next record is still being written.
    fn take(&self, into: &mut Vec<u64>) {
        loop {
            match self.ring().next() {
                Next::Ready { kind, payload, len } => {
                    assert_eq!(kind, record::SAMPLE);
                    let values: Vec<u64> = payload.iter().map(|word| word.load(Ordering::Relaxed)).collect();
                    assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "torn: {values:?}");
                    assert_eq!(values.len() as u64 + 1, len);
                    into.push(values[0]);
                    self.ring().release(len);
                }
                Next::Empty | Next::InFlight => return,
                Next::Corrupt => panic!("corrupt"),
            }
        }
    }
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

/// Every record arrives once and complete, or its producer got an error. Records of one producer arrive in
/// order.
#[test]
fn two_producers_and_consumer_exchange_every_record() {
    model(|| {
        let memory = Memory::new();
        let producers: Vec<_> = [10, 20]
            .into_iter()
            .map(|first| {
                let memory = Arc::clone(&memory);
                loom::thread::spawn(move || {
                    (first..first + 2).filter(|value| memory.put(*value, 2).is_ok()).collect::<Vec<u64>>()
                })
            })
            .collect();
        let mut found = Vec::new();
        memory.take(&mut found);
        let put: Vec<Vec<u64>> = producers.into_iter().map(|one| one.join().unwrap()).collect();
        memory.take(&mut found);
        for of_one in &put {
            let mine: Vec<u64> = found.iter().copied().filter(|value| value / 10 == of_one.first().unwrap_or(&0) / 10).collect();
            assert!(of_one.is_empty() || mine == *of_one, "{mine:?} of {of_one:?}");
        }
        assert_eq!(found.len(), put.iter().map(Vec::len).sum::<usize>(), "{found:?} of {put:?}");
    });
}

/// At the ring's end, the gap that is too short for a record is padded exactly once, whichever producer does
/// it, while the consumer frees records.
#[test]
fn gap_at_ring_end_is_padded_once() {
    model(|| {
        let memory = Memory::new();
        memory.put(1, 4).unwrap();
        let mut found = Vec::new();
        memory.take(&mut found);
        let other = {
            let memory = Arc::clone(&memory);
            loom::thread::spawn(move || memory.put(2, 3).is_ok())
        };
        let mine = memory.put(3, 3).is_ok();
        memory.take(&mut found);
        let others = other.join().unwrap();
        memory.take(&mut found);
        let mut expected = vec![1];
        expected.extend(others.then_some(2));
        expected.extend(mine.then_some(3));
        found.sort_unstable();
        assert_eq!(found, expected);
    });
}

/// A producer dies after its claim and before its commit. The other producer's record arrives, the torn one
/// does not.
#[test]
fn dead_producer_record_is_skipped() {
    model(|| {
        let memory = Memory::new();
        let other = {
            let memory = Arc::clone(&memory);
            loom::thread::spawn(move || memory.put(7, 2).is_ok())
        };
        let dead = memory.ring().claim(record::SAMPLE, 2).map(|claim| claim.words[0].store(9, Ordering::Relaxed)).is_ok();
        let put = other.join().unwrap();
        let mut found = Vec::new();
        memory.take(&mut found);
        let skipped = memory.ring().skip_torn();
        memory.take(&mut found);
        assert_eq!((skipped, found), (dead, if put { vec![7] } else { vec![] }));
        assert!(!memory.ring().skip_torn());
    });
}

/// A consumer is killed while it frees a record. Another one resumes at the same position while a producer
/// writes.
#[test]
fn successor_resumes_after_dead_consumer() {
    model(|| {
        let memory = Memory::new();
        memory.put(1, 2).unwrap();
        let producer = {
            let memory = Arc::clone(&memory);
            loom::thread::spawn(move || (2..4).filter(|value| memory.put(*value, 2).is_ok()).collect::<Vec<u64>>())
        };
        let Next::Ready { len, .. } = memory.ring().next() else { panic!("the record is there") };
        // `release` was killed before its second store.
        memory.header.releasing.store(len, Ordering::Release);
        memory.words[0].store(1 << 32, Ordering::Relaxed);
        let put = producer.join().unwrap();
        // The successor starts when no producer is writing.
        memory.ring().resume(0);
        let mut found = Vec::new();
        memory.take(&mut found);
        assert_eq!(found, put);
    });
}
