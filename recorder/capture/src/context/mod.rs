//! The recorder's interface to copies of `flightline-context` in the program, and the search for the thread
//! contexts that handlers read. `preemption` records the off-CPU time of a span.
//!
//! Spans are written to the ring like other events; if the ring is full, they are counted. Another writer's
//! variable `otel_thread_ctx_v1` is used only if it is at the same distance from the thread pointer in all
//! threads. The drain finds those of libraries that are opened later (`process/otel_thread_context.rs`).

pub(crate) mod preemption;

#[cfg(target_env = "gnu")]
use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

use flightline_context::abi::{self, Abi, LABELS_MAX, NAME_MAX, ScopeEnd, Slot, SpanEnd};
use flightline_context::{keys, own_slot, record};
use flightline_in_signal::context;
use flightline_in_signal::layout::{LABEL_NAMES, event_kind, spans};
use flightline_in_signal::payload::{Words, scope, span};
use flightline_in_signal::publish::{Event, sync_event};
use flightline_in_signal::state::slots;

use crate::session::{self, Attached};

/// The recorder's interface, as programs see it.
pub static ABI: Abi = TABLE;

/// The same table, for objects that export it as a symbol.
pub const TABLE: Abi = Abi {
    size: size_of::<Abi>() as u32,
    version: abi::VERSION,
    slot,
    samples,
    mode: &raw const MODE,
    key,
    key_name: keys::own_key_name,
    span: on_span,
    scope: on_scope,
    switches: &raw const preemption::SWITCHES,
    switched: preemption::switched,
};

/// Which spans are recorded now.
static MODE: AtomicU32 = AtomicU32::new(spans::OFF);

/// Distance from the thread pointer to another writer's `otel_thread_ctx_v1`, 0: none.
static OTHER: AtomicUsize = AtomicUsize::new(0);

const _: () = {
    assert!(abi::mode::OFF == spans::OFF && abi::mode::SAMPLED == spans::SAMPLED);
    assert!(abi::mode::ALL == spans::ALL && LABEL_NAMES == keys::KEYS_MAX);
    assert!(record::SIDE_CAR_BEFORE == context::CAR_BYTES && record::MAGIC == context::CAR_MAGIC);
    assert!(flightline_in_signal::layout::RECORD_BYTES == size_of::<record::Record>());
    use core::mem::offset_of;
    use flightline_context::record::SideCar;
    use flightline_in_signal::context::car;
    assert!(offset_of!(SideCar, name_len) == 4 && offset_of!(SideCar, version) == 8 * car::VERSION);
    assert!(offset_of!(SideCar, seq) == 8 * car::SEQ);
    assert!(offset_of!(SideCar, local_root_span_id) == 8 * car::ROOT);
    assert!(offset_of!(SideCar, parent_span_id) == 8 * car::PARENT);
    assert!(offset_of!(SideCar, previous) == 8 * car::PREVIOUS);
    assert!(offset_of!(SideCar, start_ns) == 8 * car::START && offset_of!(SideCar, name) == 8 * car::NAME);
};

/// Registers the recorder with the copy of the crate in this binary.
pub fn offer() {
    flightline_context::set_recorder(&ABI);
}

/// Looks for another writer's variable. Called outside handlers, at the start of the program or of a
/// recording.
pub fn look() {
    preemption::look();
    // A failing lookup may allocate in other C libraries.
    #[cfg(target_env = "gnu")]
    {
        let pointer = context::thread_pointer();
        let own = own_slot() as usize;
        // An object linked with -Bsymbolic finds its own definition first in the default scope, so search the
        // program and the objects after this one. SAFETY: a handle of the program itself, which is never
        // closed.
        let program = unsafe { libc::dlopen(core::ptr::null(), libc::RTLD_LAZY) };
        let found = [program, libc::RTLD_NEXT].map(|scope| find(scope, c"otel_thread_ctx_v1"));
        // The program's next `dlerror` must not report this lookup. SAFETY: clears the thread's last message.
        unsafe { libc::dlerror() };
        let other = found.into_iter().find(|at| *at != 0 && *at != own);
        let distance = other.map_or(0, |at| at.wrapping_sub(pointer));
        // In libraries that are loaded later, each thread may have its block at another distance.
        let fixed = (distance as isize).unsigned_abs() < STATIC_BYTES;
        OTHER.store(if fixed { distance } else { 0 }, Relaxed);
    }
}

#[cfg(target_env = "gnu")]
/// Maximum distance from the thread pointer of thread-local variables that are at the same distance in all
/// threads.
const STATIC_BYTES: usize = 1 << 20;

#[cfg(target_env = "gnu")]
fn find(scope: *mut libc::c_void, name: &CStr) -> usize {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::dlsym(scope, name.as_ptr()) as usize }
}

