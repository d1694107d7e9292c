//! Writes a recording twice: as a patched file, and as the bytes of a pipe in chunks of fixed size.
//!
//! ```text
//! cargo run --example write_demo -- patched.jfr fixed.jfr [samples] [chunk-size] [ms-per-flush]
//! ```
//! Both hold the same events: three threads, stacks with shared frames, and every event type of the schema. Samples are
//! 10 ms apart, flushes 1 s; with 1000 ms per flush the files grow as they would while something is recorded.

use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, FileOutput, Geometry, Output, StreamOutput, WriteError};
use std::collections::HashSet;
use std::error::Error;
use std::fs::File;
use std::time::Duration;

const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(5_000_000),
    start_epoch_ns: 1_750_000_000_000_000_000,
    ticks_per_second: 1_000_000,
};
const TICKS_PER_SAMPLE: i64 = 10_000;
const SAMPLES_PER_FLUSH: i64 = 100;
const THREADS: [(u64, &str); 3] = [(4711, "main"), (4712, "worker-0"), (1_234_567, "größer ☃")];
const FUNCTIONS: [&str; 6] = ["main", "parse", "compress", "hash_block", "std::vec::Vec<T>::push", "memcpy"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(patched), Some(fixed)) = (arguments.next(), arguments.next()) else {
        return Err("usage: write_demo PATCHED.jfr FIXED.jfr [SAMPLES] [CHUNK_SIZE] [MS_PER_FLUSH]".into());
    };
    let samples = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let size = arguments.next().map_or(Ok(32 << 10), |text| text.parse())?;

    let pause = Duration::from_millis(arguments.next().map_or(Ok(0), |text| text.parse())?);

    let mut out = FileOutput::new(File::create(patched)?)?;
    Recording::begin(Geometry::Patched, &mut out)?.run(samples, pause)?;
    let mut out = StreamOutput::new(File::create(fixed)?);
    Recording::begin(Geometry::Fixed { size }, &mut out)?.run(samples, pause)
}

struct Recording<'a> {
    geometry: Geometry,
    out: &'a mut dyn Output,
    chunk: ChunkWriter,
    /// Stacks and threads whose constants are in this chunk.
    defined: HashSet<(u32, u64)>,
}

