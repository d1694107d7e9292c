//! Writes a recording of HTTP requests, with an event type of its own.
//!
//! ```text
//! cargo run --example write_own_event -- out.jfr [requests]
//! jfr print out.jfr
//! ```
//! The requests are made up, and the same in each run. Every event has a duration, a thread and a stack trace.

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jfr_format::ids::Ticks;
use jfr_format::schema::Unit;
use jfr_format::write::{
    ChunkWriter, ClockLine, Constants, Event, EventTypes, Fields, FileOutput, Frame, Geometry, StackTraceKey,
    ThreadKey, WriteError,
};

/// An event.
struct Request<'a> {
    took: Ticks,
    thread: ThreadKey,
    stack_trace: StackTraceKey,
    path: &'a str,
    user: Option<&'a str>,
    status: u16,
    size: u64,
    hit_rate: f32,
    queued: Duration,
    received: SystemTime,
    cached: bool,
}

impl Event for Request<'_> {
    const NAME: &'static str = "com.example.Request";
    const LABEL: &'static str = "HTTP Request";
    const DESCRIPTION: &'static str = "A request, from its first byte to the last byte of the response";
    const CATEGORY: &'static [&'static str] = &["Example", "HTTP"];

    fn fields(fields: &mut Fields<'_, Self>) {
        fields.duration(|request| request.took);
        fields.event_thread(|request| request.thread);
        fields.stack_trace(|request| request.stack_trace);
        fields.field("path", |request| request.path).label("Path");
        fields.field("user", |request| request.user).label("User");
        fields.field("status", |request| request.status).label("Status");
        fields.field("size", |request| request.size).label("Response Size").unit(Unit::Bytes);
        fields.field("hitRate", |request| request.hit_rate).label("Hit Rate").unit(Unit::Percentage);
        fields.field("queued", |request| request.queued).label("Queued");
        fields.field("received", |request| request.received).label("Received");
        fields.field("cached", |request| request.cached).label("Cached");
    }
}

const START: SystemTime = UNIX_EPOCH;
const START_AFTER_EPOCH: Duration = Duration::from_secs(1_750_000_000);
const CHUNKS: u32 = 2;
const REQUESTS_PER_FLUSH: u32 = 10;
const PATHS: [(&str, Option<&str>); 3] = [("/", None), ("/größe/☃", Some("Zoë")), ("", Some(""))];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: write_own_event OUT.jfr [REQUESTS]")?;
    let requests = arguments.next().map_or(Ok(50), |text| text.parse())?;
    write_requests(path.as_ref(), requests)
}

/// Writes that many requests per chunk.
pub fn write_requests(path: &Path, requests: u32) -> Result<(), Box<dyn Error>> {
    let mut types = EventTypes::new();
    let request_type = types.declare::<Request>()?;
    let declared = types.declared([]);
    // The clock's ticks are nanoseconds since the start. All chunks of a file have the same clock.
    let clock = ClockLine::nanoseconds_since(START + START_AFTER_EPOCH);

    let mut out = FileOutput::new(File::create(path)?)?;
    let mut constants = Constants::new();
    let mut now = Ticks(0);
    for index in 0..CHUNKS {
        let mut chunk = ChunkWriter::declaring(&declared, Geometry::Patched, &clock, out.end(), now)?;
        for number in 0..requests {
            let start = now;
            now = Ticks(now.0 + clock.ticks(Duration::from_millis(20)).0);
            let request = request(&mut chunk, &mut constants, &clock, number)?;
            chunk.write(&request_type, start, &request)?;
            // A flush makes what was written visible to live readers.
            if number % REQUESTS_PER_FLUSH == REQUESTS_PER_FLUSH - 1 {
                chunk.flush(now, &mut out)?;
            }
        }
        chunk.finish(now, index + 1 == CHUNKS, &mut out)?;
    }
    Ok(())
}

fn request(
    chunk: &mut ChunkWriter,
    constants: &mut Constants,
    clock: &ClockLine,
    number: u32,
) -> Result<Request<'static>, WriteError> {
    let (path, user) = PATHS[number as usize % PATHS.len()];
    let worker = number % 4;
    let handler = if user.is_some() { "render_page" } else { "redirect" };
    let frames = [
        Frame { line: 42, ..Frame::new("server::http", handler) },
        Frame { line: 7 + worker, ..Frame::new("server::http", "serve") },
        Frame::new("server", "main"),
    ];
    Ok(Request {
        took: clock.ticks(Duration::from_micros(1500 + u64::from(number))),
        thread: constants.thread(chunk, 1000 + u64::from(worker), &format!("worker-{worker}"))?,
        stack_trace: constants.stack_trace(chunk, &frames, false)?,
        path,
        user,
        status: if user.is_some() { 200 } else { 307 },
        size: u64::from(number) << 10,
        hit_rate: 0.25,
        queued: Duration::from_micros(u64::from(number)),
        received: START + START_AFTER_EPOCH + Duration::from_millis(u64::from(number)),
        cached: number.is_multiple_of(2),
    })
}
