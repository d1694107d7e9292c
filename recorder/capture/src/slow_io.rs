//! Reads, writes and the like that took longer than a threshold: what they were about is asked only then.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::layout::{engines, event_kind};
use flightline_in_signal::payload::{Words, io};
use flightline_in_signal::publish::Event;
use flightline_in_signal::{clock, sync_event};

use crate::lock_waits::enabled_engine;
use crate::{os, session};

/// A path that was asked for before the call, as the descriptor does not live to its end.
pub type Path = os::Text<512>;

/// `true` if slow calls are recorded.
#[inline]
pub fn is_enabled() -> bool {
    enabled_engine(engines::IO).is_some()
}

/// Bytes of the longest socket address.
const PEER_BYTES: usize = 128;

/// A call under way.
pub struct Call {
    operation: u64,
    fd: c_int,
    start_ns: u64,
}

impl Call {
    /// Notes the time.
    #[inline]
    pub fn begin(operation: u64, fd: c_int) -> Call {
        Call { operation, fd, start_ns: clock::monotonic_ns() }
    }

    /// The call is over: `result` bytes, or -1 with `errno`, which stays as it is. `end`: nothing came although
    /// something was wanted.
    #[inline]
    pub fn end(self, result: i64, end: bool) {
        let took = clock::monotonic_ns().saturating_sub(self.start_ns);
        if slow(took) {
            self.record(took, result, end, None);
        }
    }

    /// The same for a connection that was asked for: `peer` is the address, which a socket that is not connected does
    /// not know.
    pub fn end_connect(self, result: i64, peer: &[u8]) {
        let took = clock::monotonic_ns().saturating_sub(self.start_ns);
        if slow(took) {
            self.record(took, result, false, Some(peer.get(..PEER_BYTES).unwrap_or(peer)));
        }
    }

    /// The same, with a result that takes time to tell.
    #[inline]
    pub fn end_with(self, tell: impl FnOnce() -> (i64, bool)) {
        let took = clock::monotonic_ns().saturating_sub(self.start_ns);
        if slow(took) {
            let (result, end) = tell();
            self.record(took, result, end, None);
        }
    }

    /// The same for a descriptor that is closed by now.
    pub fn end_closed(self, result: i64, path: &Path) {
        let took = clock::monotonic_ns().saturating_sub(self.start_ns);
        if slow(took) {
            self.record(took, result, false, Some(path.bytes()));
        }
    }

    #[cold]
    #[inline(never)]
    fn record(self, took: u64, result: i64, end: bool, text: Option<&[u8]>) {
        // In the child of a vfork and in restricted threads nothing may be done.
        if session::current().is_none() {
            return;
        }
        // SAFETY: the calling thread's own errno.
        let errno = unsafe { *libc::__errno_location() };
        let result = if result < 0 { -i64::from(errno) } else { result };
        let operation = self.operation | (self.fd as u32 as u64) << 32 | if end { io::END } else { 0 };
        let mut words = Words::new(&[self.start_ns, operation, result as u64]);
        let mut flags = 0;
        match text {
            Some(text) => {
                words.text(text);
            }
            // What was accepted is at the new descriptor.
            None if self.operation == io::ACCEPT && result >= 0 => {
                flags = describe(result as c_int, &mut words);
            }
            None => flags = describe(self.fd, &mut words),
        }
        words.set_bits(io::OPERATION, flags);
        let event = Event { kind: event_kind::IO, index: 0, value: took, extra: words.get() };
        // What finds no room is counted by the callee.
        let _ = sync_event::record(&event, true);
        // SAFETY: as above. The C library's stubs of raw calls do not run here, but nothing may depend on that.
        unsafe { *libc::__errno_location() = errno };
    }
}

#[inline]
fn slow(took: u64) -> bool {
    enabled_engine(engines::IO).is_some_and(|page| took >= page.io_ns.load(Relaxed))
}

/// Path of a descriptor of the calling process.
pub fn descriptor_path(fd: c_int) -> Path {
    let mut path = Path::new();
    let mut buffer = [0u8; 512];
    let len = read_descriptor_link(fd, &mut buffer);
    path.put(buffer.get(..len).unwrap_or_default());
    path
}

fn read_descriptor_link(fd: c_int, to: &mut [u8]) -> usize {
    let mut link = os::Text::<40>::new();
    if fd < 0 {
        return 0;
    }
    link.put(b"/proc/self/fd/").number(fd as u64);
    link.cstr().and_then(|link| os::readlink(link, to)).unwrap_or(0)
}

/// Appends what is behind a descriptor: the peer of a socket, else the path; returns flags.
fn describe(fd: c_int, words: &mut Words) -> u64 {
    let mut buffer = [0u8; 1024];
    let len = read_descriptor_link(fd, &mut buffer);
    let path = buffer.get(..len).unwrap_or_default();
    if path.starts_with(b"socket:") {
        let mut peer = [0u8; PEER_BYTES];
        let flags = io::PEER | if is_stream(fd) { io::STREAM } else { 0 };
        let known = peer_address(fd, &mut peer);
        words.text(peer.get(..known).unwrap_or_default());
        return flags;
    }
    if words.text(path) { 0 } else { io::CUT }
}

/// Address of a socket's peer; bytes of it, 0 if there is none.
fn peer_address(fd: c_int, to: &mut [u8; PEER_BYTES]) -> usize {
    let mut len = size_of_val(to) as u32;
    let args = [fd as usize, to.as_mut_ptr() as usize, (&raw mut len) as usize, 0, 0, 0];
    // SAFETY: the kernel writes at most `len` bytes and the length there is.
    match unsafe { os::syscall(libc::SYS_getpeername, args) } {
        Ok(_) => (len as usize).min(size_of_val(to)),
        Err(_) => 0,
    }
}

fn is_stream(fd: c_int) -> bool {
    let mut kind: c_int = 0;
    let mut len = size_of_val(&kind) as u32;
    let (to, size) = ((&raw mut kind) as usize, (&raw mut len) as usize);
    let args = [fd as usize, libc::SOL_SOCKET as usize, libc::SO_TYPE as usize, to, size, 0];
    // SAFETY: the kernel writes one int and its length.
    unsafe { os::syscall(libc::SYS_getsockopt, args) }.is_ok() && kind == libc::SOCK_STREAM
}

/// Bytes of an array of buffers; only to tell "nothing came" from "nothing was wanted".
///
/// # Safety
/// `count` valid entries lie at `buffers`.
pub unsafe fn any_room(buffers: *const libc::iovec, count: c_int) -> bool {
    (0..count.max(0) as usize).any(|i| {
        // SAFETY: by the contract.
        let buffer = unsafe { buffers.add(i).read() };
        buffer.iov_len > 0 && !buffer.iov_base.is_null()
    })
}
