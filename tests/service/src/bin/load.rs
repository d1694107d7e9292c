//! Sends requests to a service: `load ADDRESS SECONDS CLIENTS`. Each client keeps its connection and requests one path after the other, as a browser
//! would. It says how many answers there were; an answer that is not 200 is an error.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Of ten requests: which.
const PATHS: [&str; 10] = [
    "/cart",
    "/orders/C",
    "/quote",
    "/report",
    "/orders/C",
    "/cart",
    "/quote",
    "/orders/C",
    "/cart",
    "/orders/C",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, seconds, clients] = &args[..] else {
        return Err("usage: load ADDRESS SECONDS CLIENTS".into());
    };
    let (seconds, clients) = (Duration::from_secs(seconds.parse()?), clients.parse::<usize>()?);
    let end = Instant::now() + seconds;
    let answers = std::thread::scope(|scope| {
        let all: Vec<_> = (0..clients).map(|client| scope.spawn(move || ask(address, client, end))).collect();
        all.into_iter().map(|one| one.join().map_err(|_| "a client panicked")?).sum::<Result<u64, String>>()
    })?;
    println!("{answers} answers in {} s to {clients} clients", seconds.as_secs());
    Ok(())
}

fn ask(address: &str, client: usize, end: Instant) -> Result<u64, String> {
    let cannot = |error: std::io::Error| format!("client {client}: {error}");
    let stream = TcpStream::connect(address).map_err(cannot)?;
    stream.set_nodelay(true).map_err(cannot)?;
    let mut reader = BufReader::new(stream);
    let mut asked = client as u64;
    let mut answers = 0;
    while Instant::now() < end {
        let path = PATHS[asked as usize % PATHS.len()].replace('C', &(asked * 37 % 1000).to_string());
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        reader.get_mut().write_all(request.as_bytes()).map_err(cannot)?;
        let mut line = String::new();
        reader.read_line(&mut line).map_err(cannot)?;
        if !line.starts_with("HTTP/1.1 200") {
            return Err(format!("client {client}: {path}: {line:?}"));
        }
        let mut length = 0;
        loop {
            line.clear();
            reader.read_line(&mut line).map_err(cannot)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(|_| format!("client {client}: {line:?}"))?;
            }
        }
        reader.read_exact(&mut vec![0; length]).map_err(cannot)?;
        asked += 1;
        answers += 1;
        // People think between two clicks.
        std::thread::sleep(Duration::from_millis(asked % 7));
    }
    Ok(answers)
}