/// Called when a session was joined: makes handlers look for contexts and programs record spans, as far as
/// the session enables them.
pub fn apply(attached: &Attached) {
    let mode = attached.session().live.spans.load(Acquire).min(spans::ALL);
    let own = (own_slot() as usize).wrapping_sub(context::thread_pointer());
    let offsets = if mode == spans::OFF { [0; 2] } else { [own, OTHER.load(Relaxed)] };
    for (to, offset) in attached.header().contexts.offsets.iter().zip(offsets) {
        to.store(offset as u64, Relaxed);
    }
    write_label_names(attached);
    context::set_offsets(offsets);
    preemption::apply(attached);
    MODE.store(mode, Release);
}

/// Called when the session has ended, or this process has left it.
pub fn off() {
    preemption::off();
    MODE.store(spans::OFF, Release);
}

unsafe extern "C" fn slot() -> *const Slot {
    own_slot()
}

unsafe extern "C" fn samples() -> *const AtomicU32 {
    // Called for each span that is entered: no system call if threads register themselves. A child without
    // fork handlers sees its parent's word, which it only reads; its own events are refused.
    let slot = slots::current().or_else(slots::registered_by_another);
    slot.map_or(core::ptr::null(), |slot| &raw const slot.ledger.span_samples)
}

unsafe extern "C" fn key(name: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's text of that length.
    let index = unsafe { keys::own_key(name, len) };
    let untold = |attached: &Attached, index: usize| {
        attached.header().contexts.label_names.get(index).is_some_and(|name| name[1].load(Relaxed) == 0)
    };
    // Called with each label, so make the system call of `current` only if there is a name to write.
    if let (Some(inherited), Ok(index)) = (session::inherited(), usize::try_from(index))
        && untold(inherited, index)
        && let Some(attached) = session::current()
    {
        write_label_names(attached);
    }
    index
}

/// Writes the names of labels that are missing in the process file.
fn write_label_names(attached: &Attached) {
    attached.log_lock.with(|| {
        for (place, name) in attached.header().contexts.label_names.iter().zip(keys::all()) {
            if place[1].load(Relaxed) != 0 {
                continue;
            }
            let Some([at, len]) = attached.put_string(name.as_bytes()) else { return };
            place[0].store(at, Relaxed);
            place[1].store(len, Release);
        }
    });
}

/// Returns the text at `at`, at most `most` bytes of it.
///
/// # Safety
/// `len` bytes at `at` can be read, or it is null.
unsafe fn text<'a>(at: *const u8, len: u32, most: usize) -> &'a [u8] {
    if at.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees that `len` bytes at `at` can be read; null was ruled out above.
    unsafe { core::slice::from_raw_parts(at, (len as usize).min(most)) }
}

unsafe extern "C" fn on_span(end: *const SpanEnd) {
    // SAFETY: null or a span that begins with its size; one of a different build is ignored.
    let Some(end) = (unsafe { end.as_ref() }).filter(|end| end.size as usize >= size_of::<SpanEnd>()) else {
        return;
    };
    if session::current().is_none() {
        return;
    }
    let [high, low] = [0, 8].map(|at| {
        let half = end.trace_id.get(at..).and_then(|half| half.first_chunk());
        half.map_or(0, |half| u64::from_be_bytes(*half))
    });
    let mut first = [0; span::WORDS];
    first[span::START] = end.start_ns;
    first[span::END] = end.end_ns;
    first[span::SPAN] = end.span_id;
    first[span::PARENT] = end.parent_span_id;
    first[span::ROOT] = end.local_root_span_id;
    first[span::TRACE_HI] = high;
    first[span::TRACE_LO] = low;
    first[span::FLAGS] = u64::from(end.flags) | u64::from(end.samples) << 32;
    let mut words = Words::new(&first);
    // SAFETY: the caller's texts, which stay valid during the call.
    unsafe {
        words.text(text(end.name, end.name_len, NAME_MAX));
        words.text(text(end.labels, end.labels_len, LABELS_MAX));
    }
    record_event(event_kind::SPAN, end.end_ns.saturating_sub(end.start_ns), words.get());
}

unsafe extern "C" fn on_scope(end: *const ScopeEnd) {
    // SAFETY: null or an activation that begins with its size; one of a different build is ignored.
    let Some(end) = (unsafe { end.as_ref() }).filter(|end| end.size as usize >= size_of::<ScopeEnd>()) else {
        return;
    };
    if session::current().is_none() {
        return;
    }
    let mut words = [0; scope::WORDS];
    words[scope::START] = end.start_ns;
    words[scope::END] = end.end_ns;
    words[scope::SPAN] = end.span_id;
    words[scope::PREVIOUS] = end.previous_span_id;
    words[scope::SEQ] = end.seq;
    record_event(event_kind::SCOPE, end.end_ns.saturating_sub(end.start_ns), &words);
}

/// Records an event. One that finds no room is counted by kind.
fn record_event(kind: u16, value: u64, extra: &[u64]) {
    let _ = sync_event::record(&Event { kind, index: 0, value, extra }, false);
}
