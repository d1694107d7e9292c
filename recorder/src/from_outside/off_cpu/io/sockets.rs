//! Peers of other processes' sockets, from /proc/PID/net, which does not affect the process. (A copy of its
//! descriptor would give more details of local sockets, but would keep a socket open after the program closes
//! it.)

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use procfs::process::Process;

use crate::{os::clock::monotonic_ns, recording::events::io::Peer};

/// Limit of remembered sockets.
const MOST: usize = 1 << 20;
/// The tables are not read again until this many times the duration of the last reading has passed.
const PAUSE: u64 = 4;

/// A socket.
#[derive(Clone, Debug, Default)]
pub struct Socket {
    /// The peer. For a local socket: the path to which this end is bound, if it is.
    pub peer: Arc<Peer>,
    /// True if reading 0 bytes means the end of the stream.
    pub stream: bool,
}

/// The known sockets, by inode.
#[derive(Debug, Default)]
pub struct Sockets {
    sockets: HashMap<u64, Socket>,
    /// When the tables were last read, and when they may be read again, CLOCK_MONOTONIC ns.
    read_ns: u64,
    again_ns: u64,
}

impl Sockets {
    /// Returns a socket of a process for a record of `time_ns`; `None` if it is unknown, at least for now.
    /// `anew`: it was connected at that time.
    pub fn find(&mut self, pid: u32, inode: u64, time_ns: u64, anew: bool) -> Option<Socket> {
        let known = self.sockets.get(&inode).filter(|_| !anew || self.read_ns >= time_ns);
        if let Some(socket) = known {
            return Some(socket.clone());
        }
        let begun_ns = monotonic_ns();
        // One reading serves all earlier records.
        if self.read_ns < time_ns && self.again_ns <= begun_ns {
            self.read(pid);
            let now_ns = monotonic_ns();
            (self.read_ns, self.again_ns) = (begun_ns, now_ns + PAUSE * (now_ns - begun_ns));
        }
        self.sockets.get(&inode).cloned()
    }

    fn read(&mut self, pid: u32) {
        let Some(process) = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()) else { return };
        if self.sockets.len() > MOST {
            self.sockets.clear();
        }
        let mut add =
            |inode, peer, stream| self.sockets.insert(inode, Socket { peer: Arc::new(peer), stream });
        for table in [process.tcp(), process.tcp6()] {
            for entry in table.unwrap_or_default() {
                add(entry.inode, internet(entry.remote_address), true);
            }
        }
        for table in [process.udp(), process.udp6()] {
            for entry in table.unwrap_or_default() {
                add(entry.inode, internet(entry.remote_address), false);
            }
        }
        for entry in process.unix().unwrap_or_default() {
            let address = entry.path.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
            let peer = Peer { host: "unix".to_owned(), address, port: 0 };
            add(entry.inode, peer, i32::from(entry.socket_type) == libc::SOCK_STREAM);
        }
    }
}

/// Returns an empty peer if the socket is not connected.
fn internet(address: SocketAddr) -> Peer {
    if address.ip().is_unspecified() && address.port() == 0 {
        return Peer::default();
    }
    let address_only = address.ip().to_canonical().to_string();
    Peer { host: address_only.clone(), address: address_only, port: i32::from(address.port()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::{fd::AsRawFd, unix::net::UnixListener};

    fn inode(fd: &impl AsRawFd) -> u64 {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
        let text = link.to_string_lossy().into_owned();
        text.strip_prefix("socket:[").unwrap().strip_suffix(']').unwrap().parse().unwrap()
    }

    #[test]
    fn own_socket_peers_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let local = UnixListener::bind(folder.path().join("s")).unwrap();
        let (mut sockets, pid) = (Sockets::default(), std::process::id());
        let now = monotonic_ns();
        let found = sockets.find(pid, inode(&client), now, false).unwrap();
        let port = i32::from(listener.local_addr().unwrap().port());
        assert_eq!((found.peer.host.as_str(), found.peer.port, found.stream), ("127.0.0.1", port, true));
        assert_eq!(*sockets.find(pid, inode(&listener), now, true).unwrap().peer, Peer::default());
        let found = sockets.find(pid, inode(&local), now, false).unwrap();
        assert_eq!(found.peer.host, "unix");
        assert!(found.peer.address.ends_with("/s"), "{found:?}");
        // A socket that is in no table does not cause another reading each time.
        let read_ns = sockets.read_ns;
        assert!(sockets.find(pid, u64::MAX, now, true).is_none() && sockets.read_ns == read_ns);
        // A socket that has been connected since must be read again.
        sockets.again_ns = 0;
        sockets.find(pid, inode(&client), monotonic_ns(), true).unwrap();
        assert!(sockets.read_ns > read_ns);
    }
}
