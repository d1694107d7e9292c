//! Peers of other processes' sockets, as /proc/PID/net tells: the process is not touched. (A copy of its descriptor would tell more of
//! local sockets, and would keep a socket open that the program closes meanwhile.)

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use procfs::process::Process;

use crate::{os::clock::monotonic_ns, recording::events::io::Peer};

/// Sockets remembered at most.
const MOST: usize = 1 << 20;
/// So many times as long as reading the tables took they are not read again.
const PAUSE: u64 = 4;

/// A socket.
#[derive(Clone, Debug, Default)]
pub struct Socket {
    /// What is at its other end; of local ones the path where it was bound, if this is the end that was.
    pub peer: Arc<Peer>,
    /// Whether nothing read means the end.
    pub stream: bool,
}

/// Those that are known, by inode.
#[derive(Debug, Default)]
pub struct Sockets {
    known: HashMap<u64, Socket>,
    /// When tables were read last, and when they may be again, CLOCK_MONOTONIC ns.
    read_ns: u64,
    again_ns: u64,
}

impl Sockets {
    /// A socket of a process, of which a record of `time_ns` tells; `None` if nothing is known of it, at least for now. `anew`: it was
    /// connected then.
    pub fn find(&mut self, pid: u32, inode: u64, time_ns: u64, anew: bool) -> Option<Socket> {
        let known = self.known.get(&inode).filter(|_| !anew || self.read_ns >= time_ns);
        if let Some(socket) = known {
            return Some(socket.clone());
        }
        let begun_ns = monotonic_ns();
        // One reading does for all that is older.
        if self.read_ns < time_ns && self.again_ns <= begun_ns {
            self.read(pid);
            let now_ns = monotonic_ns();
            (self.read_ns, self.again_ns) = (begun_ns, now_ns + PAUSE * (now_ns - begun_ns));
        }
        self.known.get(&inode).cloned()
    }

    fn read(&mut self, pid: u32) {
        let Some(process) = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()) else { return };
        if self.known.len() > MOST {
            self.known.clear();
        }
        let mut add = |inode, peer, stream| self.known.insert(inode, Socket { peer: Arc::new(peer), stream });
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

/// Nothing, where nobody is at the other end.
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
    fn own_sockets_have_peers() {
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
        // Tables are not read for each one that is in none of them.
        let read_ns = sockets.read_ns;
        assert!(sockets.find(pid, u64::MAX, now, true).is_none() && sockets.read_ns == read_ns);
        // What was connected since is not what it was.
        sockets.again_ns = 0;
        sockets.find(pid, inode(&client), monotonic_ns(), true).unwrap();
        assert!(sockets.read_ns > read_ns);
    }
}
