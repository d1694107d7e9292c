//! Sending to receivers that fail, delay, and accept a part: every loss is reported.
#![cfg(all(feature = "http", feature = "grpc"))]

#[cfg(feature = "tls")]
mod tls;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use flightline_export::send::{Report, Request, Sender, Settings, Signal, Target};
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceResponse,
};
use prost::Message;

fn settings() -> Settings {
    let first_pause = Duration::from_millis(1);
    let long = Duration::from_secs(60);
    Settings { first_pause, timeout: long, patience: long, ..Settings::default() }
}

fn request(signal: Signal, bytes: usize) -> Request {
    Request { signal, body: vec![7; bytes], count: 10 }
}

/// A request that an HTTP receiver got: path, headers in lower case, decompressed body.
type Got = (String, String, Vec<u8>);

/// Reads one HTTP request and sends the response.
fn answer(stream: impl Read + Write, answer: &[u8]) -> Got {
    let mut reader = BufReader::new(stream);
    let (mut first, mut headers) = (String::new(), String::new());
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        headers.push_str(&line.to_ascii_lowercase());
    }
    let value = |name: &str| headers.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let mut body = vec![0; value("content-length:").unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    if value("content-encoding:") == Some("gzip") {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*body).read_to_end(&mut plain).unwrap();
        body = plain;
    }
    reader.get_mut().write_all(answer).unwrap();
    reader.get_mut().flush().unwrap();
    (first.split(' ').nth(1).unwrap().to_owned(), headers, body)
}

/// Starts a receiver that sends these responses in order.
fn receiver(answers: Vec<Vec<u8>>) -> (String, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = channel();
    thread::spawn(move || {
        // Each response closes its connection.
        for next in answers {
            let (stream, _) = listener.accept().unwrap();
            tell.send(answer(stream, &next)).unwrap();
        }
    });
    (url, told)
}

fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

const PROTOBUF: &str = "content-type: application/x-protobuf\r\n";

fn partial(rejected: i64, message: &str) -> Vec<u8> {
    let partial_success =
        ExportProfilesPartialSuccess { rejected_profiles: rejected, error_message: message.into() };
    ExportProfilesServiceResponse { partial_success: Some(partial_success) }.encode_to_vec()
}

#[test]
fn http_retries_temporary_errors_until_accepted() {
    let (url, told) = receiver(vec![
        response("503 Service Unavailable", "retry-after: 0\r\n", b"warming up"),
        response("429 Too Many Requests", "", b""),
        response("502 Bad Gateway", "", b""),
        response("200 OK", PROTOBUF, &partial(2, "two are\x1b[2J bad")),
        response("400 Bad Request", "", b"no such thing"),
        response("200 OK", PROTOBUF, b""),
    ]);
    let headers = vec![("Authorization".to_owned(), "Bearer x".to_owned())];
    let sender = Sender::new(&Target::parse(&url).unwrap(), Settings { headers, ..settings() }).unwrap();
    sender.put(request(Signal::Profiles, 1_000));
    sender.put(request(Signal::Profiles, 10));
    sender.put(request(Signal::Traces, 100));
    let (report, messages) = sender.finish(Duration::from_secs(60));
    let expected = Report { requests: 2, sent: 20, rejected: 2, retries: 3, failed: 10, dropped: 0 };
    assert_eq!(report, expected, "{messages:?}");
    assert!(messages[0].contains("2 were rejected: two are [2J bad"), "{messages:?}");
    assert!(messages[1].contains("returned 400: no such thing"), "{messages:?}");
    let got: Vec<Got> = told.iter().collect();
    let lengths: Vec<(&str, usize)> = got.iter().map(|(path, _, body)| (&**path, body.len())).collect();
    let profiles = "/v1development/profiles";
    assert_eq!(
        lengths,
        [
            (profiles, 1_000),
            (profiles, 1_000),
            (profiles, 1_000),
            (profiles, 1_000),
            (profiles, 10),
            ("/v1/traces", 100)
        ]
    );
    for (_, headers, body) in &got {
        assert!(headers.contains("authorization: bearer x") && headers.contains("application/x-protobuf"));
        assert!(body.iter().all(|&byte| byte == 7));
    }
}