impl<'a> Recording<'a> {
    fn begin(geometry: Geometry, out: &'a mut dyn Output) -> Result<Recording<'a>, Box<dyn Error>> {
        let mut chunk = ChunkWriter::begin(geometry, &LINE, FileOffset(0), LINE.start_ticks)?;
        chunk.enable_segments(0);
        Ok(Recording { geometry, out, chunk, defined: HashSet::new() })
    }

    fn run(mut self, samples: i64, pause: Duration) -> Result<(), Box<dyn Error>> {
        let mut now = LINE.start_ticks;
        self.or_next_chunk(now, |recording| recording.opening(LINE.start_ticks))?;
        for i in 0..samples {
            now = Ticks(LINE.start_ticks.0 + i * TICKS_PER_SAMPLE);
            self.or_next_chunk(now, |recording| recording.sample(i, now))?;
            if i % SAMPLES_PER_FLUSH == SAMPLES_PER_FLUSH - 1 {
                self.or_next_chunk(now, |recording| recording.ledger(now))?;
                self.chunk.flush(now, self.out)?;
                std::thread::sleep(pause);
            }
        }
        self.chunk.finish(now, true, self.out)?;
        Ok(())
    }

    /// Does `write`; if the chunk is full, retries in a new one.
    fn or_next_chunk(
        &mut self,
        now: Ticks,
        write: impl Fn(&mut Self) -> Result<(), WriteError>,
    ) -> Result<(), Box<dyn Error>> {
        match write(self) {
            Err(WriteError::Full { .. }) => {}
            result => return Ok(result?),
        }
        self.chunk.finish(now, false, self.out)?;
        let segment = self.chunk.next_segment();
        self.chunk = ChunkWriter::begin(self.geometry, &LINE, self.chunk.end(), now)?;
        if let Some(segment) = segment {
            self.chunk.enable_segments(segment);
        }
        self.defined.clear();
        Ok(write(self)?)
    }

    fn sample(&mut self, i: i64, now: Ticks) -> Result<(), WriteError> {
        let (thread, _) = THREADS[i as usize % THREADS.len()];
        self.thread(i as usize % THREADS.len())?;
        let stack = self.stack(i as usize % 40)?;
        self.chunk.event(schema::EXECUTION_SAMPLE, |e| {
            e.ticks(now).key(thread).key(stack).key(thread_state::DEFAULT);
        })
    }

    fn thread(&mut self, index: usize) -> Result<(), WriteError> {
        let (tid, name) = THREADS[index];
        if self.first((schema::THREAD.0, tid)) {
            if self.first((schema::THREAD_GROUP.0, 1)) {
                self.chunk.constant(schema::THREAD_GROUP, 1, |g| {
                    g.key(0).string("demo (4711)");
                })?;
            }
            self.chunk.constant(schema::THREAD, tid, |t| {
                t.string(name).long(tid as i64).null().long(0).key(1);
            })?;
        }
        Ok(())
    }

    /// Stack `index`: a path of functions from main; some are truncated, some very deep.
    fn stack(&mut self, index: usize) -> Result<u64, WriteError> {
        let key = index as u64 + 1;
        if self.first((schema::STACK_TRACE.0, key)) {
            let depth = if index == 39 { 1024 } else { 1 + index % FUNCTIONS.len() };
            let functions: Vec<usize> = (0..depth).rev().map(|level| level % FUNCTIONS.len()).collect();
            for &function in &functions {
                self.method(function)?;
            }
            self.chunk.constant(schema::STACK_TRACE, key, |s| {
                s.boolean(index % 7 == 3).array(depth);
                for &function in &functions {
                    s.key(function as u64 + 1).int(0).int(0).key(frame_type::CPP);
                }
            })?;
        }
        Ok(key)
    }

    fn method(&mut self, function: usize) -> Result<(), WriteError> {
        const DESCRIPTOR: u64 = 1000;
        const CLASS: u64 = 1001;
        let key = function as u64 + 1;
        if self.first((schema::CLASS.0, CLASS)) {
            self.chunk.constant(schema::SYMBOL, DESCRIPTOR, |s| {
                s.string("()L;");
            })?;
            self.chunk.constant(schema::SYMBOL, CLASS, |s| {
                s.string("libdemo.so");
            })?;
            self.chunk.constant(schema::CLASS, CLASS, |c| {
                c.key(0).key(CLASS).key(0).int(0).boolean(false);
            })?;
        }
        if self.first((schema::METHOD.0, key)) {
            self.chunk.constant(schema::SYMBOL, key, |s| {
                s.string(FUNCTIONS[function]);
            })?;
            self.chunk.constant(schema::METHOD, key, |m| {
                m.key(CLASS).key(key).key(DESCRIPTOR).int(0x100).boolean(false);
            })?;
        }
        Ok(())
    }

    fn first(&mut self, constant: (u32, u64)) -> bool {
        self.defined.insert(constant)
    }

    fn ledger(&mut self, now: Ticks) -> Result<(), WriteError> {
        for (index, (thread, _)) in THREADS.into_iter().enumerate() {
            self.thread(index)?;
            self.chunk.event(schema::THREAD_CPU, |e| {
                e.ticks(now).key(thread).long(330_000_000).long(320_000_000).long(7_000_000).long(0);
            })?;
        }
        self.chunk.event(schema::SAMPLE_LOSS, |e| {
            e.ticks(now).key(4711).string("ring full").long(1).long(7_000_000);
        })?;
        self.chunk.event(schema::SAMPLE_TRUNCATED, |e| {
            e.ticks(now).key(4711).string("depth").long(14);
        })?;
        self.chunk.event(schema::CLOCK_ANCHOR, |e| {
            let nanos = now.0 * 1000;
            e.ticks(now).long(nanos).long(LINE.start_epoch_ns + nanos - LINE.start_ticks.0 * 1000);
        })?;
        self.chunk.event(schema::CPU_LOAD, |e| {
            e.ticks(now).float(0.5).float(0.125).float(0.75);
        })?;
        self.chunk.event(schema::THREAD_CPU_LOAD, |e| {
            e.ticks(now).key(4711).float(0.25).float(0.0625);
        })?;
        self.chunk.event(schema::DATA_LOSS, |e| {
            e.ticks(now).long(4096).long(8192);
        })
    }

    fn opening(&mut self, now: Ticks) -> Result<(), WriteError> {
        self.settings(now)?;
        self.surroundings(now)?;
        self.threads_and_other_samples(now)?;
        self.spans(now)
    }

    fn spans(&mut self, now: Ticks) -> Result<(), WriteError> {
        const LABELS: u64 = 1;
        const NAME: u64 = 2;
        let (main, worker, span, root) = (THREADS[0].0, THREADS[1].0, -5, 77);
        if self.first((schema::STRING.0, LABELS)) {
            for (key, text) in [(LABELS, r#"{"endpoint":"/größe"}"#), (NAME, "GET /größe")] {
                self.chunk.constant(schema::STRING, key, |s| {
                    s.string(text);
                })?;
            }
            self.chunk.constant(schema::SPAN_CONTEXT, 1, |c| {
                c.long(span).long(root).long(1 << 62).long(-1).int(1).key(LABELS);
            })?;
        }
        self.chunk.event(schema::SAMPLE_CONTEXT, |e| {
            e.ticks(now).key(main).key(1).long(3);
        })?;
        self.chunk.event(schema::SPAN, |e| {
            e.ticks(now).ticks(Ticks(20_000)).key(worker).key(NAME);
            e.long(span).long(root).long(root).long(1 << 62).long(-1).int(1).int(1).key(LABELS);
        })?;
        self.chunk.event(schema::OPEN_SPAN, |e| {
            e.ticks(now).ticks(Ticks(20_000)).key(main).key(NAME);
            e.long(root).long(0).long(root).long(1 << 62).long(-1).int(1).key(LABELS);
        })?;
        self.chunk.event(schema::PROFILER_SPAN, |e| {
            e.ticks(now).ticks(Ticks(20_000)).key(worker).key(NAME);
        })?;
        self.chunk.event(schema::SPAN_SCOPE, |e| {
            e.ticks(now).ticks(Ticks(20_000)).key(main).long(span).long(root).long(3).boolean(false);
        })?;
        self.chunk.event(schema::WATERMARK, |e| {
            e.ticks(now);
        })
    }

    fn settings(&mut self, now: Ticks) -> Result<(), WriteError> {
        self.chunk.event(schema::ACTIVE_RECORDING, |e| {
            let start = LINE.start_epoch_ns / 1_000_000;
            e.ticks(now)
                .long(1)
                .string("demo")
                .string("demo.jfr")
                .long(i64::MAX)
                .long(0)
                .long(start)
                .long(10_000);
        })?;
        let id = i64::from(schema::EXECUTION_SAMPLE.0);
        for (name, value) in [("event", "cpu"), ("interval", "10000000"), ("empty", "")] {
            self.chunk.event(schema::ACTIVE_SETTING, |e| {
                e.ticks(now).long(id).string(name).string(value);
            })?;
        }
        self.chunk.event(schema::NOTICE, |e| {
            e.ticks(now).string("written by write_demo; ".repeat(20).as_str());
        })
    }

    fn surroundings(&mut self, now: Ticks) -> Result<(), WriteError> {
        self.chunk.event(schema::OS_INFORMATION, |e| {
            e.ticks(now).string("Linux 6.18");
        })?;
        self.chunk.event(schema::CPU_INFORMATION, |e| {
            e.ticks(now).string("x86_64").string("A processor").int(1).int(4).int(8);
        })?;
        self.chunk.event(schema::JVM_INFORMATION, |e| {
            e.ticks(now)
                .string("demo")
                .string("1.0")
                .string("")
                .null()
                .string("--fast input")
                .long(1)
                .long(4711);
        })?;
        self.chunk.event(schema::SYSTEM_PROCESS, |e| {
            e.ticks(now).string("4711").string("/usr/bin/demo --fast input");
        })?;
        for ty in [schema::INITIAL_ENVIRONMENT_VARIABLE, schema::INITIAL_SYSTEM_PROPERTY] {
            self.chunk.event(ty, |e| {
                e.ticks(now).string("KEY").string("value");
            })?;
        }
        self.chunk.event(schema::NATIVE_LIBRARY, |e| {
            e.ticks(now).string("/usr/lib/libdemo.so").long(0x7f12_3456_7000).long(0x7f12_3457_0000);
        })
    }

    fn threads_and_other_samples(&mut self, now: Ticks) -> Result<(), WriteError> {
        for index in 0..THREADS.len() {
            self.thread(index)?;
        }
        let stack = self.stack(3)?;
        let (main, worker) = (THREADS[0].0, THREADS[1].0);
        self.chunk.event(schema::THREAD_START, |e| {
            e.ticks(now).key(worker).key(stack).key(worker).key(main);
        })?;
        self.chunk.event(schema::THREAD_END, |e| {
            e.ticks(now).key(worker).key(worker);
        })?;
        self.chunk.event(schema::NATIVE_METHOD_SAMPLE, |e| {
            e.ticks(now).key(main).key(stack).key(thread_state::DEFAULT);
        })?;
        self.chunk.event(schema::WALL_CLOCK_SAMPLE, |e| {
            e.ticks(now).key(main).key(stack).key(thread_state::SLEEPING).int(3).ticks(Ticks(30_000));
        })
    }
}
