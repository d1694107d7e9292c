//! Records reads, writes and similar calls that took longer than a threshold. Path or peer are determined
//! only then.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::layout::{engines, event_kind};
use flightline_in_signal::os::clock;
use flightline_in_signal::payload::{Words, io};
use flightline_in_signal::publish::{Event, sync_event};

use crate::engines::lock_waits::enabled_engine;
use crate::{os, session};

/// A path that was read before the call, because the call closes the descriptor.
pub type Path = os::Text<512>;

/// Returns true if slow calls are recorded.
#[inline]
pub fn is_enabled() -> bool {
    enabled_engine(engines::IO).is_some()
}

/// Maximum size of a socket address, bytes.
const PEER_BYTES: usize = 128;

/// A running call.
pub struct Call {
    operation: u64,
    fd: c_int,
    start_ns: u64,
}

impl Call {
    /// Stores the start time.
    #[inline]
    pub fn begin(operation: u64, fd: c_int) -> Call {
        Call { operation, fd, start_ns: clock::monotonic_ns() }
    }

    /// Ends a call with `result` bytes, or -1 with `errno`, which is preserved. `end`: the call returned no
    /// data although some was requested.
    #[inline]
    pub fn end(self, result: i64, end: bool) {
        let took = clock::monotonic_ns().saturating_sub(self.start_ns);
        if slow(took) {
            self.record(took, result, end, None);
        }
    }

    /// Ends a `connect`: `peer` is the address, which a socket that is not connected does not know.
    pub fn end_connect(self, result: i64, peer: &[u8]) {
        let took = clock::monotonic_ns().saturating_sub(self.start_ns);
        if slow(took) {
            self.record(took, result, false, Some(peer.get(..PEER_BYTES).unwrap_or(peer)));
        }
    }

    /// Ends a call whose result takes time to compute: the closure runs only if the call was slow.
    #[inline]
    pub fn end_with(self, tell: impl FnOnce() -> (i64, bool)) {
        let took = clock::monotonic_ns().saturating_sub(self.start_ns);
        if slow(took) {
            let (result, end) = tell();
            self.record(took, result, end, None);
        }
    }

    /// Ends a call that closed its descriptor.
    pub fn end_closed(self, result: i64, path: &Path) {
        let took = clock::monotonic_ns().saturating_sub(self.start_ns);
        if slow(took) {
            self.record(took, result, false, Some(path.bytes()));
        }
    }

    #[cold]
    #[inline(never)]
    fn record(self, took: u64, result: i64, end: bool, text: Option<&[u8]>) {
        // The child of a vfork and restricted threads must not record.
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
            // The new descriptor has the accepted connection.
            None if self.operation == io::ACCEPT && result >= 0 => {
                flags = describe(result as c_int, &mut words);
            }
            None => flags = describe(self.fd, &mut words),
        }
        words.set_bits(io::OPERATION, flags);
        let event = Event { kind: event_kind::IO, index: 0, value: took, extra: words.get() };
        // `record` counts an event that finds no room.
        let _ = sync_event::record(&event, true);
        // SAFETY: the calling thread's own errno. It is restored because the calls above could change it
        // through the C library.
        unsafe { *libc::__errno_location() = errno };
    }
}

#[inline]
fn slow(took: u64) -> bool {
    enabled_engine(engines::IO).is_some_and(|page| took >= page.live.io_ns.load(Relaxed))
}

/// Returns the path of a descriptor of this process.
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

/// Appends the target of a descriptor: the peer of a socket, else the path. Returns flags.
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

/// Reads the address of a socket's peer. Returns its length in bytes, 0 if there is none.
fn peer_address(fd: c_int, to: &mut [u8; PEER_BYTES]) -> usize {
    let mut len = size_of_val(to) as u32;
    let args = [fd as usize, to.as_mut_ptr() as usize, (&raw mut len) as usize, 0, 0, 0];
    // SAFETY: the kernel writes at most `len` bytes, and the actual length.
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

/// Returns true if an array of buffers has room, to distinguish the end of a file from a read of zero bytes.
///
/// # Safety
/// `buffers` points to `count` valid entries.
pub unsafe fn any_room(buffers: *const libc::iovec, count: c_int) -> bool {
    (0..count.max(0) as usize).any(|i| {
        // SAFETY: the caller guarantees `count` valid entries at `buffers`.
        let buffer = unsafe { buffers.add(i).read() };
        buffer.iov_len > 0 && !buffer.iov_base.is_null()
    })
}
