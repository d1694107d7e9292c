//! The service's log: one line per event, as text for people or JSON for programs.
//!
//! Names come from other programs and clients, so they are escaped: they cannot end a line or send control
//! sequences to a terminal. Logging never blocks: a thread writes the lines, and lines beyond its queue are
//! counted and reported.

use std::fmt::{self, Write as _};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use crate::clock::{Clock, Machine, iso};

/// Maximum number of queued lines.
const MOST_LINES: usize = 4096;
/// Maximum characters of a text.
const LONGEST: usize = 512;

/// Format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `time LEVEL event key=value …`
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// Severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something does not work.
    Error,
    /// Something was refused or lost.
    Warn,
    /// Something changed.
    Info,
    /// Each request.
    Debug,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Value of a field.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Untrusted text.
    Text(&'a str),
    /// A number.
    Number(u64),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// The log; the default discards all lines.
#[derive(Clone, Debug, Default)]
pub struct Log(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    format: Format,
    level: Level,
    lines: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
}

enum Line {
    Text(String),
    /// Answered once all earlier lines are written.
    Mark(SyncSender<()>),
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("line")
    }
}

impl Log {
    /// Creates a log that writes lines of this level and above.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn new(format: Format, level: Level, out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (lines, written) = sync_channel(MOST_LINES);
        let dropped = Arc::new(AtomicU64::new(0));
        let of_thread = Arc::clone(&dropped);
        let work = move || work(&written, &of_thread, format, out);
        std::thread::Builder::new().name("log".into()).spawn(work)?;
        Ok(Self(Some(Arc::new(Shared { format, level, lines, dropped }))))
    }

    /// Returns true if lines of this level are written.
    pub fn takes(&self, level: Level) -> bool {
        self.0.as_ref().is_some_and(|shared| level <= shared.level)
    }

    /// Logs an event.
    pub fn write(&self, level: Level, event: &str, fields: &[(&str, Value<'_>)]) {
        let Some(shared) = self.0.as_ref().filter(|shared| level <= shared.level) else { return };
        let line = line(shared.format, Machine::default().utc(), level, event, fields);
        if let Err(TrySendError::Full(_)) = shared.lines.try_send(Line::Text(line)) {
            shared.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Waits up to a second until all lines are written.
    pub fn flush(&self) {
        let Some(shared) = &self.0 else { return };
        let (done, flushed) = sync_channel(1);
        if shared.lines.try_send(Line::Mark(done)).is_ok() {
            let _ = flushed.recv_timeout(Duration::from_secs(1));
        }
    }
}

fn work(lines: &Receiver<Line>, dropped: &AtomicU64, format: Format, mut out: impl Write) {
    while let Ok(next) = lines.recv() {
        // A failed write to the log cannot be reported.
        match next {
            Line::Text(line) => drop(out.write_all(line.as_bytes())),
            Line::Mark(done) => {
                let _ = (out.flush(), done.try_send(()));
            }
        }
        let lost = dropped.swap(0, Relaxed);
        if lost > 0 {
            let fields = [("lines", Value::Number(lost))];
            let line = line(format, Machine::default().utc(), Level::Warn, "lines were dropped", &fields);
            let _ = out.write_all(line.as_bytes());
        }
    }
}

fn line(format: Format, utc: i64, level: Level, event: &str, fields: &[(&str, Value<'_>)]) -> String {
    let mut line = String::new();
    let time = iso(utc);
    // Writing to a `String` cannot fail.
    let _ = match format {
        Format::Text => write!(line, "{time} {} {event}", level.name().to_uppercase()),
        Format::Json => {
            write!(line, "{{\"time\":\"{time}\",\"level\":\"{}\",\"event\":{}", level.name(), quoted(event))
        }
    };
    for (key, value) in fields {
        let _ = match (format, value) {
            (Format::Text, Value::Number(number)) => write!(line, " {key}={number}"),
            (Format::Json, Value::Number(number)) => write!(line, ",\"{key}\":{number}"),
            (Format::Text, Value::Text(text)) if is_plain(text) => write!(line, " {key}={text}"),
            (Format::Text, Value::Text(text)) => write!(line, " {key}={}", quoted(text)),
            (Format::Json, Value::Text(text)) => write!(line, ",\"{key}\":{}", quoted(text)),
        };
    }
    line.push_str(if format == Format::Json { "}\n" } else { "\n" });
    line
}

/// Returns true if the text needs no quotes.
fn is_plain(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    !text.is_empty() && text.len() <= LONGEST && text.chars().all(plain)
}

/// Quotes text as JSON with printable characters only: no control characters (terminals also obey those from
/// 0x80 on), no changes of text direction, no line breaks.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars().take(LONGEST) {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}') =>
            {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc;

    use super::*;

    const HOSTILE: &str = "a\"b\\\n2026-01-01 INFO forged\r\u{1b}[31m\u{9b}2J\u{202e}x\u{2028}\u{7f}\0";

    #[test]
    fn field_values_cannot_break_log_lines() {
        for format in [Format::Text, Format::Json] {
            let fields =
                [("name", HOSTILE.into()), ("plain", "nginx-1".into()), ("n", 7.into()), ("no", "".into())];
            let line = line(format, 1_795_420_800_001, Level::Warn, "joined", &fields);
            let body = line.strip_suffix('\n').unwrap();
            assert!(!body.chars().any(|c| c.is_control() || "\u{202e}\u{2028}".contains(c)), "{body:?}");
            match format {
                Format::Text => {
                    assert!(body.starts_with("2026-11-23T08:00:00.001Z WARN joined name=\"a\\\"b"), "{body}");
                    assert!(body.ends_with("plain=nginx-1 n=7 no=\"\""), "{body}");
                }
                Format::Json => {
                    let value: serde_json::Value = serde_json::from_str(body).unwrap();
                    assert_eq!((value["name"].as_str(), value["n"].as_u64()), (Some(HOSTILE), Some(7)));
                    assert_eq!(
                        (value["level"].as_str(), value["event"].as_str()),
                        (Some("warn"), Some("joined"))
                    );
                }
            }
        }
        let long = "x".repeat(100_000);
        assert!(line(Format::Json, 0, Level::Info, "e", &[("k", (&long).into())]).len() < 1000);
    }

    #[derive(Clone, Default)]
    struct Shown(Arc<Mutex<Vec<u8>>>);

    impl Write for Shown {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lower_log_levels_are_filtered() {
        let shown = Shown::default();
        let log = Log::new(Format::Text, Level::Warn, shown.clone()).unwrap();
        log.write(Level::Info, "nothing", &[]);
        log.write(Level::Error, "something", &[("k", 1.into())]);
        log.flush();
        let text = String::from_utf8(shown.0.lock().unwrap().clone()).unwrap();
        assert!(text.ends_with("Z ERROR something k=1\n") && text.lines().count() == 1, "{text}");
        assert!(!log.takes(Level::Info) && log.takes(Level::Warn) && !Log::default().takes(Level::Error));
    }

    /// A writer that blocks until released.
    struct Stuck(mpsc::Receiver<()>, Shown);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            self.1.write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn logging_never_blocks_and_counts_dropped_lines() {
        let ((go, stuck), shown) = (mpsc::channel(), Shown::default());
        let log = Log::new(Format::Json, Level::Info, Stuck(stuck, shown.clone())).unwrap();
        for at in 0..MOST_LINES as u64 + 100 {
            log.write(Level::Info, "many", &[("at", at.into())]);
        }
        drop(go);
        // The queue stays full until the thread takes a line.
        let text = || String::from_utf8(shown.0.lock().unwrap().clone()).unwrap();
        while !text().contains("lines were dropped") {
            std::thread::sleep(Duration::from_millis(5));
        }
        let lost: u64 = text()
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .filter_map(|line| line["lines"].as_u64())
            .sum();
        // The thread may already have taken one line.
        assert!((99..=100).contains(&lost), "{lost}");
    }
}
