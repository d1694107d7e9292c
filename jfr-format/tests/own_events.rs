//! Event types of the caller's own: the reader and the validator read what the writer wrote.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jfr_format::event::{EventRef, Value};
use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::metadata::Declared;
use jfr_format::read::{Decoder, Delivery, Item, Recording};
use jfr_format::schema::{self, Unit};
use jfr_format::write::{
    ChunkWriter, ClassKey, ClockLine, Constants, DeclareErrorKind, Event, EventType, EventTypes, Fields,
    Frame, Geometry, StackTraceKey, StreamOutput, StringKey, ThreadKey, WriteError,
};

#[path = "../examples/write_own_event.rs"]
#[allow(dead_code)]
mod write_own_event;

const CLOCK: ClockLine = ClockLine {
    start_ticks: Ticks(500),
    start_epoch_ns: 1_700_000_000_000_000_000,
    ticks_per_second: 1_000_000,
};

#[derive(Clone, Copy)]
struct AllKinds<'a> {
    duration: Ticks,
    thread: Option<ThreadKey>,
    stack_trace: Option<StackTraceKey>,
    boolean: bool,
    signed: (i8, i16, i32, i64),
    unsigned: (u8, u16, u32, u64),
    floats: (f32, f64),
    text: &'a str,
    text_or_null: Option<&'a str>,
    span: Duration,
    time: SystemTime,
    ticks: Ticks,
    pooled: Option<StringKey>,
    class: Option<ClassKey>,
}

impl Event for AllKinds<'_> {
    const NAME: &'static str = "com.example.AllKinds";
    const LABEL: &'static str = "All Kinds";

    fn fields(fields: &mut Fields<'_, Self>) {
        fields.duration(|e| e.duration);
        fields.event_thread(|e| e.thread);
        fields.stack_trace(|e| e.stack_trace);
        fields.field("flag", |e| e.boolean);
        fields.field("i8", |e| e.signed.0);
        fields.field("i16", |e| e.signed.1);
        fields.field("i32", |e| e.signed.2);
        fields.field("i64", |e| e.signed.3);
        fields.field("u8", |e| e.unsigned.0);
        fields.field("u16", |e| e.unsigned.1);
        fields.field("u32", |e| e.unsigned.2);
        fields.field("u64", |e| e.unsigned.3).unit(Unit::Bytes);
        fields.field("f32", |e| e.floats.0).label("Share").unit(Unit::Percentage);
        fields.field("f64", |e| e.floats.1);
        fields.field("text", |e| e.text);
        fields.field("textOrNull", |e| e.text_or_null);
        fields.field("span", |e| e.span);
        fields.field("time", |e| e.time);
        fields.field("ticks", |e| e.ticks).unit(Unit::Span);
        fields.field("pooled", |e| e.pooled).contextual();
        fields.field("type", |e| e.class);
    }
}

const ZEROS: AllKinds<'_> = AllKinds {
    duration: Ticks(0),
    thread: None,
    stack_trace: None,
    boolean: false,
    signed: (0, 0, 0, 0),
    unsigned: (0, 0, 0, 0),
    floats: (0.0, 0.0),
    text: "",
    text_or_null: None,
    span: Duration::ZERO,
    time: UNIX_EPOCH,
    ticks: Ticks(0),
    pooled: None,
    class: None,
};

struct Beat {
    count: i32,
}

impl Event for Beat {
    const NAME: &'static str = "com.example.Beat";

    fn fields(fields: &mut Fields<'_, Self>) {
        fields.field("count", |beat| beat.count);
    }
}

fn begin(declared: &Declared, at: FileOffset, now: Ticks) -> ChunkWriter {
    ChunkWriter::declaring(declared, Geometry::Patched, &CLOCK, at, now).unwrap()
}

