//! The chunk that an agent sends, in the form that `flightline record` writes. Its method names are unique to the agent.

use std::error::Error;

use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, Geometry, WriteError};

/// The number of threads, which are all busy.
const THREADS: u64 = 8;
/// Samples of a thread in ten seconds at 99 Hz.
const EACH: u64 = 990;
/// Samples in a chunk.
pub const SAMPLES: u64 = THREADS * EACH;
/// The duration of a chunk, ns.
const LENGTH: i64 = 10_000_000_000;
/// Distinct stacks in a chunk. For comparison: 961 samples of a busy compiler in ten seconds had 640.
const STACKS: u64 = 1200;
const METHODS: u64 = 600;
/// Keys of the constants that all methods share.
const CLASS: u64 = METHODS + 1;
const DESCRIPTOR: u64 = METHODS + 2;

/// Returns the chunk of agent `agent` that ends at `end`, UTC ms.
pub fn chunk(agent: u64, end: i64) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let line = ClockLine {
        start_ticks: Ticks(0),
        start_epoch_ns: end * 1_000_000 - LENGTH,
        ticks_per_second: 1_000_000_000,
    };
    let mut random = Random((agent + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut out = Vec::with_capacity(400 << 10);
    let mut chunk = ChunkWriter::begin(Geometry::Patched, &line, FileOffset(0), Ticks(0))?;
    constants(&mut chunk, agent, &mut random)?;
    for number in 0..SAMPLES {
        // All threads in turn, each with a random deviation from its period.
        let at = (number / THREADS) as i64 * (LENGTH / EACH as i64) + random.below(10_000_000) as i64;
        // A few stacks are frequent, most are rare.
        let stack = random.below(STACKS) * random.below(STACKS) / STACKS;
        chunk.event(schema::EXECUTION_SAMPLE, |e| {
            e.ticks(Ticks(at)).key(1 + number % THREADS).key(1 + stack).key(thread_state::DEFAULT);
        })?;
        // Once a second, as the recorder does.
        if number % (SAMPLES / 10) == SAMPLES / 10 - 1 {
            for thread in 1..=THREADS {
                chunk.event(schema::THREAD_CPU, |e| {
                    e.ticks(Ticks(at)).key(thread).long(at).long(at).long(0).long(0);
                })?;
            }
            chunk.flush(Ticks(at), &mut out)?;
        }
    }
    chunk.finish(Ticks(LENGTH), true, &mut out)?;
    Ok(out)
}

fn constants(chunk: &mut ChunkWriter, agent: u64, random: &mut Random) -> Result<(), WriteError> {
    chunk.constant(schema::THREAD_GROUP, 1, |g| _ = g.key(0).string(&format!("service-{agent}")))?;
    for thread in 1..=THREADS {
        chunk.constant(schema::THREAD, thread, |t| {
            t.string(&format!("worker-{thread}")).long(4000 + thread as i64).null().long(0).key(1);
        })?;
    }
    chunk.constant(schema::SYMBOL, DESCRIPTOR, |s| _ = s.string("()L;"))?;
    chunk.constant(schema::SYMBOL, CLASS, |s| _ = s.string(&format!("libservice-{agent}.so")))?;
    chunk.constant(schema::CLASS, CLASS, |c| _ = c.key(0).key(CLASS).key(0).int(0).boolean(false))?;
    for method in 1..=METHODS {
        let name = format!("service_{agent}::module_{}::Handler<T>::function_{method}", method % 17);
        chunk.constant(schema::SYMBOL, method, |s| _ = s.string(&name))?;
        chunk.constant(schema::METHOD, method, |m| {
            m.key(CLASS).key(method).key(DESCRIPTOR).int(0x100).boolean(false);
        })?;
    }
    for stack in 1..=STACKS {
        let depth = 15 + random.below(31);
        chunk.constant(schema::STACK_TRACE, stack, |s| {
            s.boolean(false).array(depth as usize);
            for level in 0..depth {
                // There are fewer different methods near the root.
                let method = 1 + random.below(METHODS * (depth - level) / depth + 1);
                s.key(method.min(METHODS)).int(random.below(900) as i32).int(0).key(frame_type::CPP);
            }
        })?;
    }
    Ok(())
}

/// xorshift.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}
