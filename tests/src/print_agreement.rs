//! Compares `flightline print --json` with the JDK's `jfr print --json`: the same events in the same order,
//! field by field.
//!
//! [`Allowed`] lists all permitted differences.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use jfr_format::header::ChunkHeader;
use jfr_format::read::{Input, Item};

use crate::jfr_tool::JfrTool;
use crate::json_events::{Events, Json};
use crate::run::{self, Finished};

/// A difference that is caused by the JDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowed {
    /// HotSpot writes a character beyond the basic plane as two surrogates of three bytes each. The JDK reads
    /// them as two malformed sequences and shows U+FFFD for each; we show the character.
    Character,
    /// The JDK keeps the clock of an earlier chunk while the metadata stay the same; we use each chunk's own.
    /// Exactly the difference of the two is allowed, the same for all events of a chunk.
    Clock,
    /// The text of JDK 17 for the spans whose value is the smallest or the largest long, which mean "none"
    /// and "for ever".
    Extreme,
    /// JDK 17 prints unsigned numbers with a sign.
    Sign,
    /// JDK 17 prints more digits than a `float` or `double` needs.
    Digits,
    /// An unpaired surrogate in a string: the JDK prints it, we print U+FFFD.
    Surrogate,
    /// The JDK scales ticks in floating point, which beyond 2⁵³ is not exact.
    Scale,
    /// The JDK's conversion of microseconds and ticks to nanoseconds overflows, ours does not.
    Overflow,
    /// A Java thread that was started again: the JDK prints its thread id of an earlier chunk.
    Thread,
}

/// The largest span, and the text of JDK 17 where 25 prints it: rounded to the unit, or overflowed.
const FOREVER: &str = "PT2562047788015215H30M7.999999999S";
const FOREVER_17: [&str; 4] =
    ["PT2562047788015215H30M7S", "PT2562047788015H12M55.807S", "PT-0.000001S", "PT2562047H47M16.854775807S"];

/// The results of a comparison.
#[derive(Debug, Default)]
pub struct Agreement {
    /// Events that were compared.
    pub events: u64,
    /// The events among them that are equal byte for byte.
    pub same_bytes: u64,
    /// The bytes of JSON that the JDK printed for them.
    pub json_bytes: u64,
    /// The values that differ in an allowed way: their number and the first one.
    pub allowed: BTreeMap<Allowed, (u64, String)>,
    /// All other differences, by event type and path in the event: their number and an example.
    pub differences: BTreeMap<String, (u64, String)>,
    /// The JDK's error message, if it failed or stopped early.
    pub jdk_failed: Option<String>,
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events, {} MB of JSON", self.events, self.json_bytes / 1_000_000)?;
        write!(f, ", {} byte for byte the same", self.same_bytes)?;
        for (kind, (count, example)) in &self.allowed {
            write!(f, ", {count} × {kind:?} ({example})")?;
        }
        if let Some(why) = &self.jdk_failed {
            write!(f, "; the JDK: {why}")?;
        }
        for (place, (count, example)) in &self.differences {
            write!(f, "\n  {count} × {place}: {example}")?;
        }
        Ok(())
    }
}

/// `flightline print` while it runs.
struct Printing {
    child: Child,
    events: Events<ChildStdout>,
    stderr: std::thread::JoinHandle<Vec<u8>>,
}

impl Printing {
    fn start(mut command: Command) -> Self {
        let mut child =
            run::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let events = Events::new(child.stdout.take().unwrap());
        let stderr = run::collect(child.stderr.take().unwrap());
        Self { child, events, stderr }
    }

    /// Waits for its end. The exit status is not checked: it is 1 if the file contains anything dubious.
    fn end(mut self) {
        // A program that still prints gets a broken pipe.
        drop(self.events);
        run::wait(&mut self.child, Duration::from_secs(60), "flightline print");
        self.stderr.join().unwrap();
    }
}