/// Returns each field's value as text.
fn values(event: &EventRef<'_>) -> BTreeMap<String, String> {
    let text = |value: Value<'_>| match value.resolved().unwrap() {
        Value::Null => "null".to_owned(),
        Value::Text(text) => format!("{text:?}"),
        Value::Float(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::Struct(_) => "struct".to_owned(),
        number => number.as_i64().unwrap().to_string(),
    };
    let field = |(field, value): (&jfr_format::read::Field, _)| (field.name.to_string(), text(value));
    event.fields().iter().map(|entry| field(entry.unwrap())).collect()
}

/// Returns the events of a recording, their values as text. Fails for a warning, or if the validator refuses
/// the recording.
fn read(bytes: &[u8]) -> Vec<BTreeMap<String, String>> {
    let valid = Recording::bytes(bytes.to_vec().into()).validate(|_| ()).unwrap();
    let mut decoder = Decoder::new(Delivery::Streaming);
    decoder.push(bytes.to_vec().into());
    decoder.close();
    let mut events = Vec::new();
    while let Some(item) = decoder.next() {
        match item {
            Item::Events(batch) => events.extend(batch.events().map(|event| values(&event))),
            Item::Warning(warning) => panic!("{warning}"),
            _ => {}
        }
    }
    assert_eq!(valid.events, events.len() as u64);
    events
}

#[test]
fn all_field_kinds_are_read_back() {
    let mut types = EventTypes::new();
    let ty = types.declare::<AllKinds>().unwrap();
    let mut chunk = begin(&types.declared([]), FileOffset(0), Ticks(500));
    let mut constants = Constants::new();
    chunk.constant(schema::CLASS, 7, |c| _ = c.key(0).key(0).key(0).int(0).boolean(false)).unwrap();
    let text = String::from("größe ☃ 🦀");
    let extremes = AllKinds {
        duration: Ticks(77),
        thread: Some(constants.thread(&mut chunk, 4711, "Fädchen").unwrap()),
        stack_trace: Some(constants.stack_trace(&mut chunk, &[Frame::new("lib", "")], true).unwrap()),
        boolean: true,
        signed: (i8::MIN, i16::MIN, i32::MIN, i64::MIN),
        unsigned: (u8::MAX, u16::MAX, u32::MAX, u64::MAX),
        floats: (-1.5, 1e300),
        text: &text,
        text_or_null: Some(""),
        span: Duration::from_nanos(1_000_000_001),
        time: UNIX_EPOCH + Duration::from_millis(1234),
        ticks: Ticks(-3),
        pooled: Some(constants.string(&mut chunk, "shared").unwrap()),
        class: Some(ClassKey::new(7).unwrap()),
    };
    chunk.write(&ty, Ticks(501), &extremes).unwrap();
    chunk.write(&ty, Ticks(502), &ZEROS).unwrap();
    let mut bytes = Vec::new();
    chunk.finish(Ticks(600), true, &mut bytes).unwrap();

    let expected = [
        ("startTime", "501", "502"),
        ("duration", "77", "0"),
        ("eventThread", "struct", "null"),
        ("stackTrace", "struct", "null"),
        ("flag", "1", "0"),
        ("i8", "-128", "0"),
        ("i16", "-32768", "0"),
        ("i32", "-2147483648", "0"),
        ("i64", "-9223372036854775808", "0"),
        // The bit pattern; the annotation says that it is unsigned.
        ("u8", "-1", "0"),
        ("u16", "-1", "0"),
        ("u32", "-1", "0"),
        ("u64", "-1", "0"),
        ("f32", "-1.5", "0"),
        ("f64", &1e300_f64.to_string(), "0"),
        ("text", "\"größe ☃ 🦀\"", "\"\""),
        ("textOrNull", "\"\"", "null"),
        ("span", "1000000001", "0"),
        ("time", "1234", "0"),
        ("ticks", "-3", "0"),
        ("pooled", "\"shared\"", "null"),
        ("type", "struct", "null"),
    ];
    let events = read(&bytes);
    assert_eq!(events.len(), 2);
    for (name, first, second) in expected {
        assert_eq!((&*events[0][name], &*events[1][name]), (first, second), "{name}");
    }
    assert_eq!(events[0].len(), expected.len());
}

