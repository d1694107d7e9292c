//! Writes a recording of one trace whose every number is known: `trace_recording FILE SPANS [off-cpu]`;
//! `off-cpu` adds the waits of its threads. Names, labels, threads and functions contain markup that would
//! harm a page that does not escape it. The span `hop` was on two threads, and `open` never ended.

use std::fs::File;

use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema::{self, frame_type, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, FileOutput, Geometry};

/// Ticks of a microsecond.
const LINE: ClockLine = ClockLine {
    start_ticks: Ticks(0),
    start_epoch_ns: 1_700_000_000_000_000_000,
    ticks_per_second: 1_000_000,
};
const MS: i64 = 1_000;
const TRACE: i64 = 0x4bf9;
const HARM: &str = "</script><img src=x onerror=\"document.title='harmed'\">{{script}}";
const THREADS: [u64; 2] = [7, 8];
const ROOT: i64 = 1;
const HOP: i64 = 2;
const OPEN: i64 = 3;
const QUERY: i64 = 4;

struct Made {
    chunk: ChunkWriter,
}

impl Made {
    fn scope(&mut self, thread: u64, span: i64, previous: i64, from: i64, to: i64, open: bool) {
        let scope = |e: &mut jfr_format::write::FieldWriter<'_>| {
            e.ticks(Ticks(from))
                .ticks(Ticks(to - from))
                .key(thread)
                .long(span)
                .long(previous)
                .long(1)
                .boolean(open);
        };
        self.chunk.event(schema::SPAN_SCOPE, scope).expect("a scope");
    }

    fn span(&mut self, thread: u64, name: u64, span: i64, parent: i64, from: i64, to: i64) {
        self.chunk
            .event(schema::SPAN, |e| {
                e.ticks(Ticks(from))
                    .ticks(Ticks(to - from))
                    .key(thread)
                    .key(name)
                    .long(span)
                    .long(parent)
                    .long(ROOT);
                e.long(0).long(TRACE).int(1).int(3).key(if span == QUERY { LABELS } else { 0 });
            })
            .expect("a span");
    }

    fn context(&mut self, thread: u64, span: i64, at: i64) {
        let key = span.unsigned_abs();
        self.chunk
            .event(schema::SAMPLE_CONTEXT, |e| _ = e.ticks(Ticks(at)).key(thread).key(key).long(1))
            .expect("a context");
    }

    /// A thread was off CPU, and another one woke it after this time.
    fn off(&mut self, (thread, stack): (u64, u64), state: &str, [from, woken, to]: [i64; 3], waker: u64) {
        let event = |e: &mut jfr_format::write::FieldWriter<'_>| {
            e.ticks(Ticks(from)).ticks(Ticks(to - from)).key(thread).key(stack).string(state);
            e.long((to - from) * 1000).long((to - woken) * 1000);
            let (kind, stack) = if waker == 0 { ("none", 0) } else { ("thread", 3) };
            e.key(waker).key(stack).string(kind).ticks(Ticks(woken));
        };
        self.chunk.event(schema::OFF_CPU, event).expect("a time without a processor");
    }

    fn ran(&mut self, thread: u64, span: i64, stack: u64, at: i64) {
        let sample = |e: &mut jfr_format::write::FieldWriter<'_>| {
            e.ticks(Ticks(at)).key(thread).key(stack).key(thread_state::DEFAULT);
        };
        self.chunk.event(schema::EXECUTION_SAMPLE, sample).expect("a sample");
        self.context(thread, span, at);
    }
}

/// Keys of strings.
const LABELS: u64 = 49;
const NAMES: u64 = 50;

