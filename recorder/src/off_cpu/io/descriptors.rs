//! What the descriptors of recorded processes stand for. A record tells a number; what it means is asked of /proc some time later,
//! and believed only if nothing was seen to let go of that number in between.

use std::{
    collections::{HashMap, HashSet},
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::sockets::{Socket, Sockets};
use crate::clock::monotonic_ns;

/// Descriptors remembered at most.
const MOST: usize = 1 << 16;

/// What a descriptor stands for.
#[derive(Clone, Debug)]
pub enum Target {
    /// A file, by its path; a pipe, a device or the like by what the kernel calls it.
    File(Arc<str>),
    /// A socket; without a peer if none is known.
    Socket(Socket),
}

/// What a descriptor stood for when it was asked.
#[derive(Debug)]
pub struct Descriptor {
    /// The answer; `None`: it was closed already.
    target: Option<Target>,
    /// When it was given, CLOCK_MONOTONIC ns.
    asked_ns: u64,
    /// It was let go before it was asked what it is.
    wrong: AtomicBool,
}

impl Descriptor {
    /// Whether records up to `seen_ns` tell if the answer is right.
    pub fn settled(&self, seen_ns: u64) -> bool {
        self.target.is_none() || self.wrong.load(Ordering::Relaxed) || self.asked_ns < seen_ns
    }

    /// What it stands for, if that is known.
    pub fn target(&self) -> Option<&Target> {
        self.target.as_ref().filter(|_| !self.wrong.load(Ordering::Relaxed))
    }

    /// At this time the number stopped to stand for what it was.
    fn gone(&self, time_ns: u64) {
        if time_ns <= self.asked_ns {
            self.wrong.store(true, Ordering::Relaxed);
        }
    }
}

/// All that are known.
#[derive(Debug, Default)]
pub struct Descriptors {
    known: HashMap<(u32, i32), Arc<Descriptor>>,
    /// Answers that are asked for again next time, but may yet turn out wrong for who has them.
    passing: Vec<((u32, i32), Arc<Descriptor>)>,
    /// Connections that were accepted: sockets, whoever is at the other end.
    accepted: HashSet<(u32, i32)>,
    sockets: Sockets,
}

impl Descriptors {
    /// A process accepted a connection.
    pub fn accept(&mut self, pid: u32, fd: i32) {
        if self.accepted.len() >= MOST {
            self.accepted.clear();
        }
        self.accepted.insert((pid, fd));
    }

    /// Whether a descriptor is a connection that was accepted.
    pub fn is_accepted(&self, pid: u32, fd: i32) -> bool {
        self.accepted.contains(&(pid, fd))
    }

    /// What a descriptor of a process stands for, of which a record of `time_ns` tells.
    pub fn find(&mut self, pid: u32, fd: i32, time_ns: u64) -> Arc<Descriptor> {
        if let Some(known) = self.known.get(&(pid, fd)) {
            return known.clone();
        }
        let target = self.ask(pid, fd, time_ns, false);
        self.remember(pid, fd, target)
    }

    /// The same of one that may have been connected since.
    pub fn connected(&mut self, pid: u32, fd: i32, time_ns: u64) -> Arc<Descriptor> {
        let target = self.ask(pid, fd, time_ns, true);
        self.remember(pid, fd, target)
    }

    fn remember(&mut self, pid: u32, fd: i32, target: Option<Target>) -> Arc<Descriptor> {
        // A table may tell next time.
        let passing = matches!(&target, Some(Target::Socket(socket)) if socket.peer.host.is_empty());
        let found = Arc::new(Descriptor { target, asked_ns: monotonic_ns(), wrong: AtomicBool::new(false) });
        if found.target.is_none() {
            return found;
        }
        if self.known.len() >= MOST || self.passing.len() >= MOST {
            self.closed_all(None, (0, i32::MAX), 0);
        }
        self.passing.retain(|(_, passing)| Arc::strong_count(passing) > 1);
        let before = match passing {
            true => {
                self.passing.push(((pid, fd), found.clone()));
                self.known.remove(&(pid, fd))
            }
            false => self.known.insert((pid, fd), found.clone()),
        };
        self.passing.extend(before.map(|before| ((pid, fd), before)));
        found
    }

    fn ask(&mut self, pid: u32, fd: i32, time_ns: u64, anew: bool) -> Option<Target> {
        let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
        let text = link.to_string_lossy();
        let socket = text.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        Some(match socket {
            Some(inode) => {
                let inode = inode.parse().unwrap_or(0);
                Target::Socket(self.sockets.find(pid, inode, time_ns, anew).unwrap_or_default())
            }
            None => Target::File(text.as_ref().into()),
        })
    }

    /// A process let go of a number.
    pub fn closed(&mut self, pid: u32, fd: i32, time_ns: u64) {
        self.accepted.remove(&(pid, fd));
        if let Some(known) = self.known.remove(&(pid, fd)) {
            known.gone(time_ns);
        }
        self.passing.extract_if(.., |(of, _)| *of == (pid, fd)).for_each(|(_, known)| known.gone(time_ns));
    }

    /// A process may have let go of any of these, of all processes if there is no `pid`.
    pub fn closed_all(&mut self, pid: Option<u32>, (first, last): (i32, i32), time_ns: u64) {
        let ends = |(of, fd): (u32, i32)| pid.is_none_or(|pid| pid == of) && (first..=last).contains(&fd);
        self.accepted.retain(|of| !ends(*of));
        self.known.extract_if(|of, _| ends(*of)).for_each(|(_, known)| known.gone(time_ns));
        self.passing.extract_if(.., |(of, _)| ends(*of)).for_each(|(_, known)| known.gone(time_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn path(found: &Descriptor) -> Option<String> {
        match found.target()? {
            Target::File(path) => Some(path.to_string()),
            Target::Socket(_) => None,
        }
    }

    #[test]
    fn a_number_is_believed_unless_it_was_let_go_before_it_was_asked() {
        let folder = tempfile::tempdir().unwrap();
        let (pid, all) = (std::process::id(), (0, i32::MAX));
        let file = fs::File::create(folder.path().join("a")).unwrap();
        let fd = file.as_raw_fd();
        let mut known = Descriptors::default();
        let first = known.find(pid, fd, 0);
        assert!(path(&first).unwrap().ends_with("/a"));
        let asked_ns = first.asked_ns;
        assert!(!first.settled(asked_ns) && first.settled(asked_ns + 1));
        // Later: the answer was right, and is asked anew.
        known.closed(pid, fd, asked_ns + 5);
        assert!(path(&first).is_some());
        let second = known.find(pid, fd, 0);
        assert!(!Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&second, &known.find(pid, fd, 0)));
        // Before: it may have been another file.
        known.closed(pid, fd, second.asked_ns);
        assert_eq!(path(&second), None);
        assert!(second.settled(0));
        for pid in [Some(pid), None] {
            let third = known.find(std::process::id(), fd, 0);
            known.closed_all(pid, (fd + 1, i32::MAX), 0);
            known.closed_all(Some(1), all, 0);
            assert!(path(&third).is_some());
            known.closed_all(pid, all, 0);
            assert_eq!(path(&third), None);
        }
        // What is asked anew each time can be wrong too.
        let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let nameless =
            |known: &mut Descriptors| known.remember(1, 7, Some(Target::Socket(Socket::default())));
        let (one, two) = (nameless(&mut known), nameless(&mut known));
        known.closed(1, 7, one.asked_ns);
        assert!(one.target().is_none() && two.target().is_none());
        let found = known.find(pid, socket.as_raw_fd(), 0);
        assert!(matches!(found.target(), Some(Target::Socket(_))));
        known.accept(1, 7);
        assert!(known.is_accepted(1, 7) && !known.is_accepted(1, 8));
        known.closed(1, 7, 0);
        assert!(!known.is_accepted(1, 7));
        drop(file);
        let closed = known.find(pid, 1_000_000, 0);
        assert!(path(&closed).is_none() && closed.settled(0) && !known.known.contains_key(&(pid, 1_000_000)));
    }
}