#[test]
fn annotations_are_declared() {
    let mut types = EventTypes::new();
    let ty = types.declare::<AllKinds>().unwrap();
    let mut chunk = begin(&types.declared([]), FileOffset(0), Ticks(500));
    chunk.write(&ty, Ticks(501), &ZEROS).unwrap();
    let mut bytes = Vec::new();
    chunk.finish(Ticks(600), true, &mut bytes).unwrap();

    let mut decoder = Decoder::new(Delivery::Streaming);
    decoder.push(bytes.into());
    decoder.close();
    while let Some(item) = decoder.next() {
        let Item::Events(batch) = item else { continue };
        let (_, class) = batch.chunk().types.by_name("com.example.AllKinds").unwrap();
        let annotations = |name: &str| {
            let field = class.fields.iter().find(|field| &*field.name == name).unwrap();
            field.annotations.iter().map(|annotation| annotation.type_name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(annotations("startTime"), ["jdk.jfr.Label", "jdk.jfr.Timestamp"]);
        assert_eq!(annotations("u64"), ["jdk.jfr.Unsigned", "jdk.jfr.DataAmount"]);
        assert_eq!(annotations("f32"), ["jdk.jfr.Label", "jdk.jfr.Percentage"]);
        assert_eq!(annotations("ticks"), ["jdk.jfr.Timespan"]);
        assert_eq!(annotations("pooled"), ["jdk.jfr.Contextual"]);
        return;
    }
    panic!("no events");
}

/// Writes beats with a thread and a stack in each chunk, and some flushes in between.
fn beats(geometry: Geometry, chunks: i32, per_chunk: i32) -> Vec<u8> {
    let mut types = EventTypes::new();
    let beats = types.declare::<Beat>().unwrap();
    let all = types.declare::<AllKinds>().unwrap();
    let declared = types.declared([schema::NOTICE]);
    let mut constants = Constants::new();
    let mut out = Vec::new();
    for index in 0..chunks {
        let at = FileOffset(out.len() as u64);
        let mut chunk = ChunkWriter::declaring(&declared, geometry, &CLOCK, at, Ticks(500)).unwrap();
        for count in 0..per_chunk {
            let now = Ticks(501 + i64::from(count));
            chunk.write(&beats, now, &Beat { count }).unwrap();
            let event = AllKinds {
                thread: Some(constants.thread(&mut chunk, count as u64 % 3, "").unwrap()),
                stack_trace: Some(
                    constants
                        .stack_trace(&mut chunk, &[Frame::new("a", "b")][..count as usize % 2], false)
                        .unwrap(),
                ),
                pooled: Some(constants.string(&mut chunk, &format!("string {}", count % 5)).unwrap()),
                ..ZEROS
            };
            chunk.write(&all, now, &event).unwrap();
            chunk.event(schema::NOTICE, |e| _ = e.ticks(now).string("notice")).unwrap();
            if count % 4 == 3 {
                chunk.flush(now, &mut out).unwrap();
            }
        }
        chunk.finish(Ticks(700), index + 1 == chunks, &mut out).unwrap();
    }
    out
}

#[test]
fn constants_are_written_once_in_each_chunk() {
    for geometry in [Geometry::Patched, Geometry::Fixed { size: 64 << 10 }] {
        let bytes = beats(geometry, 3, 20);
        let events = read(&bytes);
        assert_eq!(events.len(), 3 * 3 * 20);
        for event in events.iter().filter(|event| event.contains_key("pooled")) {
            assert_eq!((&*event["eventThread"], &*event["stackTrace"]), ("struct", "struct"));
            assert!(event["pooled"].starts_with("\"string "));
        }
        let needle = b"string 3";
        let written = bytes.windows(needle.len()).filter(|window| window == needle).count();
        assert_eq!(written, 3, "once in each chunk");
    }
}

#[test]
fn discarded_constants_are_written_again() {
    let mut types = EventTypes::new();
    let ty = types.declare::<AllKinds>().unwrap();
    let mut chunk = begin(&types.declared([]), FileOffset(0), Ticks(500));
    let mut constants = Constants::new();
    let first = constants.thread(&mut chunk, 1, "one").unwrap();
    chunk.discard();
    let thread = constants.thread(&mut chunk, 1, "one").unwrap();
    assert_eq!(first, thread);
    chunk.write(&ty, Ticks(501), &AllKinds { thread: Some(thread), ..ZEROS }).unwrap();
    let mut bytes = Vec::new();
    chunk.finish(Ticks(600), true, &mut bytes).unwrap();
    assert_eq!(read(&bytes)[0]["eventThread"], "struct");
}

#[test]
fn full_chunk_queues_nothing() {
    struct Text<'a>(&'a str);
    impl Event for Text<'_> {
        const NAME: &'static str = "com.example.Text";
        fn fields(fields: &mut Fields<'_, Self>) {
            fields.field("text", |event| event.0);
        }
    }
    let mut types = EventTypes::new();
    let ty = types.declare::<Text>().unwrap();
    let geometry = Geometry::Fixed { size: 32 << 10 };
    let declared = types.declared([]);
    let mut chunk = ChunkWriter::declaring(&declared, geometry, &CLOCK, FileOffset(0), Ticks(500)).unwrap();
    let long = "x".repeat(32 << 10);
    let pending = chunk.pending();
    assert!(matches!(chunk.write(&ty, Ticks(501), &Text(&long)), Err(WriteError::Full { .. })));
    assert_eq!(chunk.pending(), pending);
    chunk.write(&ty, Ticks(501), &Text("short")).unwrap();
    let mut out = StreamOutput::new(Vec::new());
    chunk.finish(Ticks(600), true, &mut out).unwrap();
    assert_eq!(chunk.write(&ty, Ticks(501), &Text("late")), Err(WriteError::Finished));
    assert_eq!(read(&out.into_inner())[0]["text"], "\"short\"");
}