/// Runs the program.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = crate::arguments_text().skip(1).collect();
    let (path, spans, off_cpu) = match &args[..] {
        [path, spans] => (path, spans, false),
        [path, spans, what] if what == "off-cpu" => (path, spans, true),
        _ => return Err("usage: trace_recording FILE SPANS [off-cpu]".into()),
    };
    let spans: i64 = spans.parse()?;
    let mut out = FileOutput::new(File::create(path)?)?;
    let chunk = ChunkWriter::begin(Geometry::Patched, &LINE, FileOffset(0), Ticks(0))?;
    let mut made = Made { chunk };
    let chunk = &mut made.chunk;
    for thread in THREADS {
        let name = format!("worker-{thread} {HARM}");
        chunk.constant(schema::THREAD, thread, |t| {
            _ = t.string(&name).long(thread as i64).null().long(0).key(0)
        })?;
    }
    let labels = serde_json::json!({"tenant": HARM}).to_string();
    chunk.constant(schema::STRING, LABELS, |s| _ = s.string(&labels))?;
    for (key, name) in (NAMES..).zip(["GET /cart", "hop", HARM, "step"]) {
        chunk.constant(schema::STRING, key, |s| _ = s.string(name))?;
    }
    for (key, name) in (1u64..).zip(["main", "serve", HARM, "wait_for_it"]) {
        chunk.constant(schema::SYMBOL, key, |s| _ = s.string(name))?;
        chunk.constant(schema::METHOD, key, |m| _ = m.key(0).key(key).key(0).int(0x100).boolean(false))?;
    }
    for function in [3u64, 4] {
        chunk.constant(schema::STACK_TRACE, function, |s| {
            s.boolean(false).array(3);
            [function, 2, 1].iter().for_each(|&key| _ = s.key(key).int(0).int(0).key(frame_type::CPP));
        })?;
    }
    let id = i64::from(schema::EXECUTION_SAMPLE.0);
    chunk.event(schema::ACTIVE_SETTING, |e| {
        _ = e.ticks(Ticks(0)).long(id).string("interval").string("10000000")
    })?;
    for span in 1..=spans.max(QUERY) {
        chunk.constant(schema::SPAN_CONTEXT, span.unsigned_abs(), |c| {
            c.long(span).long(ROOT).long(0).long(TRACE).int(1).key(0);
        })?;
    }
    // The root on the first thread, from 0 to 400 ms; in it 3 samples of 10 ms.
    made.span(7, NAMES, ROOT, 0, 0, 400 * MS);
    made.scope(7, ROOT, 0, 0, 100 * MS, false);
    [10, 20, 30].into_iter().for_each(|at| made.ran(7, ROOT, 3, at * MS));
    // From 40 ms on the first thread, from 150 ms on the second: 2 samples on each.
    made.span(8, NAMES + 1, HOP, ROOT, 40 * MS, 200 * MS);
    made.scope(7, HOP, ROOT, 40 * MS, 80 * MS, false);
    made.scope(8, HOP, 0, 150 * MS, 200 * MS, false);
    [(7, 50), (7, 60), (8, 160), (8, 170)]
        .into_iter()
        .for_each(|(thread, at)| made.ran(thread, HOP, 3, at * MS));
    // Waits for 90 ms and has a name that would do harm.
    made.span(8, NAMES + 2, QUERY, HOP, 155 * MS, 390 * MS);
    made.scope(8, QUERY, HOP, 210 * MS, 390 * MS, false);
    made.chunk.event(schema::WALL_CLOCK_SAMPLE, |e| {
        e.ticks(Ticks(220 * MS)).key(8).key(4).key(thread_state::SLEEPING).int(9).ticks(Ticks(90 * MS));
    })?;
    made.context(8, QUERY, 220 * MS);
    // Active, and never ended.
    made.scope(7, OPEN, 0, 300 * MS, 400 * MS, true);
    made.ran(7, OPEN, 3, 350 * MS);
    // Many small ones on the first thread, in a row.
    for span in QUERY + 1..=spans {
        let at = 100 * MS + (span * 200 * MS) / spans.max(1);
        made.span(7, NAMES + 3, span, ROOT, at, at + 1);
        made.scope(7, span, 0, at, at + 1, false);
        made.ran(7, span, 3 + (span as u64 & 1), at);
    }
    if off_cpu {
        // In `hop`, in the root, in no span; woken outside of a span.
        made.off((7, 4), "S", [70 * MS, 110 * MS, 130 * MS], 8);
        made.off((8, 4), "D", [220 * MS, 310 * MS, 310 * MS], 0);
        // In `open`, and in none.
        made.off((7, 3), "R+", [350 * MS, 350 * MS, 420 * MS], 0);
    }
    made.chunk.finish(Ticks(1_000 * MS), true, &mut out)?;
    Ok(())
}
