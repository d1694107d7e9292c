//! Sending to a simulated Fluentd: the bytes on the wire, and the results if the receiver is slow, gone,
//! invalid or has another key.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use flate2::read::GzDecoder;
use flightline_export::send::{Report, Request, Sender, Settings, Signal, Target};
use rmpv::Value;
use sha2::{Digest, Sha512};

fn settings() -> Settings {
    let (first_pause, long) = (Duration::from_millis(1), Duration::from_secs(60));
    Settings {
        first_pause,
        timeout: long,
        patience: long,
        tag: "profiles.app".to_owned(),
        ..Settings::default()
    }
}

/// The entries of two rows, as passed to the sender.
fn request(number: u64) -> Request {
    let mut body = Vec::new();
    for row in 0..2 {
        let record = Value::Map(vec![("row".into(), (number * 2 + row).into())]);
        let entry = Value::Array(vec![Value::Ext(0, vec![0, 0, 0, 7, 0, 0, 0, 9]), record]);
        rmpv::encode::write_value(&mut body, &entry).unwrap();
    }
    Request { signal: Signal::Rows, body, count: 2 }
}

fn sent(listener: &TcpListener, settings: Settings, requests: u64) -> (Report, Vec<String>) {
    let target = Target::parse(&format!("fluentd://{}", listener.local_addr().unwrap())).unwrap();
    let patience = settings.patience;
    let sender = Sender::new(&target, settings).unwrap();
    (0..requests).for_each(|number| sender.put(request(number)));
    sender.finish(patience)
}

/// A received message: its tag, rows and id.
#[derive(Debug, PartialEq)]
struct Message {
    tag: String,
    rows: Vec<u64>,
    id: String,
}

fn value(stream: &mut TcpStream) -> Option<Value> {
    rmpv::decode::read_value(stream).ok()
}

fn member<'v>(map: &'v Value, name: &str) -> Option<&'v Value> {
    map.as_map()?.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
}

fn message(stream: &mut TcpStream) -> Option<Message> {
    let message = value(stream)?;
    let [tag, Value::Binary(entries), options] = message.as_array()?.as_slice() else { panic!("{message}") };
    let mut bytes = Vec::new();
    match member(options, "compressed").and_then(Value::as_str) {
        Some("gzip") => _ = GzDecoder::new(&entries[..]).read_to_end(&mut bytes).unwrap(),
        _ => bytes.clone_from(entries),
    }
    let (mut left, mut rows) = (&bytes[..], Vec::new());
    while !left.is_empty() {
        let entry = rmpv::decode::read_value(&mut left).unwrap();
        let [Value::Ext(0, time), record] = entry.as_array().unwrap().as_slice() else { panic!("{entry}") };
        assert_eq!(time, &[0, 0, 0, 7, 0, 0, 0, 9]);
        rows.push(member(record, "row").unwrap().as_u64().unwrap());
    }
    assert_eq!(member(options, "size").unwrap().as_u64(), Some(rows.len() as u64));
    let id = member(options, "chunk").unwrap().as_str().unwrap().to_owned();
    Some(Message { tag: tag.as_str().unwrap().to_owned(), rows, id })
}

fn say(stream: &mut TcpStream, value: &Value) {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    // The sender may have closed the connection.
    let _ = stream.write_all(&bytes);
}

fn ack(stream: &mut TcpStream, id: &str) {
    say(stream, &Value::Map(vec![("ack".into(), id.into())]));
}

/// Starts a receiver that handles each connection by `each`, and returns everything it received.
fn receiver(
    listener: &TcpListener,
    connections: usize,
    each: impl Fn(usize, &mut TcpStream) -> Vec<Message> + Send + 'static,
) -> JoinHandle<Vec<Message>> {
    let listener = listener.try_clone().unwrap();
    spawn(move || {
        (0..connections).flat_map(|number| each(number, &mut listener.accept().unwrap().0)).collect()
    })
}

fn all(stream: &mut TcpStream) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some(message) = message(stream) {
        ack(stream, &message.id);
        messages.push(message);
    }
    messages
}

#[test]
fn messages_are_acknowledged_on_one_connection() {
    for gzip in [true, false] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let got = receiver(&listener, 1, |_, stream| all(stream));
        let (report, messages) = sent(&listener, Settings { gzip, ..settings() }, 3);
        assert_eq!(
            (report.requests, report.sent, report.failed, report.dropped, report.retries),
            (3, 6, 0, 0, 0),
            "{messages:?}"
        );
        let got = got.join().unwrap();
        assert!(got.iter().all(|message| message.tag == "profiles.app"));
        assert_eq!(
            got.iter().flat_map(|message| message.rows.clone()).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 5]
        );
        let ids: std::collections::BTreeSet<&str> = got.iter().map(|message| message.id.as_str()).collect();
        assert_eq!(ids.len(), 3);
    }
}