#[test]
fn chunk_accepts_only_the_types_that_it_declares() {
    let mut types = EventTypes::new();
    let beats = types.declare::<Beat>().unwrap();
    let before = types.declared([]);
    let all = types.declare::<AllKinds>().unwrap();
    let mut chunk = begin(&before, FileOffset(0), Ticks(500));
    assert!(before.has(beats.id()) && !before.has(all.id()) && types.declared([]).has(all.id()));
    chunk.write(&beats, Ticks(501), &Beat { count: 1 }).unwrap();
    assert_eq!(chunk.write(&all, Ticks(501), &ZEROS), Err(WriteError::Undeclared("com.example.AllKinds")));
    // The type of another file has the same id.
    let others: EventType<AllKinds<'_>> = EventTypes::new().declare().unwrap();
    assert_eq!(others.id(), beats.id());
    assert!(matches!(chunk.write(&others, Ticks(501), &ZEROS), Err(WriteError::Undeclared(_))));
}

/// Declares an event type with this name and these fields, and returns the error.
macro_rules! refused {
    ($name:expr, |$fields:ident| $body:expr) => {{
        struct Refused;
        impl Event for Refused {
            const NAME: &'static str = $name;
            fn fields($fields: &mut Fields<'_, Self>) {
                $body;
            }
        }
        let error = EventTypes::new().declare::<Refused>().unwrap_err();
        assert_eq!(error.event, $name);
        (error.field, error.kind)
    }};
}

