//! A minimal HTTP/1.1 client with one persistent connection, so that it uses little CPU time.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// A connection.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
    /// The secret sent with each request.
    pub secret: String,
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the body as JSON; null if it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Client {
    /// Creates a client; the first request connects.
    pub fn new(address: SocketAddr, secret: &str) -> Self {
        Self { address, stream: None, secret: secret.to_owned() }
    }

    /// Sends a request and returns the response.
    pub async fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nX-Flightline-Agent: {}\r\nContent-Length: {}\r\n\r\n",
            self.address,
            self.secret,
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        let answer = read(&mut stream).await?;
        self.stream = Some(stream);
        Ok(answer)
    }

    /// Sends a request with a JSON body.
    pub async fn tell(&mut self, method: &str, path: &str, body: &serde_json::Value) -> Result<Answer> {
        self.ask(method, path, body.to_string().as_bytes()).await
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Result<Answer> {
    let mut line = String::new();
    let (mut status, mut length) = (0, None);
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let text = line.trim_end();
        if text.is_empty() {
            break;
        }
        if status == 0 {
            status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        } else if let Some((name, value)) = text.split_once(": ")
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.parse().ok();
        }
    }
    let length = match (status, length) {
        (204, _) => 0,
        (_, Some(length)) => length,
        _ => return Err(Error::other("an answer without a length")),
    };
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Answer { status, body })
}