#[test]
fn unacknowledged_message_is_resent_with_same_id() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // First message: received but not acknowledged; then a wrong id, an invalid response, a closed
    // connection, and success.
    let got = receiver(&listener, 5, |number, stream| match number {
        0 => message(stream).into_iter().collect(),
        1 => {
            let message = message(stream);
            ack(stream, "another");
            message.into_iter().collect()
        }
        2 => {
            let message = message(stream);
            // Nested arrays.
            let _ = stream.write_all(&[0x91; 100]);
            message.into_iter().collect()
        }
        3 => Vec::new(),
        _ => all(stream),
    });
    let (report, messages) = sent(&listener, settings(), 2);
    assert_eq!((report.requests, report.sent, report.failed), (2, 4, 0), "{messages:?}");
    assert_eq!(report.retries, 4);
    let got = got.join().unwrap();
    let first: Vec<&Message> = got.iter().filter(|message| message.rows == [0, 1]).collect();
    assert!(first.len() >= 4 && first.iter().all(|message| message.id == first[0].id), "{got:?}");
    assert_eq!(got.iter().filter(|message| message.rows == [2, 3]).count(), 1);
}

#[test]
fn connection_closed_after_message_is_reopened_without_pause() {
    // With a pause between attempts, the time limit would be over first.
    let long = Duration::from_secs(3_600);
    let (timeout, patience) = (Duration::from_secs(60), Duration::from_secs(60));
    let without_pauses = Settings { first_pause: long, longest_pause: long, timeout, patience, ..settings() };
    for asks in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let got = receiver(&listener, 3, move |_, stream| {
            if asks {
                assert!(key(stream, "secret", "secret", false));
            }
            let message = message(stream);
            ack(stream, &message.as_ref().unwrap().id);
            // A sender that ignored the receiver's wish would keep the connection open.
            let mut rest = Vec::new();
            if asks {
                assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0);
            }
            message.into_iter().collect()
        });
        let settings = Settings { shared_key: asks.then(|| "secret".to_owned()), ..without_pauses.clone() };
        let (report, messages) = sent(&listener, settings, 3);
        assert_eq!((report.sent, report.retries), (6, 0), "{messages:?}");
        let rows: Vec<u64> = got.join().unwrap().into_iter().flat_map(|message| message.rows).collect();
        assert_eq!(rows, [0, 1, 2, 3, 4, 5]);
    }
}

#[test]
fn connection_lost_within_message_costs_one_retry() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let got = receiver(&listener, 3, |number, stream| match number {
        0 => {
            stream.read_exact(&mut [0; 40]).unwrap();
            Vec::new()
        }
        // The receiver accepts the first message and only a part of the second.
        1 => {
            let message = message(stream).unwrap();
            ack(stream, &message.id);
            stream.read_exact(&mut [0; 40]).unwrap();
            vec![message]
        }
        _ => all(stream),
    });
    let (report, messages) = sent(&listener, settings(), 2);
    assert_eq!((report.sent, report.failed, report.retries), (4, 0, 1), "{messages:?}");
    let rows: Vec<u64> = got.join().unwrap().into_iter().flat_map(|message| message.rows).collect();
    assert_eq!(rows, [0, 1, 2, 3]);
}

#[test]
fn message_id_depends_on_tag() {
    let id = |tag: &str| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let got = receiver(&listener, 1, |_, stream| all(stream));
        let (report, _) = sent(&listener, Settings { tag: tag.to_owned(), ..settings() }, 1);
        assert_eq!(report.sent, 2);
        got.join().unwrap().remove(0).id
    };
    assert_eq!(id("a"), id("a"));
    assert_ne!(id("a"), id("b"));
}

#[test]
fn unacknowledged_messages_fail_within_time_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let short = Duration::from_millis(300);
    // The connection is not accepted: messages go into the socket's buffer, and there is no response.
    let impatient = Settings { timeout: short, patience: short, ..settings() };
    let (report, messages) = sent(&listener, impatient, 1);
    assert_eq!((report.requests, report.failed + report.dropped), (0, 2), "{messages:?}");
    // Requests beyond the queue's size are counted.
    let target = Target::parse(&format!("fluentd://{}", listener.local_addr().unwrap())).unwrap();
    let sender =
        Sender::new(&target, Settings { queue: 60, timeout: short, patience: short, ..settings() }).unwrap();
    let taken = (0..20).filter(|&number| sender.offer(request(number))).count() as u64;
    assert!(taken < 20);
    let (report, _) = sender.finish(short);
    assert_eq!((report.requests, report.failed + report.dropped), (0, 40));
    let refused = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = refused.local_addr().unwrap();
    drop(refused);
    let target = Target::parse(&format!("fluentd://{address}")).unwrap();
    let sender = Sender::new(&target, Settings { timeout: short, patience: short, ..settings() }).unwrap();
    sender.put(request(0));
    let (report, messages) = sender.finish(short);
    assert_eq!(report.failed + report.dropped, 2);
    assert!(messages.iter().any(|message| message.contains("cannot connect to")), "{messages:?}");
}