#[test]
fn declarations_are_checked() {
    use DeclareErrorKind::{DuplicateName, DurationNotFirst, InvalidName, ReservedName, TooManyFields};
    let invalid = ("", InvalidName);
    assert_eq!(refused!("", |_fields| {}), invalid);
    assert_eq!(refused!("com.example.", |_fields| {}), invalid);
    assert_eq!(refused!("com.example.my-event", |_fields| {}), invalid);
    assert_eq!(refused!("com.new.Event", |_fields| {}), invalid);
    assert_eq!(refused!("jdk.ExecutionSample", |_fields| {}), ("", DuplicateName));
    assert_eq!(refused!("a.B", |fields| fields.field("ä", |_| 1)), ("ä", InvalidName));
    assert_eq!(refused!("a.B", |fields| fields.field("class", |_| 1)), ("class", InvalidName));
    for reserved in ["startTime", "duration", "eventThread", "stackTrace"] {
        struct Reserved;
        std::thread_local!(static NAME: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") });
        impl Event for Reserved {
            const NAME: &'static str = "a.B";
            fn fields(fields: &mut Fields<'_, Self>) {
                fields.field(NAME.get(), |_| 1);
            }
        }
        NAME.set(reserved);
        let error = EventTypes::new().declare::<Reserved>().unwrap_err();
        assert_eq!((error.field, error.kind), (reserved, ReservedName));
    }
    let twice = refused!("a.B", |fields| {
        fields.field("x", |_| 1);
        fields.field("x", |_| "text");
    });
    assert_eq!(twice, ("x", DuplicateName));
    let late = refused!("a.B", |fields| {
        fields.field("x", |_| 1);
        fields.duration(|_| Ticks(1));
    });
    assert_eq!(late, ("duration", DurationNotFirst));
    assert_eq!(
        refused!("a.B", |fields| fields.field("x", |_| "text").unit(Unit::Bytes)),
        ("x", DeclareErrorKind::Unit)
    );
    assert_eq!(
        refused!("a.B", |fields| fields.field("x", |_| 1_i32).unit(Unit::EpochMillis)),
        ("x", DeclareErrorKind::Unit)
    );
    assert_eq!(
        refused!("a.B", |fields| fields.field("x", |_| 1_i64).unit(Unit::Span)),
        ("x", DeclareErrorKind::Unit)
    );
    let many = refused!("a.B", |fields| {
        for index in 0..100 {
            fields.field(String::leak(format!("field{index}")), |_| 1);
        }
    });
    assert_eq!(many, ("", TooManyFields));
    let mut types = EventTypes::new();
    types.declare::<Beat>().unwrap();
    let error = types.declare::<Beat>().unwrap_err();
    assert_eq!(error.to_string(), "event type \"com.example.Beat\": the name is already in use");
}

#[test]
fn fields_that_change_after_the_declaration_are_refused() {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static VERSION: AtomicU32 = AtomicU32::new(0);
    struct Changing;
    impl Event for Changing {
        const NAME: &'static str = "com.example.Changing";
        fn fields(fields: &mut Fields<'_, Self>) {
            let version = VERSION.load(Relaxed);
            if version != 1 {
                fields.field("number", |_| 1);
            }
            if version == 2 {
                fields.field("more", |_| 1);
            }
            if version == 3 {
                fields.field("text", |_| 1);
            } else {
                fields.field("text", |_| "text");
            }
        }
    }
    let mut types = EventTypes::new();
    let ty = types.declare::<Changing>().unwrap();
    let mut chunk = begin(&types.declared([]), FileOffset(0), Ticks(500));
    chunk.write(&ty, Ticks(501), &Changing).unwrap();
    let pending = chunk.pending();
    for (version, field) in [(1, "text"), (2, "more"), (3, "text")] {
        VERSION.store(version, Relaxed);
        let error = WriteError::Fields { of: "com.example.Changing", field };
        assert_eq!(chunk.write(&ty, Ticks(502), &Changing), Err(error), "version {version}");
    }
    assert_eq!(chunk.pending(), pending);
}

#[test]
fn example_writes_a_valid_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.jfr");
    write_own_event::write_requests(&path, 25).unwrap();
    let events = read(&std::fs::read(path).unwrap());
    assert_eq!(events.len(), 50);
    assert_eq!(
        (&*events[1]["path"], &*events[1]["user"], &*events[0]["user"]),
        ("\"/größe/☃\"", "\"Zoë\"", "null")
    );
    assert_eq!((&*events[49]["duration"], &*events[49]["size"]), ("1524000", "24576"));
}
