//! An event type that is not in the schema, with a field of each kind.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jfr_format::ids::Ticks;
use jfr_format::schema::Unit;
use jfr_format::write::{
    ChunkWriter, ClockLine, Constants, Event, EventTypes, Fields, FileOutput, Frame, Geometry, StackTraceKey,
    StringKey, ThreadKey,
};

/// An event with a field of each kind.
struct AllKinds<'a> {
    duration: Ticks,
    thread: Option<ThreadKey>,
    stack_trace: Option<StackTraceKey>,
    flag: bool,
    signed: (i8, i16, i32, i64),
    unsigned: (u8, u16, u32, u64),
    floats: (f32, f64),
    text: Option<&'a str>,
    span: Duration,
    time: SystemTime,
    size: i64,
    share: f32,
    address: u64,
    pooled: Option<StringKey>,
}

impl Event for AllKinds<'_> {
    const NAME: &'static str = "com.example.AllKinds";
    const LABEL: &'static str = "All Kinds";
    const CATEGORY: &'static [&'static str] = &["Example", "Tests"];

    fn fields(fields: &mut Fields<'_, Self>) {
        fields.duration(|e| e.duration);
        fields.event_thread(|e| e.thread);
        fields.stack_trace(|e| e.stack_trace);
        fields.field("flag", |e| e.flag).label("Flag");
        fields.field("i8", |e| e.signed.0).label("Byte");
        fields.field("i16", |e| e.signed.1).label("Short");
        fields.field("i32", |e| e.signed.2).label("Int");
        fields.field("i64", |e| e.signed.3).label("Long");
        fields.field("u8", |e| e.unsigned.0).label("Unsigned Byte");
        fields.field("u16", |e| e.unsigned.1).label("Unsigned Short");
        fields.field("u32", |e| e.unsigned.2).label("Unsigned Int");
        fields.field("u64", |e| e.unsigned.3).label("Unsigned Long");
        fields.field("f32", |e| e.floats.0).label("Float");
        fields.field("f64", |e| e.floats.1).label("Double");
        fields.field("text", |e| e.text).label("Text");
        fields.field("span", |e| e.span).label("Span");
        fields.field("time", |e| e.time).label("Time");
        fields.field("size", |e| e.size).label("Size").unit(Unit::Bytes);
        fields.field("share", |e| e.share).label("Share").unit(Unit::Percentage);
        fields.field("address", |e| e.address).label("Address").unit(Unit::Address);
        fields.field("pooled", |e| e.pooled).label("Pooled").contextual();
    }
}

/// Writes two events of the type `com.example.AllKinds` into a chunk each: one with values at the limits of
/// their types, and one with zeros, nulls and an empty string.
///
/// # Panics
///
/// If they cannot be written.
pub fn write_all_kinds(path: &Path) {
    let mut types = EventTypes::new();
    let ty = types.declare::<AllKinds<'_>>().unwrap();
    let declared = types.declared([]);
    let clock = ClockLine::nanoseconds_since(UNIX_EPOCH + Duration::from_secs(1_750_000_000));
    let mut out = FileOutput::new(File::create(path).unwrap()).unwrap();
    let mut constants = Constants::new();

    let mut chunk =
        ChunkWriter::declaring(&declared, Geometry::Patched, &clock, out.end(), Ticks(0)).unwrap();
    let thread = constants.thread(&mut chunk, 4711, "Fädchen").unwrap();
    let frames = [Frame { line: 70_000, ..Frame::new("lib", "größe") }, Frame::new("[vdso]", "")];
    let limits = AllKinds {
        duration: clock.ticks(Duration::from_millis(1500)),
        thread: Some(thread),
        stack_trace: Some(constants.stack_trace(&mut chunk, &frames, true).unwrap()),
        flag: true,
        signed: (i8::MIN, i16::MIN, i32::MIN, i64::MIN + 1),
        unsigned: (200, 60_000, 4_000_000_000, 1 << 62),
        floats: (1.5, -2.25),
        text: Some("größe ☃"),
        span: Duration::from_micros(1_000_001),
        time: UNIX_EPOCH + Duration::from_millis(1_234_567),
        size: 4096,
        share: 0.25,
        address: 0x7f12_3456_7000,
        pooled: Some(constants.string(&mut chunk, "共有").unwrap()),
    };
    chunk.write(&ty, Ticks(1_000_000), &limits).unwrap();
    chunk.finish(Ticks(2_000_000_000), false, &mut out).unwrap();

    let now = Ticks(2_000_000_000);
    let mut chunk = ChunkWriter::declaring(&declared, Geometry::Patched, &clock, out.end(), now).unwrap();
    let zeros = AllKinds {
        duration: Ticks(0),
        thread: None,
        stack_trace: None,
        flag: false,
        signed: (0, 0, 0, 0),
        unsigned: (0, 0, 0, 0),
        floats: (0.0, 0.0),
        text: None,
        span: Duration::ZERO,
        time: UNIX_EPOCH,
        size: 0,
        share: 0.0,
        address: 0,
        pooled: Some(constants.string(&mut chunk, "").unwrap()),
    };
    chunk.write(&ty, now, &zeros).unwrap();
    chunk.finish(Ticks(3_000_000_000), true, &mut out).unwrap();
}
