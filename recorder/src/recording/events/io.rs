//! Slow reads and writes in the JDK's form. Pipes and terminals are files.

use std::net::{Ipv4Addr, Ipv6Addr};

use flightline_in_signal::payload::io;
use jfr_format::schema::{
    FILE_FORCE, FILE_READ, FILE_WRITE, SOCKET_ACCEPT, SOCKET_CONNECT, SOCKET_READ, SOCKET_WRITE,
};

use super::{Event, EventSite};
use crate::{names::intern::TraceIndex, recording::Recording};

/// The peer of a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its name, `unix` for a local one.
    pub host: String,
    /// Its address; for a local one, the path.
    pub address: String,
    /// The port, or 0.
    pub port: i32,
}

/// The target of a call.
#[derive(Debug)]
pub enum About<'a> {
    /// A file; also a pipe, a terminal or the like.
    Path(&'a str),
    /// A socket.
    Peer(&'a Peer),
}

/// A call that moved data, or waited for it.
#[derive(Debug)]
pub struct Call<'a> {
    /// CLOCK_MONOTONIC ns of its start.
    pub start_ns: u64,
    /// Its duration, ns.
    pub took_ns: u64,
    /// One of [`io`]'s operations with its flags.
    pub operation: u64,
    /// Bytes moved, or the negative errno.
    pub result: i64,
    /// Its target.
    pub about: About<'a>,
}

/// Parses a socket address in the kernel's format.
fn peer(bytes: &[u8]) -> Peer {
    const UNIX: u16 = 1;
    const INET: u16 = 2;
    const INET6: u16 = 10;
    let Some((family, rest)) = bytes.split_first_chunk::<2>() else { return Peer::default() };
    let port = rest.first_chunk::<2>().map_or(0, |port| i32::from(u16::from_be_bytes(*port)));
    let plain = |address: String| Peer { host: address.clone(), address, port };
    match u16::from_ne_bytes(*family) {
        INET => rest
            .get(2..6)
            .and_then(|a| <[u8; 4]>::try_from(a).ok())
            .map_or_else(Peer::default, |a| plain(Ipv4Addr::from(a).to_string())),
        INET6 => rest.get(6..22).and_then(|a| <[u8; 16]>::try_from(a).ok()).map_or_else(Peer::default, |a| {
            let address = Ipv6Addr::from(a);
            plain(address.to_ipv4_mapped().map_or_else(|| address.to_string(), |v4| v4.to_string()))
        }),
        UNIX => {
            // An abstract name starts with a zero byte, which is written as @.
            let (mark, name) = match rest.split_first() {
                Some((0, name)) if !name.is_empty() => ("@", name),
                _ => ("", rest.split(|b| *b == 0).next().unwrap_or(rest)),
            };
            let address = format!("{mark}{}", String::from_utf8_lossy(name));
            Peer { host: "unix".to_owned(), address, port: 0 }
        }
        _ => Peer::default(),
    }
}

/// Writes a call from a program's own record.
pub fn write(recording: &mut Recording, place: &EventSite, event: &Event<'_>) {
    let (start_ns, took_ns) = event.span(io::START, place.time_ns);
    let operation = event.word(io::OPERATION);
    let (text, _) = event.bytes(io::TEXT);
    let (address, mut path) = (peer(&text), String::new());
    let about = if operation & io::PEER != 0 || matches!(operation & io::MASK, io::CONNECT | io::ACCEPT) {
        About::Peer(&address)
    } else {
        path.push_str(&String::from_utf8_lossy(&text));
        if operation & io::CUT != 0 {
            path.push('…');
        }
        About::Path(&path)
    };
    let call = Call { start_ns, took_ns, operation, result: event.word(io::RESULT) as i64, about };
    write_call(recording, place.thread, place.trace, &call);
}

/// Writes a call.
pub fn write_call(recording: &mut Recording, thread: usize, trace: Option<TraceIndex>, call: &Call<'_>) {
    let (start, took) = recording.interval(call.start_ns, call.took_ns);
    let (operation, moved) = (call.operation, call.result.max(0));
    let end = operation & io::END != 0;
    let plain = operation & io::MASK;
    match &call.about {
        About::Peer(peer) => {
            let id = match plain {
                io::READ => SOCKET_READ,
                io::CONNECT => SOCKET_CONNECT,
                io::ACCEPT => SOCKET_ACCEPT,
                _ => SOCKET_WRITE,
            };
            let bytes = peer.host.len() + peer.address.len();
            recording.event_with_stack(id, thread, trace, bytes, |e, thread, stack| {
                e.ticks(start).ticks(took).key(thread).key(stack);
                e.string(&peer.host).string(&peer.address).int(peer.port);
                match id {
                    SOCKET_READ => e.long(0).long(moved).boolean(end && operation & io::STREAM != 0),
                    SOCKET_WRITE => e.long(moved),
                    _ => e.int(i32::try_from(-call.result.min(0)).unwrap_or(0)),
                };
            });
        }
        About::Path(path) => {
            let id = match plain {
                io::READ => FILE_READ,
                io::FORCE | io::FORCE_DATA => FILE_FORCE,
                _ => FILE_WRITE,
            };
            recording.event_with_stack(id, thread, trace, path.len(), |e, thread, stack| {
                e.ticks(start).ticks(took).key(thread).key(stack).string(path);
                match id {
                    FILE_READ => e.long(moved).boolean(end),
                    FILE_FORCE => e.boolean(plain == io::FORCE),
                    _ => e.long(moved),
                };
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer_from(family: u16, rest: &[u8]) -> Peer {
        let mut bytes = family.to_ne_bytes().to_vec();
        bytes.extend_from_slice(rest);
        peer(&bytes)
    }

    fn made(host: &str, address: &str, port: i32) -> Peer {
        Peer { host: host.to_owned(), address: address.to_owned(), port }
    }

    #[test]
    fn socket_addresses_are_parsed() {
        assert_eq!(peer_from(2, &[0x1f, 0x90, 127, 0, 0, 1, 0, 0]), made("127.0.0.1", "127.0.0.1", 8080));
        let mut six = vec![0, 80, 0, 0, 0, 0];
        six.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
        six.extend_from_slice(&[0; 4]);
        assert_eq!(peer_from(10, &six), made("::1", "::1", 80));
        assert_eq!(peer_from(1, b"/run/a.sock\0\0"), made("unix", "/run/a.sock", 0));
        assert_eq!(peer_from(1, b"\0hidden"), made("unix", "@hidden", 0));
        assert_eq!(peer_from(1, b""), made("unix", "", 0));
    }

    #[test]
    fn short_and_unknown_addresses_are_ignored() {
        for (family, rest) in [(2, &[0u8, 80, 127][..]), (10, &[0; 8]), (77, &[1; 30])] {
            assert_eq!(peer_from(family, rest), Peer::default());
        }
        assert_eq!(peer(&[2]), Peer::default());
    }
}
