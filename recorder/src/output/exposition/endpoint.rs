//! Answers HTTP requests for the metrics, one at a time, in a thread of its own. The drain never waits for
//! it.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Time limit for a client, and limit of a request's size.
const CLIENT_TIME: Duration = Duration::from_secs(2);
const REQUEST_BYTES: usize = 8 << 10;

/// The HTTP endpoint.
pub struct Endpoint {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    text: Mutex<String>,
    over: AtomicBool,
}

impl Endpoint {
    /// Listens at `address`.
    ///
    /// # Errors
    /// The address is not available.
    pub fn open(address: SocketAddr) -> io::Result<Endpoint> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let thread = thread::Builder::new().name("fl-metrics".into()).spawn(move || {
            for client in listener.incoming() {
                if of_thread.over.load(Ordering::Acquire) {
                    return;
                }
                match client {
                    // All errors concern only this client.
                    Ok(client) => drop(answer(client, &of_thread)),
                    // Out of descriptors: avoid a busy loop.
                    Err(_) => thread::sleep(Duration::from_millis(100)),
                }
            }
        })?;
        Ok(Endpoint { address, shared, thread: Some(thread) })
    }

    /// Sets the text to serve from now on.
    pub fn give(&self, text: &str) {
        if let Ok(mut shared) = self.shared.text.lock() {
            text.clone_into(&mut shared);
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        // Wake the thread. If that fails, it ends with the process.
        let mut to = self.address;
        if to.ip().is_unspecified() {
            to.set_ip(if to.is_ipv4() { [127, 0, 0, 1].into() } else { [0, 0, 0, 0, 0, 0, 0, 1].into() });
        }
        if TcpStream::connect_timeout(&to, CLIENT_TIME).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn answer(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let deadline = Instant::now() + CLIENT_TIME;
    client.set_write_timeout(Some(CLIENT_TIME))?;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > REQUEST_BYTES {
            return Ok(());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut part)? {
            0 => return Ok(()),
            n => request.extend_from_slice(&part[..n]),
        }
    }
    let line = request.split(|b| *b == b'\r').next().unwrap_or_default();
    let mut words = line.split(|b| *b == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|b| *b == b'?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics" | b"/") => {
            ("200 OK", shared.text.lock().map(|text| text.clone()).unwrap_or_default())
        }
        (b"GET" | b"HEAD", _) => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    if method != b"HEAD" {
        client.write_all(body.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn endpoint_answers_requests_and_shuts_down() {
        let endpoint = Endpoint::open(([127, 0, 0, 1], 0).into()).unwrap();
        endpoint.give("a 1\n");
        let address = endpoint.address;
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\na 1\n"), "{answer}");
        assert!(answer.contains("Content-Length: 4\r\n"), "{answer}");
        assert!(ask(address, "HEAD / HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(ask(address, "GET /x HTTP/1.1\r\n\r\n").contains(" 404 "));
        assert!(ask(address, "POST /metrics HTTP/1.1\r\n\r\n").contains(" 405 "));
        // A client that sends nothing and disconnects delays no other client.
        drop(TcpStream::connect(address).unwrap());
        endpoint.give("b 2\n");
        assert!(ask(address, "GET /metrics?x=y HTTP/1.1\r\n\r\n").ends_with("b 2\n"));
        let shared = endpoint.shared.clone();
        drop(endpoint);
        assert_eq!(Arc::strong_count(&shared), 1, "its thread has ended");
    }
}