#[test]
fn full_queue_drops_and_counts_requests() {
    // The receiver accepts no connection, so the first request is still being sent when the others are
    // queued.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let sender = Sender::new(&target, Settings { queue: 250, ..settings() }).unwrap();
    let taken: u64 = (0..10).map(|_| u64::from(sender.offer(request(Signal::Profiles, 100)))).sum();
    // Two requests fit; the thread may already have taken one from the queue.
    assert!((2..=3).contains(&taken), "{taken}");
    assert_eq!(sender.report().dropped, (10 - taken) * 10);
    let (report, messages) = sender.finish(Duration::from_millis(50));
    assert_eq!((report.sent, report.failed + report.dropped), (0, 100), "{report:?} {messages:?}");
}

/// Status, details and message.
type Answer = (&'static str, &'static str, Vec<u8>);

/// Reads a call and sends the response.
async fn answer_call(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    (status, details, message): Answer,
    tell: std::sync::mpsc::Sender<(String, Vec<u8>)>,
) {
    let (head, mut body) = request.into_parts();
    let mut bytes = Vec::new();
    while let Some(Ok(part)) = body.data().await {
        let _ = body.flow_control().release_capacity(part.len());
        bytes.extend_from_slice(&part);
    }
    tell.send((head.uri.path().to_owned(), bytes)).unwrap();
    let answer = http::Response::builder().header("content-type", "application/grpc");
    let mut stream = respond.send_response(answer.body(()).unwrap(), false).unwrap();
    if status == "0" {
        let mut framed = vec![0];
        framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend(message);
        stream.send_data(Bytes::from(framed), false).unwrap();
    }
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", status.parse().unwrap());
    if !details.is_empty() {
        trailers.insert("grpc-status-details-bin", details.parse().unwrap());
    }
    stream.send_trailers(trailers).unwrap();
}

#[test]
fn grpc_retries_and_honors_retry_info() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let target = Target::parse(&format!("grpc://{}", listener.local_addr().unwrap())).unwrap();
    // RESOURCE_EXHAUSTED with RetryInfo of 1 ms: Status{3: Any{1: url, 2: RetryInfo{1: Duration{2:
    // 1000000}}}}, in base64.
    let retry_info = "CAgaMgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIGCgQQwIQ9";
    let script: Vec<Answer> = vec![
        ("14", "", Vec::new()),
        ("8", retry_info, Vec::new()),
        ("0", "", partial(1, "one")),
        ("8", "", Vec::new()),
        ("12", "", Vec::new()),
    ];
    let (tell, told) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let script = std::sync::Arc::new(std::sync::Mutex::new(script.into_iter()));
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let mut connection = h2::server::handshake(stream).await.unwrap();
                // Waiting for the next call also drives this one's data.
                while let Some(Ok((request, respond))) = connection.accept().await {
                    let answer = script.lock().unwrap().next().expect("a call too many");
                    tokio::spawn(answer_call(request, respond, answer, tell.clone()));
                }
            }
        });
    });
    let sender = Sender::new(&target, Settings { gzip: false, ..settings() }).unwrap();
    sender.put(request(Signal::Profiles, 1_000));
    sender.put(request(Signal::Traces, 10));
    sender.put(request(Signal::Traces, 20));
    let (report, messages) = sender.finish(Duration::from_secs(60));
    let expected = Report { requests: 1, sent: 10, rejected: 1, retries: 2, failed: 20, dropped: 0 };
    assert_eq!(report, expected, "{messages:?}");
    assert!(
        messages[1].contains("ResourceExhausted") && messages[2].contains("service.profilesSupport"),
        "{messages:?}"
    );
    let got: Vec<(String, Vec<u8>)> = told.try_iter().collect();
    assert_eq!(got.len(), 5);
    assert!(got[2].0.ends_with("profiles.v1development.ProfilesService/Export"), "{}", got[2].0);
    assert!(got[4].0.ends_with("trace.v1.TraceService/Export"));
    // A gRPC frame: the flag for compression, the length, the message.
    assert_eq!(got[0].1, [&[0, 0, 0, 3, 232][..], &[7; 1_000]].concat());
}
