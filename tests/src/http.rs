//! HTTP/1.1 by hand, so that a test can send invalid requests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// A response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Headers by their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The one sentence of an error.
    #[track_caller]
    pub fn sentence(&self) -> String {
        self.json()["errors"][0].as_str().expect("an error has a sentence").to_owned()
    }
}

/// Sends a request and reads the response. `headers` are complete lines.
///
/// # Panics
///
/// If there is no response.
#[track_caller]
pub fn send(port: u16, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the service answers");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|line| line.to_lowercase().starts_with("host:")) {
        head += &format!("Host: 127.0.0.1:{port}\r\n");
    }
    headers.iter().for_each(|line| head += &format!("{line}\r\n"));
    stream.write_all((head + "\r\n").as_bytes()).unwrap();
    // A server that rejects the request early may close the connection while the body is sent.
    let _ = stream.write_all(body);
    read(&mut BufReader::new(stream))
}

/// Reads a response.
///
/// # Panics
///
/// If it is malformed.
#[track_caller]
pub fn read(stream: &mut impl BufRead) -> Answer {
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.unwrap_or_else(|| panic!("{line:?} begins no answer"));
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("headers");
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse::<u64>().ok());
    let mut body = Vec::new();
    stream.take(length.unwrap_or(u64::MAX)).read_to_end(&mut body).expect("a body");
    if let Some(length) = length {
        assert_eq!(body.len() as u64, length, "the body broke off");
    }
    Answer { status, headers, body }
}