/// Compares the events that `flightline print` prints of `file` with those that the JDK's tool `jfr` prints of `readable`: the same file,
/// or the same recording in a form that the JDK reads.
///
/// # Panics
/// Ours fails, or prints invalid JSON.
#[track_caller]
pub fn compare(
    flightline: &Path,
    jfr: &mut JfrTool,
    file: &Path,
    readable: &Path,
    depth: Option<usize>,
) -> Agreement {
    let depth: Vec<String> =
        depth.map_or_else(Vec::new, |depth| vec!["--stack-depth".into(), depth.to_string()]);
    let mut ours = Command::new(flightline);
    ours.args(["print", "--json"]).args(&depth).arg(file);
    let mut args = vec!["print", "--json"];
    args.extend(depth.iter().map(String::as_str));
    args.push(readable.to_str().expect("a UTF-8 path"));
    let mut theirs = Events::new(jfr.stream(&args));
    let mut ours = Printing::start(ours);
    let mut comparison = Comparison { clocks: clocks(file), ..Comparison::default() };
    loop {
        let our_event = ours.events.event().expect("our JSON");
        let their_event = theirs.event().expect("the JDK's JSON");
        match (our_event, their_event) {
            (Some(our_event), Some(their_event)) => comparison.event(our_event, their_event),
            (None, None) => {
                let complete = ours.events.complete || !theirs.complete;
                assert!(complete, "{}: our JSON has no end", file.display());
                break;
            }
            (Some(event), None) => {
                comparison.differs("more of ours", || head(event));
                break;
            }
            (None, Some(event)) => {
                comparison.differs("more of the JDK's", || head(event));
                break;
            }
        }
    }
    ours.end();
    let is_complete = theirs.complete;
    // A tool that still prints gets a broken pipe.
    drop(theirs);
    comparison.agreement.jdk_failed =
        failure(&jfr.end()).or_else(|| (!is_complete).then(|| "no end of the document".into()));
    comparison.agreement
}

/// The exit status and the first line of standard error; `None` if the tool succeeded.
fn failure(finished: &Finished) -> Option<String> {
    let first = finished.stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    (!finished.status.success()).then(|| format!("{}: {}", finished.status, first.trim()))
}