/// The receiver's side of the handshake. Returns true if the sender knows the key.
fn key(stream: &mut TcpStream, key: &str, own: &str, keep: bool) -> bool {
    let options = Value::Map(vec![
        ("nonce".into(), Value::Binary(b"nonce".to_vec())),
        ("auth".into(), "".into()),
        ("keepalive".into(), keep.into()),
    ]);
    say(stream, &Value::Array(vec!["HELO".into(), options]));
    let Some(ping) = value(stream) else { return false };
    let parts = ping.as_array().unwrap();
    assert_eq!(parts[0].as_str(), Some("PING"));
    let text = |at: usize| parts[at].as_str().unwrap().to_owned();
    let Value::Binary(salt) = &parts[2] else { panic!("{ping}") };
    let digest = |name: &str, key: &str| {
        let all = [&salt[..], name.as_bytes(), b"nonce", key.as_bytes()].concat();
        Sha512::digest(all).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let known = text(3) == digest(&text(1), key);
    let why = if known { "" } else { "shared_key mismatch\u{1b}[2J" };
    let pong = ["PONG".into(), known.into(), why.into(), "stub".into(), digest("stub", own).into()];
    say(stream, &Value::Array(pong.to_vec()));
    known
}

#[test]
fn shared_key_is_verified_by_both_sides() {
    let with = |key: &str| Settings { shared_key: Some(key.to_owned()), ..settings() };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let got = receiver(&listener, 1, |_, stream| {
        assert!(key(stream, "secret", "secret", true));
        all(stream)
    });
    let (report, _) = sent(&listener, with("secret"), 2);
    assert_eq!((report.sent, got.join().unwrap().len()), (4, 2));
    for (asked, own, told) in [
        ("another", "another", "rejected the shared key: shared_key mismatch"),
        ("secret", "none", "did not prove that it has the shared key"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let got = receiver(&listener, 1, move |_, stream| {
            key(stream, asked, own, true);
            message(stream).into_iter().collect()
        });
        let (report, messages) = sent(&listener, with("secret"), 1);
        assert_eq!((report.failed, got.join().unwrap()), (2, Vec::new()));
        assert!(
            messages.iter().any(|message| message.contains(told) && !message.contains('\u{1b}')),
            "{messages:?}"
        );
    }
}

#[test]
fn missing_shared_key_is_reported_without_retry() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let got = receiver(&listener, 1, |_, stream| {
        say(stream, &Value::Array(vec!["HELO".into(), Value::Map(Vec::new())]));
        message(stream).into_iter().collect()
    });
    let (report, messages) = sent(&listener, settings(), 1);
    assert_eq!((report.failed, report.retries, got.join().unwrap().len()), (2, 0, 1), "{messages:?}");
    assert!(messages.iter().any(|message| message.contains("--shared-key-file")), "{messages:?}");
}

#[test]
fn missing_shared_key_is_reported_after_disconnect() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let got = receiver(&listener, 1, |_, stream| {
        say(stream, &Value::Array(vec!["HELO".into(), Value::Map(Vec::new())]));
        // A part of a message that is larger than the sockets' buffers.
        stream.read_exact(&mut [0; 40]).unwrap();
        stream.shutdown(std::net::Shutdown::Both).unwrap();
        Vec::new()
    });
    let target = Target::parse(&format!("fluentd://{}", listener.local_addr().unwrap())).unwrap();
    let sender = Sender::new(&target, Settings { gzip: false, ..settings() }).unwrap();
    let Request { signal, count, .. } = request(0);
    sender.put(Request { signal, body: vec![0xc0; 16 << 20], count });
    let (report, messages) = sender.finish(settings().patience);
    assert_eq!((report.failed, report.retries, got.join().unwrap().len()), (2, 0, 0), "{messages:?}");
    assert!(messages.iter().any(|message| message.contains("--shared-key-file")), "{messages:?}");
}

#[test]
fn unneeded_shared_key_is_reported() {
    // The receiver sends nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let short = Duration::from_millis(300);
    let key = Some("secret".to_owned());
    let impatient = Settings { timeout: short, patience: short, shared_key: key, ..settings() };
    let (report, messages) = sent(&listener, impatient, 1);
    assert_eq!(report.failed, 2);
    assert!(messages.iter().any(|message| message.contains("omit --shared-key-file")), "{messages:?}");
}
