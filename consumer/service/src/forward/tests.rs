use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use bytes::Bytes;
use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message;

use super::*;
use crate::ingest::{self, Limits};
use crate::log::{Format as LogFormat, Level};
use crate::render::tests::FIXTURES;
use crate::render::{Format, RenderOptions, make};
use crate::wire::{Labels, State, Target};

/// A received request.
struct Came {
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Came {
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }
}

/// Starts a receiver that answers with these statuses in turn, repeating the last.
fn receiver(statuses: &'static [u16]) -> (String, Receiver<Came>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut statuses = statuses.iter();
        let mut status = 0;
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while let Some(came) = request(&mut reader) {
                status = statuses.next().copied().unwrap_or(status);
                if tell.send(came).is_err() || answer(&stream, status).is_err() {
                    return;
                }
            }
        }
    });
    (address, told)
}

fn request(reader: &mut impl BufRead) -> Option<Came> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&read| read > 0)?;
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let mut came = Came { line: line.trim_end().to_owned(), headers, body: Vec::new() };
    let length: u64 = came.header("content-length").parse().unwrap();
    reader.take(length).read_to_end(&mut came.body).ok()?;
    Some(came)
}

fn answer(mut stream: &TcpStream, status: u16) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\nwords")
}

fn recording() -> Bytes {
    std::fs::read(format!("{FIXTURES}recordings/flightline.jfr")).unwrap().into()
}

