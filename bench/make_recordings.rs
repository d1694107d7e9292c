//! Makes recordings for benchmarks of the store:
//! `cargo run --release -p jfr-format --example make_recordings -- DIR [SAMPLES] [STACKS] [HOSTS] [PART]`. Further parts have other samples
//! of the same stacks.
//!
//! The data is that of the comparison of layouts: 50,000 stacks, zipf(1), 40 frames deep, 12,000 frames, 10 services, 2 days, 20 hosts, 4000
//! tasks. There is one recording per service, day and host (`DIR/SERVICE/HOST-DAY.jfr`), with 200 threads. A thread works on a task for
//! some 40 samples, then on another one.

use std::error::Error;
use std::fs;
use std::path::Path;

use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, Geometry};

const FRAMES: u64 = 12_000;
const SERVICES: usize = 10;
const TASKS: u64 = 4000;
const THREADS: u64 = 200;
/// The number of samples for which a thread works on one task.
const OF_TASK: u64 = 40;
/// The starts of the days, in s since 1970: 20 and 21 November 2025.
const DAYS: [i64; 2] = [1_763_596_800, 1_763_683_200];
const DAY: i64 = 86_400_000_000_000;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Steele's splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ number >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Stacks, and their cumulative frequencies.
struct Stacks {
    /// Frames, root first.
    paths: Vec<Vec<u64>>,
    sums: Vec<f64>,
}

impl Stacks {
    fn new(count: usize, random: &mut Random) -> Self {
        let mut paths: Vec<Vec<u64>> = Vec::with_capacity(count);
        while paths.len() < count {
            // A stack has most of its frames in common with another one.
            let mut path = match paths.len() as u64 {
                0 => Vec::new(),
                known => paths[random.below(known) as usize].clone(),
            };
            path.truncate((10 + random.below(40)) as usize);
            path.extend((0..1 + random.below(20)).map(|_| random.below(FRAMES)));
            paths.push(path);
        }
        let sum = |sum: &mut f64, rank: usize| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        };
        Self { paths, sums: (1..=count).scan(0.0, sum).collect() }
    }

    fn any(&self, random: &mut Random) -> usize {
        let all = self.sums[self.sums.len() - 1];
        let at = (random.next() >> 11) as f64 / (1u64 << 53) as f64 * all;
        self.sums.partition_point(|&sum| sum < at).min(self.sums.len() - 1)
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| arguments.get(at).map_or(Ok(or), |text| text.parse());
    let to = Path::new(arguments.first().ok_or("which folder?")?);
    let (samples, stacks, hosts) = (number(1, 5_000_000)?, number(2, 50_000)?, number(3, 20)?);
    let mut random = Random(1);
    let stacks = Stacks::new(stacks, &mut random);
    let mut random = Random(random.next().wrapping_add(number(4, 0)? as u64));
    let each = samples / (SERVICES * hosts * DAYS.len());
    for service in 0..SERVICES {
        let folder = to.join(format!("svc{service}"));
        fs::create_dir_all(&folder)?;
        for host in 0..hosts {
            for (number, begin) in DAYS.into_iter().enumerate() {
                let recording = recording(begin, each, &stacks, &mut random)?;
                fs::write(folder.join(format!("host{host}-{number}.jfr")), recording)?;
            }
        }
    }
    Ok(())
}

/// One chunk of a day.
fn recording(begin: i64, samples: usize, stacks: &Stacks, random: &mut Random) -> Result<Vec<u8>> {
    let line = ClockLine {
        start_ticks: Ticks(0),
        start_epoch_ns: begin * 1_000_000_000,
        ticks_per_second: 1_000_000_000,
    };
    let mut out = Vec::new();
    let mut chunk = ChunkWriter::begin(Geometry::Patched, &line, FileOffset(0), Ticks(0))?;
    constants(&mut chunk)?;
    let mut written = vec![false; stacks.paths.len()];
    let mut told = vec![false; TASKS as usize];
    // The task of each thread, and the number of samples left for it.
    let mut works: Vec<(u64, u64)> = vec![(0, 0); THREADS as usize];
    for number in 0..samples {
        let at = DAY / samples as i64 * number as i64 + random.below(DAY as u64 / samples as u64) as i64;
        let stack = stacks.any(random);
        if !std::mem::replace(&mut written[stack], true) {
            chunk.constant(schema::STACK_TRACE, 1 + stack as u64, |s| {
                let path = &stacks.paths[stack];
                s.boolean(false).array(path.len());
                for &frame in path.iter().rev() {
                    s.key(1 + frame).int(frame as i32 % 900).int(0).key(frame_type::CPP);
                }
            })?;
        }
        let thread = random.below(THREADS);
        let (task, left) = &mut works[thread as usize];
        if *left == 0 {
            (*task, *left) = (random.below(TASKS), OF_TASK);
        }
        *left -= 1;
        if !std::mem::replace(&mut told[*task as usize], true) {
            let labels = format!("{{\"task\":\"task{task}\"}}");
            chunk.constant(schema::STRING, 1 + *task, |s| _ = s.string(&labels))?;
            chunk.constant(schema::SPAN_CONTEXT, 1 + *task, |c| {
                c.long(0).long(0).long(0).long(0).int(0).key(1 + *task);
            })?;
        }
        chunk.event(schema::SAMPLE_CONTEXT, |e| {
            e.ticks(Ticks(at)).key(1 + thread).key(1 + *task).long(0);
        })?;
        chunk.event(schema::EXECUTION_SAMPLE, |e| {
            e.ticks(Ticks(at)).key(1 + thread).key(1 + stack as u64).key(thread_state::DEFAULT);
        })?;
        if number % 10_000 == 9_999 {
            chunk.flush(Ticks(at), &mut out)?;
        }
    }
    chunk.finish(Ticks(DAY - 1), true, &mut out)?;
    Ok(out)
}

fn constants(chunk: &mut ChunkWriter) -> Result<()> {
    let (class, descriptor) = (FRAMES + 1, FRAMES + 2);
    chunk.constant(schema::THREAD_GROUP, 1, |g| _ = g.key(0).string("made (1)"))?;
    for thread in 1..=THREADS {
        chunk.constant(schema::THREAD, thread, |t| {
            t.string(&format!("worker-{thread}")).long(4000 + thread as i64).null().long(0).key(1);
        })?;
    }
    chunk.constant(schema::SYMBOL, descriptor, |s| _ = s.string("()L;"))?;
    chunk.constant(schema::SYMBOL, class, |s| _ = s.string("libmade.so"))?;
    chunk.constant(schema::CLASS, class, |c| _ = c.key(0).key(class).key(0).int(0).boolean(false))?;
    for frame in 0..FRAMES {
        let name = format!("made::module_{}::Handler<T>::function_{frame}", frame % 97);
        chunk.constant(schema::SYMBOL, 1 + frame, |s| _ = s.string(&name))?;
        chunk.constant(schema::METHOD, 1 + frame, |m| {
            m.key(class).key(1 + frame).key(descriptor).int(0x100).boolean(false);
        })?;
    }
    Ok(())
}
