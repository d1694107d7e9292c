//! The process context of OTEP 4719: memory that readers find by its name, and that contains the names of the
//! labels' keys.

use core::ptr::{addr_of_mut, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, fence};

use crate::key_table::{self, KEY_MAX, KEYS_MAX};
use crate::sys;

/// The name by which the proposal's readers identify the layout of the records.
pub const SCHEMA: &str = "tlsdesc_v1_dev";
const SIGNATURE: u64 = u64::from_le_bytes(*b"OTEL_CTX");
const VERSION: u32 = 2;

#[repr(C)]
struct Header {
    signature: AtomicU64,
    version: u32,
    payload_size: u32,
    published_at_ns: AtomicU64,
    payload: *const u8,
}

/// Header, followed by two buffers that are used alternately for payloads.
const MAPPED: usize = size_of::<Header>() + 2 * PAYLOAD_MAX;
/// Each key with up to four bytes before it, the two names, and their lengths.
const PAYLOAD_MAX: usize = KEYS_MAX * (KEY_MAX + 4) + 256;

static MAP: AtomicPtr<Header> = AtomicPtr::new(null_mut());
/// True if another library already publishes the process context; there can be only one.
static FOREIGN: AtomicBool = AtomicBool::new(false);
/// Publishes the present table of keys. Does nothing without memory or the kernel's permission: readers then
/// have no names. Called only by the copy of this crate that the recorder uses, or without a recorder.
pub(crate) fn publish() {
    let Some(page) = wiped() else { return };
    while page.busy.swap(true, Acquire) {
        // SAFETY: no pointers; yields the processor.
        unsafe { libc::sched_yield() };
    }
    if !page.here.swap(true, Relaxed) {
        // A forked child does not have its parent's mapping.
        MAP.store(null_mut(), Relaxed);
        FOREIGN.store(false, Relaxed);
    }
    if !FOREIGN.load(Relaxed) {
        write();
    }
    page.busy.store(false, Release);
}

/// State that reads as zero in every forked child, even if no fork handler ran.
struct Wiped {
    /// This process has published.
    here: AtomicBool,
    /// A thread is publishing. Other threads wait for it, because it may have read the table before they changed it.
    busy: AtomicBool,
}

static WIPED: AtomicPtr<Wiped> = AtomicPtr::new(null_mut());

fn wiped() -> Option<&'static Wiped> {
    let mut page = WIPED.load(Acquire);
    if page.is_null() {
        let new = sys::map_wiped_on_fork(sys::PAGE)?.cast::<Wiped>();
        page = match WIPED.compare_exchange(null_mut(), new, AcqRel, Acquire) {
            Ok(_) => new,
            Err(known) => {
                // SAFETY: mapped above, unknown to any other thread.
                unsafe { sys::unmap(new.cast(), sys::PAGE) };
                known
            }
        };
    }
    // SAFETY: mapped for as long as the process lives; zero is a valid value of both.
    Some(unsafe { &*page })
}

/// Publishes if nothing is published.
pub(crate) fn ensure() {
    if MAP.load(Relaxed).is_null() && !FOREIGN.load(Relaxed) {
        publish();
    }
}

fn write() {
    let mut header = MAP.load(Acquire);
    let first = header.is_null();
    if first {
        if sys::file_holds(c"/proc/self/maps", b"OTEL_CTX") {
            FOREIGN.store(true, Relaxed);
            return;
        }
        let Some(at) = sys::map_named(MAPPED, c"OTEL_CTX") else { return };
        header = at.cast();
    }
    // SAFETY: this copy's own mapping, which only the holder of `busy` writes. The active payload is not
    // changed.
    unsafe {
        let buffers = header.add(1).cast::<u8>();
        let in_force = (*header).payload;
        let payload = if in_force == buffers { buffers.add(PAYLOAD_MAX) } else { buffers };
        let size = encode(core::slice::from_raw_parts_mut(payload, PAYLOAD_MAX));
        (*header).published_at_ns.store(0, Relaxed);
        fence(SeqCst);
        addr_of_mut!((*header).version).write_volatile(VERSION);
        addr_of_mut!((*header).payload_size).write_volatile(size as u32);
        addr_of_mut!((*header).payload).write_volatile(payload);
        fence(SeqCst);
        (*header).published_at_ns.store(now(), Release);
        if first {
            fence(SeqCst);
            (*header).signature.store(SIGNATURE, Release);
            MAP.store(header, Release);
        }
        sys::name_mapping(header.cast(), MAPPED, c"OTEL_CTX");
    }
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to the local.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(1)
}

/// Called in the child of a fork, which does not have this mapping. The child publishes its own when it
/// enters a span.
pub(crate) fn in_child() {
    MAP.store(null_mut(), Relaxed);
    FOREIGN.store(false, Relaxed);
    // Before Linux 4.14 the page is copied too.
    // SAFETY: null or mapped for as long as the process lives.
    if let Some(page) = unsafe { WIPED.load(Relaxed).as_ref() } {
        page.busy.store(false, Relaxed);
    }
}

/// Protocol buffers, written from the end, because the length of a message is known only after its content is
/// written.
struct Backwards<'a> {
    bytes: &'a mut [u8],
    from: usize,
}

impl Backwards<'_> {
    fn put(&mut self, bytes: &[u8]) {
        // `PAYLOAD_MAX` is enough for all keys; if it were not, nothing would be written.
        if let Some(from) = self.from.checked_sub(bytes.len()) {
            self.bytes[from..self.from].copy_from_slice(bytes);
            self.from = from;
        }
    }

    /// Makes everything written since `end` the content of a field.
    fn field(&mut self, number: u8, end: usize) {
        let mut length = end - self.from;
        let mut varint = [0u8; 10];
        let mut n = 0;
        loop {
            varint[n] = (length & 0x7f) as u8 | if length > 0x7f { 0x80 } else { 0 };
            n += 1;
            length >>= 7;
            if length == 0 {
                break;
            }
        }
        self.put(&varint[..n]);
        self.put(&[number << 3 | 2]);
    }

    fn string(&mut self, number: u8, text: &str) {
        let end = self.from;
        self.put(text.as_bytes());
        self.field(number, end);
    }
}

/// Writes `ProcessContext { attributes (2): [schema version, key map] }` to the start of the buffer and
/// returns its size.
fn encode(buffer: &mut [u8]) -> usize {
    const KEY: u8 = 1;
    const VALUE: u8 = 2;
    const STRING_VALUE: u8 = 1;
    const ARRAY_VALUE: u8 = 5;
    const VALUES: u8 = 1;
    const ATTRIBUTES: u8 = 2;
    let len = buffer.len();
    let mut out = Backwards { bytes: buffer, from: len };
    let attribute = out.from;
    for name in key_table::all().rev() {
        let any_value = out.from;
        out.string(STRING_VALUE, name);
        out.field(VALUES, any_value);
    }
    out.field(ARRAY_VALUE, attribute);
    out.field(VALUE, attribute);
    out.string(KEY, "threadlocal.attribute_key_map");
    out.field(ATTRIBUTES, attribute);
    let attribute = out.from;
    out.string(STRING_VALUE, SCHEMA);
    out.field(VALUE, attribute);
    out.string(KEY, "threadlocal.schema_version");
    out.field(ATTRIBUTES, attribute);
    let from = out.from;
    buffer.copy_within(from.., 0);
    len - from
}