fn item() -> Item {
    let labels = [("service", "shop,cart"), ("zone", "eu"), ("odd key", "v}")];
    let of = Target {
        id: "burn-1".into(),
        name: "burn".into(),
        host: "db1".into(),
        pid: 1,
        start_time: 0,
        joined_time: 0,
        last_seen: 0,
        state: State::Live,
        gone: String::new(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        modes: Vec::new(),
        run: None,
        continuous: None,
        load: None,
    };
    let bytes = recording();
    Item {
        bytes: bytes.len() as u64,
        content: Content::Bytes(bytes),
        of,
        labels: Labels::from([("version".to_owned(), "2".to_owned())]),
        from: 1_700_000_000_400,
        until: 1_700_000_010_000,
    }
}

/// A receiver with short retry delays.
fn to(kind: Kind, address: &str) -> Destination {
    let url = format!("http://{address}");
    let target = if kind == Kind::Otlp { send::Target::parse(&url) } else { send::Target::pyroscope(&url) };
    let mut to =
        Destination::new(kind, target.unwrap(), vec![("authorization".into(), "Bearer secret".into())]);
    to.settings.first_pause = Duration::from_millis(20);
    to.settings.longest_pause = Duration::from_millis(40);
    to
}

fn until(forward: &Forward, is: impl Fn(&Counts) -> bool) -> Counts {
    let began = Instant::now();
    loop {
        let counts = forward.counts()[0].1;
        if is(&counts) {
            return counts;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{counts:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Total weight of the recording in ns, or its number of samples.
fn total(total: bool) -> u64 {
    let file = std::fs::File::open(format!("{FIXTURES}recordings/flightline.jfr")).unwrap();
    let wanted = RenderOptions { event: Some("cpu".into()), total, ..RenderOptions::default() };
    make(Format::Folded, &[file], &wanted, &mut Vec::new()).unwrap().total
}

#[test]
fn pyroscope_receives_labeled_recording_after_retries() {
    let (address, came) = receiver(&[503, 429, 500, 200]);
    let forward = Forward::new(&[to(Kind::Pyroscope, &address)], &Log::default()).unwrap();
    forward.offer(item());
    let counts = until(&forward, |counts| counts.sent == 1);
    assert_eq!((counts.retries, counts.failed, counts.dropped, counts.waiting), (3, 0, 0, 0));
    let all: Vec<Came> = came.try_iter().collect();
    assert_eq!(all.len(), 4);
    // A receiver multiplies samples by the sampling interval.
    let rate = (total(false) * 1_000_000_000 / total(true)).to_string();
    for one in &all {
        assert_eq!(one.body, all[0].body, "the same again");
        assert_eq!(one.header("authorization"), "Bearer secret");
        let (path, query) = one.line.split_once('?').unwrap();
        assert_eq!(path, "POST /ingest");
        let query = query.strip_suffix(" HTTP/1.1").unwrap();
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let expected = [
            ("name", "shop_cart{host=db1,odd_key=v_,version=2,zone=eu}"),
            ("from", "1700000000"),
            ("until", "1700000010"),
            ("format", "jfr"),
            ("spyName", "flightline"),
            ("sampleRate", rate.as_str()),
        ];
        assert_eq!(pairs, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let kind = Some(one.header("content-type"));
        let took = ingest::ingest(query, kind, one.body.clone().into(), 0, Limits::default()).unwrap();
        assert_eq!(took.recording, Some(recording()));
    }
}

#[test]
fn rejected_recording_is_logged_and_not_retried() {
    for (kind, status) in
        [(Kind::Pyroscope, 400), (Kind::Pyroscope, 422), (Kind::Otlp, 400), (Kind::Otlp, 500)]
    {
        let (address, came) = receiver(if status == 400 {
            &[400]
        } else if status == 422 {
            &[422]
        } else {
            &[500]
        });
        let (shown, told) = channel();
        let log = Log::new(LogFormat::Json, Level::Info, Telling(shown)).unwrap();
        let forward = Forward::new(&[to(kind, &address)], &log).unwrap();
        forward.offer(item());
        let counts = until(&forward, |counts| counts.failed == 1);
        assert_eq!((counts.sent, counts.retries), (0, 0));
        assert_eq!(came.try_iter().count(), 1);
        forward.look();
        log.flush();
        let lines: String = told.try_iter().collect();
        assert!(lines.contains(&format!("returned {status}")) && lines.contains(kind.name()), "{lines}");
        assert!(!lines.contains("secret"), "{lines}");
    }
}

struct Telling(std::sync::mpsc::Sender<String>);

impl Write for Telling {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn full_forward_queue_drops_and_counts_without_blocking() {
    // No service listens on this port.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for kind in [Kind::Pyroscope, Kind::Otlp] {
        let mut to = to(kind, &address);
        // Retry for the whole test, with room for one message and one recording.
        to.settings.patience = Duration::from_secs(3600);
        to.settings.queue = 1;
        to.most = item().bytes;
        let (shown, told) = channel();
        let log = Log::new(LogFormat::Text, Level::Info, Telling(shown)).unwrap();
        let forward = Forward::new(&[to], &log).unwrap();
        for _ in 0..20 {
            forward.offer(item());
        }
        let counts = until(&forward, |counts| counts.dropped >= 15);
        assert!(counts.sent == 0 && counts.failed == 0 && counts.waiting <= item().bytes, "{counts:?}");
        // One being sent, one queued message, one being converted, one queued recording.
        assert!(counts.dropped <= 19, "{counts:?}");
        forward.look();
        forward.finish(Duration::from_millis(50));
        log.flush();
        let lines: String = told.try_iter().collect();
        assert!(lines.contains("recordings="), "{lines}");
        assert_eq!(forward.counts()[0].1.waiting, 0);
    }
}

#[test]
fn unreachable_receiver_fails_after_time_limit() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut to = to(Kind::Otlp, &address);
    to.settings.patience = Duration::from_millis(100);
    let forward = Forward::new(&[to], &Log::default()).unwrap();
    forward.offer(item());
    let counts = until(&forward, |counts| counts.failed == 1);
    assert!(counts.retries > 0 && counts.sent == 0, "{counts:?}");
}

#[test]
fn otlp_receiver_gets_profiles_with_equal_totals() {
    let (address, came) = receiver(&[503, 200]);
    let forward = Forward::new(&[to(Kind::Otlp, &address)], &Log::default()).unwrap();
    forward.offer(item());
    let counts = until(&forward, |counts| counts.sent == 1);
    assert_eq!((counts.retries, counts.failed, counts.dropped), (1, 0, 0));
    let all: Vec<Came> = came.try_iter().collect();
    let last = all.last().unwrap();
    assert_eq!((all.len(), last.line.as_str()), (2, "POST /v1development/profiles HTTP/1.1"));
    assert_eq!(last.header("content-type"), "application/x-protobuf");
    assert_eq!((last.header("content-encoding"), last.header("authorization")), ("gzip", "Bearer secret"));
    let mut body = Vec::new();
    GzDecoder::new(last.body.as_slice()).read_to_end(&mut body).unwrap();
    let request = ExportProfilesServiceRequest::decode(body.as_slice()).unwrap();
    let [resource] = request.resource_profiles.as_slice() else { panic!() };
    let attribute = |name: &str| {
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        match attributes.iter().find(|a| a.key == name)?.value.clone()?.value? {
            Value::StringValue(text) => Some(text),
            _ => None,
        }
    };
    let expected =
        [("service.name", "shop,cart"), ("service.version", "2"), ("host.name", "db1"), ("zone", "eu")];
    for (name, value) in expected {
        assert_eq!(attribute(name).as_deref(), Some(value), "{name}");
    }
    let strings = &request.dictionary.as_ref().unwrap().string_table;
    let profiles = resource.scope_profiles.iter().flat_map(|scope| &scope.profiles);
    let of_cpu =
        profiles.filter(|profile| strings[profile.sample_type.unwrap().type_strindex as usize] == "cpu");
    let sum: i64 = of_cpu.flat_map(|profile| &profile.samples).flat_map(|sample| &sample.values).sum();
    assert_eq!(sum.cast_unsigned(), total(true));
}