fn head(event: &[u8]) -> String {
    String::from_utf8_lossy(&event[..event.len().min(300)]).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The header of each chunk, and its number of events.
fn clocks(file: &Path) -> Vec<(ChunkHeader, u64)> {
    let mut clocks = Vec::new();
    let mut input = Input::open(file).unwrap();
    let mut events = 0;
    while let Ok(Some(item)) = input.next() {
        match item {
            Item::Events(batch) => events += batch.events().count() as u64,
            Item::ChunkEnd(end) => clocks.push((end.chunk.header, std::mem::take(&mut events))),
            _ => {}
        }
    }
    clocks
}

#[derive(Default)]
struct Comparison {
    clocks: Vec<(ChunkHeader, u64)>,
    /// The chunk of the current event, and the number of its events so far.
    chunk: usize,
    in_chunk: u64,
    /// The difference of the JDK's times in this chunk in ns.
    shift: Option<i128>,
    agreement: Agreement,
}

impl Comparison {
    fn event(&mut self, ours: &[u8], theirs: &[u8]) {
        while self.clocks.get(self.chunk).is_some_and(|(_, events)| self.in_chunk >= *events) {
            self.chunk += 1;
            self.in_chunk = 0;
            self.shift = None;
        }
        self.in_chunk += 1;
        self.agreement.events += 1;
        self.agreement.json_bytes += theirs.len() as u64;
        if ours == theirs {
            self.agreement.same_bytes += 1;
            return;
        }
        let ours = Json::parse(ours).unwrap_or_else(|e| panic!("our JSON: {e}"));
        let theirs = Json::parse(theirs).unwrap_or_else(|e| panic!("the JDK's JSON: {e}"));
        let kind = |event: &Json| event.get("type").and_then(Json::text).unwrap_or_default();
        let (our_kind, their_kind) = (kind(&ours), kind(&theirs));
        if our_kind != their_kind {
            let start =
                |event: &Json| event.get("values").and_then(|v| v.get("startTime")).and_then(Json::text);
            let n = self.agreement.events;
            self.differs("type of the event", || {
                format!(
                    "event {}: ours {our_kind} {:?}, JDK {their_kind} {:?}",
                    n,
                    start(&ours),
                    start(&theirs)
                )
            });
            return;
        }
        let mut path = our_kind;
        self.value(&mut path, &ours, &theirs);
    }

    fn differs(&mut self, place: &str, example: impl FnOnce() -> String) {
        match self.agreement.differences.get_mut(place) {
            Some((count, _)) => *count += 1,
            None => {
                let example = example();
                self.agreement.differences.insert(place.to_owned(), (1, example));
            }
        }
    }

    fn value(&mut self, path: &mut String, ours: &Json, theirs: &Json) {
        let length = path.len();
        match (ours, theirs) {
            (Json::Object(a), Json::Object(b)) if a.iter().map(|(k, _)| k).eq(b.iter().map(|(k, _)| k)) => {
                let again = self.started_again(ours, theirs);
                for ((name, a), (_, b)) in a.iter().zip(b) {
                    if again && name == "osThreadId" {
                        self.allow(Allowed::Thread, path, a, b);
                        continue;
                    }
                    path.push('.');
                    path.push_str(name);
                    self.value(path, a, b);
                    path.truncate(length);
                }
            }
            (Json::List(a), Json::List(b)) if a.len() == b.len() => {
                path.push_str("[]");
                for (a, b) in a.iter().zip(b) {
                    self.value(path, a, b);
                }
                path.truncate(length);
            }
            (Json::Object(a), Json::Object(b)) => {
                let names =
                    |o: &[(String, Json)]| o.iter().map(|(k, _)| k.as_str()).collect::<Vec<_>>().join(" ");
                self.differs(path, || format!("members: ours {}, JDK {}", names(a), names(b)));
            }
            (Json::List(a), Json::List(b)) => {
                self.differs(path, || format!("ours {} elements, JDK {}", a.len(), b.len()));
            }
            _ if same(ours, theirs) => {}
            _ => match self.allowed(ours, theirs) {
                Some(kind) => self.allow(kind, path, ours, theirs),
                None => {
                    let n = self.agreement.events;
                    self.differs(path, || format!("event {n}: ours {}, JDK {}", shown(ours), shown(theirs)));
                }
            },
        }
    }

    fn allow(&mut self, kind: Allowed, path: &str, ours: &Json, theirs: &Json) {
        let example = || format!("{path}: {} {}", shown(ours), shown(theirs));
        self.agreement.allowed.entry(kind).or_insert_with(|| (0, example())).0 += 1;
    }

    /// The same Java thread in a later chunk with another OS thread id.
    fn started_again(&self, ours: &Json, theirs: &Json) -> bool {
        let same = |name: &str| ours.get(name).is_some() && ours.get(name) == theirs.get(name);
        let java = ours.get("javaThreadId").is_some_and(|id| *id != Json::Number("0".into()));
        self.chunk > 0 && java && same("javaThreadId") && same("javaName") && !same("osThreadId")
    }

    fn allowed(&mut self, ours: &Json, theirs: &Json) -> Option<Allowed> {
        match (ours, theirs) {
            (Json::Number(a), Json::Number(b)) if is_fraction(a) && is_fraction(b) => {
                let digits = |n: &str| {
                    n.bytes().take_while(|b| *b != b'E' && *b != b'e').filter(u8::is_ascii_digit).count()
                };
                let same = a.parse::<f32>().ok()?.to_bits() == b.parse::<f32>().ok()?.to_bits();
                // Doubles are compared by their first sixteen digits. Nine digits determine a float.
                (same && digits(b) <= 9 || digits(a) > 9 && near(a.parse().ok()?, b.parse().ok()?))
                    .then_some(Allowed::Digits)
            }
            (Json::Number(a), Json::Number(b)) => {
                let (a, b) = (a.parse::<i128>().ok()?, b.parse::<i128>().ok()?);
                (b < 0 && [8, 16, 32, 64].contains(&(a - b).checked_ilog2()?) && (a - b).count_ones() == 1)
                    .then_some(Allowed::Sign)
            }
            (Json::Text(a), Json::Text(b)) if garbled(a) == *b => Some(Allowed::Character),
            (Json::Text(a), Json::Text(b)) if *a == lossy(b) => Some(Allowed::Surrogate),
            (Json::Text(_), Json::Text(_)) => {
                let (ours, theirs) = (ours.text()?, theirs.text()?);
                if ours == FOREVER && FOREVER_17.contains(&&*theirs) {
                    return Some(Allowed::Extreme);
                }
                match (span(&ours), span(&theirs)) {
                    (Some(a), Some(b)) if a as i64 as i128 == b => Some(Allowed::Overflow),
                    (Some(a), Some(b)) => scaled(a, b - a).then_some(Allowed::Scale),
                    _ => self.times(nanos(&ours)?, nanos(&theirs)?),
                }
            }
            _ => None,
        }
    }

    fn times(&mut self, ours: i128, theirs: i128) -> Option<Allowed> {
        let shift = theirs - ours;
        // Each of the two is rounded to ns.
        let near = |expected: i128| (shift - expected).abs() <= 1;
        let own = self.clocks.get(self.chunk)?.0;
        let earlier = self.clocks[..self.chunk].iter().map(|(header, _)| difference(header, &own));
        let expected = self.shift.or_else(|| earlier.into_iter().find(|expected| near(*expected)));
        if let Some(expected) = expected.filter(|expected| near(*expected)) {
            self.shift = Some(expected);
            return Some(Allowed::Clock);
        }
        // Our value is the nearest long.
        if ours == i64::MAX.into() || ours == i64::MIN.into() {
            return Some(Allowed::Overflow);
        }
        scaled(ours - i128::from(own.start_nanos), shift - self.shift.unwrap_or(0)).then_some(Allowed::Scale)
    }
}

/// Returns true if a value in ns can be off by `off` because it was scaled in floating point.
fn scaled(value: i128, off: i128) -> bool {
    let value = value.unsigned_abs();
    value > 1 << 53 && off.unsigned_abs() <= (value >> 52) + 1
}

/// Doubles that differ at most in the last digit.
fn near(a: f64, b: f64) -> bool {
    a.is_sign_negative() == b.is_sign_negative() && a.to_bits().abs_diff(b.to_bits()) <= 1
}

/// Replaces unpaired surrogates in a text.
fn lossy(text: &[u16]) -> Vec<u16> {
    String::from_utf16_lossy(text).encode_utf16().collect()
}

/// The difference between the clocks of `earlier` and `own` at the start of that chunk, in ns.
fn difference(earlier: &ChunkHeader, own: &ChunkHeader) -> i128 {
    let ticks = i128::from(own.start_ticks.0) - i128::from(earlier.start_ticks.0);
    let since = ticks * 1_000_000_000 / i128::from(earlier.ticks_per_second.max(1));
    i128::from(earlier.start_nanos) + since - i128::from(own.start_nanos)
}

/// Values that are equal, or numbers with a fraction that are the same number.
fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) if is_fraction(a) && is_fraction(b) => {
            a.parse::<f64>().ok().map(f64::to_bits) == b.parse::<f64>().ok().map(f64::to_bits)
        }
        _ => a == b,
    }
}

