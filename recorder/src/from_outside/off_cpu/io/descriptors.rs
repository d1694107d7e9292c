//! The files and sockets behind the descriptors of recorded processes. A record contains only the number; the
//! drain looks it up in /proc later, and uses the result only if no record shows that the number was closed
//! in between.

use std::{
    collections::{HashMap, HashSet},
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::sockets::{Socket, Sockets};
use crate::os::clock::monotonic_ns;

/// Limit of remembered descriptors.
const MOST: usize = 1 << 16;
/// If records are missing, a descriptor must have the same link before and after a call, this far apart (ns).
/// A number that a program reuses for other files would show another link, or one of its `close` calls would
/// be seen.
const STABLE_NS: u64 = 1_000_000_000;

/// The file or socket behind a descriptor.
#[derive(Clone, Debug)]
pub enum Target {
    /// A file, by its path; for a pipe, a device and the like, the kernel's name.
    File(Arc<str>),
    /// A socket; without a peer if that is unknown.
    Socket(Socket),
}

/// The target of a descriptor when /proc was read.
#[derive(Debug)]
pub struct Descriptor {
    /// PID and number.
    of: (u32, i32),
    /// The link in /proc; empty if there was none.
    link: Box<str>,
    /// The target; `None` if the descriptor was already closed.
    target: Option<Target>,
    /// When the link was read, CLOCK_MONOTONIC ns.
    queried_ns: u64,
    /// When this link was first read, with no `close` recorded since, CLOCK_MONOTONIC ns.
    since_ns: u64,
    /// When this link was last read, CLOCK_MONOTONIC ns.
    until_ns: AtomicU64,
    /// The descriptor was closed before the link was read.
    wrong: AtomicBool,
    /// Records are missing that could have shown a close.
    doubtful: AtomicBool,
}

impl Descriptor {
    /// Returns true if the records up to `seen_ns` are enough to decide whether the target is right.
    pub fn settled(&self, seen_ns: u64) -> bool {
        self.target.is_none() || self.wrong.load(Ordering::Relaxed) || self.queried_ns < seen_ns
    }

    /// Returns the target at `time_ns`, if that is certain.
    pub fn target(&self, time_ns: u64) -> Option<&Target> {
        let target = self.target.as_ref()?;
        let known = !self.wrong.load(Ordering::Relaxed)
            && (!self.doubtful.load(Ordering::Relaxed) || self.is_stable(time_ns, monotonic_ns()));
        known.then_some(target)
    }

    /// Returns true if the link was the same before and after `time_ns`, [`STABLE_NS`] apart. Reads the link
    /// again if necessary.
    fn is_stable(&self, time_ns: u64, now_ns: u64) -> bool {
        let enough_ns = time_ns.max(self.since_ns.saturating_add(STABLE_NS));
        if time_ns < self.since_ns || now_ns < enough_ns {
            return false;
        }
        if self.until_ns.load(Ordering::Relaxed) >= enough_ns {
            return true;
        }
        let same = read_link(self.of).is_some_and(|link| *link == *self.link);
        match same {
            true => self.until_ns.store(now_ns, Ordering::Relaxed),
            false => self.wrong.store(true, Ordering::Relaxed),
        }
        same
    }

    /// Notes that the process closed the number at this time.
    fn gone(&self, time_ns: u64) {
        if time_ns <= self.queried_ns {
            self.wrong.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that records from this time on may be missing.
    fn doubt(&self, time_ns: u64) {
        if time_ns <= self.queried_ns {
            self.doubtful.store(true, Ordering::Relaxed);
        }
    }
}

fn read_link((pid, fd): (u32, i32)) -> Option<Box<str>> {
    let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    Some(link.to_string_lossy().into())
}

/// All known descriptors.
#[derive(Debug, Default)]
pub struct Descriptors {
    descriptors: HashMap<(u32, i32), Arc<Descriptor>>,
    /// Results that will be looked up again next time, but may still turn out wrong for their users.
    passing: Vec<((u32, i32), Arc<Descriptor>)>,
    /// Links before records were missing, and since when they have been the same.
    former: HashMap<(u32, i32), (Box<str>, u64)>,
    /// Connections that were accepted. They are sockets, even if the peer is unknown.
    accepted: HashSet<(u32, i32)>,
    sockets: Sockets,
}

impl Descriptors {
    /// Notes that a process accepted a connection.
    pub fn accept(&mut self, pid: u32, fd: i32) {
        if self.accepted.len() >= MOST {
            self.accepted.clear();
        }
        self.accepted.insert((pid, fd));
    }

    /// Returns true if a descriptor is a connection that was accepted.
    pub fn is_accepted(&self, pid: u32, fd: i32) -> bool {
        self.accepted.contains(&(pid, fd))
    }

    /// Returns the target of a descriptor for a record of `time_ns`.
    pub fn find(&mut self, pid: u32, fd: i32, time_ns: u64) -> Arc<Descriptor> {
        if let Some(known) = self.descriptors.get(&(pid, fd)) {
            return known.clone();
        }
        self.ask(pid, fd, time_ns, false)
    }

    /// Looks up a descriptor again, because it may have been connected since.
    pub fn connected(&mut self, pid: u32, fd: i32, time_ns: u64) -> Arc<Descriptor> {
        self.ask(pid, fd, time_ns, true)
    }

    fn ask(&mut self, pid: u32, fd: i32, time_ns: u64, anew: bool) -> Arc<Descriptor> {
        let link = read_link((pid, fd));
        let target = link.as_deref().map(|link| self.find_target(link, pid, time_ns, anew));
        self.remember((pid, fd), link.unwrap_or_default(), target)
    }

    fn remember(&mut self, of: (u32, i32), link: Box<str>, target: Option<Target>) -> Arc<Descriptor> {
        // The socket tables may have the peer next time.
        let passing = matches!(&target, Some(Target::Socket(socket)) if socket.peer.host.is_empty());
        let queried_ns = monotonic_ns();
        let former = self.former.remove(&of).filter(|(former, _)| *former == link);
        let found = Arc::new(Descriptor {
            of,
            link,
            target,
            queried_ns,
            since_ns: former.map_or(queried_ns, |(_, since_ns)| since_ns),
            until_ns: AtomicU64::new(queried_ns),
            wrong: AtomicBool::new(false),
            doubtful: AtomicBool::new(false),
        });
        if found.target.is_none() {
            return found;
        }
        if self.descriptors.len() >= MOST || self.passing.len() >= MOST {
            self.closed_all(None, (0, i32::MAX), 0);
        }
        self.passing.retain(|(_, passing)| Arc::strong_count(passing) > 1);
        let before = match passing {
            true => {
                self.passing.push((of, found.clone()));
                self.descriptors.remove(&of)
            }
            false => self.descriptors.insert(of, found.clone()),
        };
        self.passing.extend(before.map(|before| (of, before)));
        found
    }

    fn find_target(&mut self, link: &str, pid: u32, time_ns: u64, anew: bool) -> Target {
        let socket = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        match socket {
            Some(inode) => {
                let inode = inode.parse().unwrap_or(0);
                Target::Socket(self.sockets.find(pid, inode, time_ns, anew).unwrap_or_default())
            }
            None => Target::File(link.into()),
        }
    }

    /// Notes that a process closed a number.
    pub fn closed(&mut self, pid: u32, fd: i32, time_ns: u64) {
        self.accepted.remove(&(pid, fd));
        self.former.remove(&(pid, fd));
        if let Some(known) = self.descriptors.remove(&(pid, fd)) {
            known.gone(time_ns);
        }
        self.passing.extract_if(.., |(of, _)| *of == (pid, fd)).for_each(|(_, known)| known.gone(time_ns));
    }

    /// Notes that a process may have closed any of these numbers; all processes without `pid`.
    pub fn closed_all(&mut self, pid: Option<u32>, (first, last): (i32, i32), time_ns: u64) {
        let ends = |(of, fd): (u32, i32)| pid.is_none_or(|pid| pid == of) && (first..=last).contains(&fd);
        self.accepted.retain(|of| !ends(*of));
        self.former.retain(|of, _| !ends(*of));
        self.descriptors.extract_if(|of, _| ends(*of)).for_each(|(_, known)| known.gone(time_ns));
        self.passing.extract_if(.., |(of, _)| ends(*of)).for_each(|(_, known)| known.gone(time_ns));
    }

    /// Notes that records from `time_ns` on may be missing, so any process may have closed any number.
    pub fn missed(&mut self, time_ns: u64) {
        self.accepted.clear();
        if self.former.len().saturating_add(self.descriptors.len()) > MOST {
            self.former.clear();
        }
        for (_, known) in &self.passing {
            known.doubt(time_ns);
        }
        for (of, known) in self.descriptors.drain() {
            known.doubt(time_ns);
            self.former.insert(of, (known.link.clone(), known.since_ns));
            // A `close` that is read later may still show that it was wrong.
            if Arc::strong_count(&known) > 1 {
                self.passing.push((of, known));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn path(found: &Descriptor) -> Option<String> {
        match found.target(found.queried_ns)? {
            Target::File(path) => Some(path.to_string()),
            Target::Socket(_) => None,
        }
    }

    #[test]
    fn number_closed_before_it_was_read_is_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let (pid, all) = (std::process::id(), (0, i32::MAX));
        let file = fs::File::create(folder.path().join("a")).unwrap();
        let fd = file.as_raw_fd();
        let mut known = Descriptors::default();
        let first = known.find(pid, fd, 0);
        assert!(path(&first).unwrap().ends_with("/a"));
        let queried_ns = first.queried_ns;
        assert!(!first.settled(queried_ns) && first.settled(queried_ns + 1));
        // A later close: the result was right, and is looked up again.
        known.closed(pid, fd, queried_ns + 5);
        assert!(path(&first).is_some());
        let second = known.find(pid, fd, 0);
        assert!(!Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&second, &known.find(pid, fd, 0)));
        // An earlier close: the number may have meant another file.
        known.closed(pid, fd, second.queried_ns);
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
        // A result that is looked up again each time can be wrong too.
        let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let nameless = |known: &mut Descriptors| {
            known.remember((1, 7), "socket:[5]".into(), Some(Target::Socket(Socket::default())))
        };
        let (one, two) = (nameless(&mut known), nameless(&mut known));
        known.closed(1, 7, one.queried_ns);
        assert!(one.target(0).is_none() && two.target(0).is_none());
        let found = known.find(pid, socket.as_raw_fd(), 0);
        assert!(matches!(found.target(0), Some(Target::Socket(_))));
        known.accept(1, 7);
        assert!(known.is_accepted(1, 7) && !known.is_accepted(1, 8));
        known.closed(1, 7, 0);
        assert!(!known.is_accepted(1, 7));
        drop(file);
        let closed = known.find(pid, 1_000_000, 0);
        assert!(
            path(&closed).is_none()
                && closed.settled(0)
                && !known.descriptors.contains_key(&(pid, 1_000_000))
        );
    }

    #[test]
    fn stable_link_is_known_despite_missing_records() {
        let folder = tempfile::tempdir().unwrap();
        let file = fs::File::create(folder.path().join("a")).unwrap();
        let (pid, fd) = (std::process::id(), file.as_raw_fd());
        let mut known = Descriptors::default();
        let first = known.find(pid, fd, 0);
        let begun_ns = first.queried_ns;
        known.missed(0);
        assert_eq!(path(&first), None, "the link is known for less than a second");
        let second = known.find(pid, fd, 0);
        assert!(second.since_ns == begun_ns && second.queried_ns > begun_ns);
        known.missed(0);
        // (time of the call, time of writing it) → known
        let later_ns = begun_ns + 2 * STABLE_NS;
        for (time_ns, now_ns, expected) in [
            (begun_ns + 1, begun_ns + STABLE_NS - 1, false),
            (begun_ns - 1, later_ns, false),
            (later_ns + 1, later_ns, false),
            (begun_ns + 1, later_ns, true),
            (later_ns, later_ns, true),
        ] {
            assert_eq!(second.is_stable(time_ns, now_ns), expected, "{time_ns} {now_ns}");
        }
        // A close that is read later, with a time before the link was read.
        known.closed(pid, fd, second.queried_ns);
        assert_eq!(path(&second), None);
        let third = known.find(pid, fd, 0);
        assert!(third.since_ns > second.since_ns, "the link begins again after a close");
        // Another file has the number when the link is read again.
        known.missed(0);
        let fourth = known.find(pid, fd, 0);
        known.missed(0);
        let other = fs::File::create(folder.path().join("b")).unwrap();
        let mut reused = std::os::fd::OwnedFd::from(file);
        nix::unistd::dup2(&other, &mut reused).unwrap();
        assert!(!fourth.is_stable(third.since_ns, later_ns + STABLE_NS));
        // After the end of a recording, its records do not confirm links that were read before the end.
        let fifth = known.find(pid, fd, 0);
        known.missed(fifth.queried_ns + 1);
        assert!(path(&fifth).is_some_and(|path| path.ends_with("/b")));
    }
}