fn is_fraction(number: &str) -> bool {
    number.contains(['.', 'e', 'E'])
}

/// A text as the JDK prints the bytes that HotSpot writes for it.
fn garbled(text: &[u16]) -> Vec<u16> {
    text.iter().map(|unit| if (0xd800..0xe000).contains(unit) { 0xfffd } else { *unit }).collect()
}

fn shown(value: &Json) -> String {
    let text = match value {
        Json::Text(_) => format!("{:?}", value.text().unwrap()),
        Json::Object(_) => "an object".into(),
        Json::List(list) => format!("a list of {}", list.len()),
        other => format!("{other:?}"),
    };
    text.chars().take(160).collect()
}

/// ns of `PT-2H30M1.5S`.
fn span(text: &str) -> Option<i128> {
    let mut rest = text.strip_prefix("PT")?;
    let mut sum = 0;
    while let Some(at) = rest.find(['H', 'M', 'S']) {
        let (whole, fraction) = rest[..at].split_once('.').unwrap_or((&rest[..at], ""));
        let unit = match rest.as_bytes()[at] {
            b'H' => 3600,
            b'M' => 60,
            _ => 1,
        };
        let fraction = format!("{fraction:0<9}").parse::<i128>().ok()?;
        let sign = if whole.starts_with('-') { -1 } else { 1 };
        sum += (whole.parse::<i128>().ok()? * 1_000_000_000 + sign * fraction) * unit;
        rest = &rest[at + 1..];
    }
    rest.is_empty().then_some(sum)
}

/// ns since 1970 of `2026-11-20T23:30:35.910230594Z`, or with an offset from UTC.
fn nanos(text: &str) -> Option<i128> {
    let (date, clock) = text.split_once('T')?;
    let zone = clock.rfind(['Z', '+', '-'])?;
    let (clock, zone) = clock.split_at(zone);
    let number = |s: &str| s.parse::<i128>().ok();
    let mut date = date.rsplitn(3, '-').map(number);
    let (day, month, year) = (date.next()??, date.next()??, date.next()??);
    // Days since 1970, by the civil calendar.
    let y = year - i128::from(month <= 2);
    let era_day = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + era_day - 719_468;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.split(':').map(number);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    let offset = match zone {
        "Z" => 0,
        zone => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let minutes = number(hours)? * 60 + number(minutes)?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
    };
    let seconds = days * 86_400 + hour * 3600 + (minute - offset) * 60 + second;
    Some(seconds * 1_000_000_000 + number(&format!("{fraction:0<9}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_and_durations_are_parsed_to_nanoseconds() {
        assert_eq!(nanos("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(nanos("2000-02-29T00:00:00.5Z"), Some(951_782_400_500_000_000));
        assert_eq!(nanos("2026-11-20T23:14:22.020153111+01:30"), Some(1_795_211_062_020_153_111));
        assert_eq!(nanos("2026-11-20T21:44-00:00"), Some(1_795_211_040_000_000_000));
        assert_eq!(nanos("PT0.5S"), None);
        assert_eq!(span("PT-1H-30M-0.5S"), Some(-5_400_500_000_000));
        assert_eq!(span("PT0.000000001S"), Some(1));
    }

    fn compared(ours: &str, theirs: &str) -> Agreement {
        let mut comparison = Comparison::default();
        comparison.event(ours.as_bytes(), theirs.as_bytes());
        comparison.agreement
    }

    #[test]
    fn differences_are_detected() {
        let of = |values: &str| format!("{{\"type\": \"t\", \"values\": {values}}}");
        let places = |a: &str, b: &str| compared(&of(a), &of(b)).differences.into_keys().collect::<Vec<_>>();
        let none: [&str; 0] = [];
        assert_eq!(places("{\"a\":1.0E-3,\"b\":[null]}", "{ \"a\": 0.001, \"b\": [ null ] }"), none);
        assert_eq!(places("{\"a\": 1}", "{\"a\": 2}"), ["t.values.a"]);
        assert_eq!(places("{\"a\": 1}", "{\"a\": 1.0}"), ["t.values.a"]);
        assert_eq!(places("{\"a\": 1}", "{\"a\": \"1\"}"), ["t.values.a"]);
        assert_eq!(places("{\"a\": 1}", "{\"b\": 1}"), ["t.values"]);
        assert_eq!(places("{\"a\": [1]}", "{\"a\": [1, 1]}"), ["t.values.a"]);
        assert_eq!(places("{\"a\": \"x\"}", "{\"a\": \"\\ufffd\"}"), ["t.values.a"]);
        assert_eq!(places("{\"a\": \"\u{1f980}\"}", "{\"a\": \"\\ufffd\\ufffd\"}"), none);
        // In the first chunk no time may differ.
        let time = |ns: u32| format!("{{\"a\": \"2026-01-01T00:00:00.{ns:09}Z\"}}");
        assert_eq!(places(&time(1), &time(2)), ["t.values.a"]);
    }

    #[test]
    fn only_earlier_chunk_clock_shift_is_allowed() {
        let header = |nanos, ticks| ChunkHeader {
            start_nanos: nanos,
            start_ticks: jfr_format::ids::Ticks(ticks),
            ticks_per_second: 1_000_000_000,
            ..clock_less()
        };
        let mut comparison =
            Comparison { clocks: vec![(header(0, 0), 1), (header(1000, 900), 3)], ..Comparison::default() };
        let event =
            |ns: u32| format!("{{\"type\": \"t\", \"values\": {{\"a\": \"1970-01-01T00:00:00.{ns:09}Z\"}}}}");
        comparison.event(event(5).as_bytes(), event(5).as_bytes());
        comparison.event(event(1100).as_bytes(), event(1000).as_bytes());
        assert_eq!(comparison.agreement.allowed[&Allowed::Clock].0, 1);
        assert_eq!(comparison.agreement.allowed.len(), 1);
        comparison.event(event(1100).as_bytes(), event(1010).as_bytes());
        assert_eq!(comparison.agreement.differences.len(), 1);
    }

    fn clock_less() -> ChunkHeader {
        let mut bytes = [0; 68];
        bytes[..4].copy_from_slice(b"FLR\0");
        bytes[5] = 2;
        ChunkHeader::decode(&bytes).unwrap()
    }
}
