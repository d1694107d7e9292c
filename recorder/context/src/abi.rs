//! What copies of this crate, C programs and the recorder agree on: plain C, so that a program's copy and the one in
//! `libflightline.so` need not be of one build. Structs that are passed begin with their size and grow at their end.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use crate::tls;

/// [`Abi::version`] of this description.
pub const VERSION: u32 = 1;
/// Name under which `libflightline.so` exports its [`Abi`].
pub const SYMBOL: &CStr = c"flightline_context_v1";

/// Values of the word behind [`Abi::mode`].
pub mod mode {
    /// Nothing is told.
    pub const OFF: u32 = 0;
    /// What a sample fell into is told.
    pub const SAMPLED: u32 = 1;
    /// Everything that ends is told.
    pub const ALL: u32 = 2;
}

/// The thread-local variable `otel_thread_ctx_v1` of a thread.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// The record in force ([`crate::record::Record`]), null if none. Written by its own thread only.
    pub context: AtomicPtr<u8>,
}

/// What a recorder offers. All functions are called outside signal handlers, on the thread they are about; none blocks, sets
/// `errno` or keeps a pointer.
#[repr(C)]
#[derive(Debug)]
pub struct Abi {
    /// Bytes of this struct.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// The calling thread's slot; stays valid until the thread's end.
    pub slot: unsafe extern "C" fn() -> *const Slot,
    /// A word that goes up with every sample of any kind of the calling thread; null if the thread is not recorded. What was
    /// returned once stays readable until the process ends.
    pub samples: unsafe extern "C" fn() -> *const AtomicU32,
    /// What is told at the moment ([`mode`]); never null.
    pub mode: *const AtomicU32,
    /// Index of a label's key (UTF-8) in the process's one table of keys; negative if that is full.
    pub key: unsafe extern "C" fn(name: *const u8, len: usize) -> i32,
    /// Name of the key with this index, and its length; null if there is none. Names stay.
    pub key_name: unsafe extern "C" fn(index: u8, len: *mut usize) -> *const u8,
    /// A span ended.
    pub span: unsafe extern "C" fn(*const SpanEnd),
    /// An activation of the calling thread ended.
    pub scope: unsafe extern "C" fn(*const ScopeEnd),
    /// How a thread finds out that it was off its processor; never null.
    pub switches: *const Switches,
    /// The calling thread may have been off its processor since it called this last; to be called before what it works for changes.
    pub switched: unsafe extern "C" fn(),
}

/// The kernel takes the address of a restartable sequence (rseq(2)) out of a thread's memory when it puts the thread aside, or sends it a
/// signal, outside that sequence. So whoever finds there what it put there has been on its processor ever since.
#[repr(C)]
#[derive(Debug)]
pub struct Switches {
    /// What is put there; 0: nobody wants to know.
    pub mark: AtomicU64,
    /// Distance from the thread pointer to the word.
    pub word: AtomicUsize,
}

// SAFETY: functions and a pointer to an atomic that lives as long as the process.
unsafe impl Sync for Abi {}
// SAFETY: as above.
unsafe impl Send for Abi {}

/// A span that ended. Ids are numbers whose big-endian bytes are those of W3C Trace Context; 0: none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SpanEnd {
    /// Bytes of this struct.
    pub size: u32,
    /// Trace flags of W3C Trace Context.
    pub flags: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// As `start_ns`.
    pub end_ns: u64,
    /// This span.
    pub span_id: u64,
    /// The span it is a child of.
    pub parent_span_id: u64,
    /// The outermost span of this trace in this process.
    pub local_root_span_id: u64,
    /// As in W3C Trace Context.
    pub trace_id: [u8; 16],
    /// Samples within its activations, those of spans entered meanwhile included.
    pub samples: u32,
    /// Bytes at `name`, at most 255.
    pub name_len: u32,
    /// UTF-8.
    pub name: *const u8,
    /// A JSON object's text, UTF-8; null if there are no labels.
    pub labels: *const u8,
    /// Bytes at `labels`, at most [`LABELS_MAX`].
    pub labels_len: u32,
    /// 0.
    pub reserved: u32,
}

/// The longest text of labels in a [`SpanEnd`]; labels that do not fit are left out whole.
pub const LABELS_MAX: usize = 1024;
/// The longest name; longer ones are cut between characters.
pub const NAME_MAX: usize = 255;

/// An activation that ended: the time a span was entered on one thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ScopeEnd {
    /// Bytes of this struct.
    pub size: u32,
    /// Samples meanwhile, those of inner activations included.
    pub samples: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// As `start_ns`.
    pub end_ns: u64,
    /// The span that was entered.
    pub span_id: u64,
    /// The span that was active before on this thread; 0: none.
    pub previous_span_id: u64,
    /// The activation's number, unique in the process ([`crate::record::SideCar::seq`]).
    pub seq: u64,
}

/// The recorder, null before it was looked for, [`NONE`] if there is none.
static RECORDER: AtomicPtr<Abi> = AtomicPtr::new(core::ptr::null_mut());

/// Whether [`set_recorder`] was called.
static OF_THIS_COPY: AtomicBool = AtomicBool::new(false);

static NO_MODE: AtomicU32 = AtomicU32::new(mode::OFF);

unsafe extern "C" fn no_samples() -> *const AtomicU32 {
    core::ptr::null()
}
unsafe extern "C" fn no_span(_: *const SpanEnd) {}
unsafe extern "C" fn no_scope(_: *const ScopeEnd) {}
unsafe extern "C" fn no_switched() {}

static NO_SWITCHES: Switches = Switches { mark: AtomicU64::new(0), word: AtomicUsize::new(0) };

/// Stands for a recorder where there is none: this copy's own slot and keys, so that other tools can read the context.
static NONE: Abi = Abi {
    size: size_of::<Abi>() as u32,
    version: VERSION,
    slot: crate::tls::own_slot,
    samples: no_samples,
    mode: &raw const NO_MODE,
    key: crate::keys::own_key,
    key_name: crate::keys::own_key_name,
    span: no_span,
    scope: no_scope,
    switches: &raw const NO_SWITCHES,
    switched: no_switched,
};

impl Abi {
    /// Whether it stands for none, so that nothing can be recorded.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        core::ptr::eq(self, &NONE)
    }

    /// Whether nobody wants to be told.
    pub(crate) fn is_off(&self) -> bool {
        // SAFETY: never null, by the description.
        unsafe { (*self.mode).load(Relaxed) == mode::OFF }
    }

    /// What the thread works for is about to change: tells for how long it was off its processor, if it was.
    #[inline(always)]
    pub(crate) fn changes(&self) {
        // SAFETY: never null, and if there is a mark, there is a word of the thread's own at this distance, by the description.
        unsafe {
            let mark = (*self.switches).mark.load(Relaxed);
            if mark != 0 {
                let at = tls::thread_pointer().wrapping_add((*self.switches).word.load(Relaxed));
                if (*(at as *const AtomicU64)).load(Relaxed) != mark {
                    (self.switched)();
                }
            }
        }
    }
}

/// Names the recorder of this process, for one that is linked into the same binary as this copy of the crate, and for
/// `libflightline.so` itself. Its `slot` must be [`crate::own_slot`]: threads that have entered something keep theirs.
pub fn set_recorder(abi: &'static Abi) {
    OF_THIS_COPY.store(true, Release);
    RECORDER.store(core::ptr::from_ref(abi).cast_mut(), Release);
}

/// Whether the process's one table of keys is this copy's: it has the recorder, or nobody has.
pub(crate) fn keys_are_ours() -> bool {
    OF_THIS_COPY.load(Acquire) || recorder().is_none()
}

/// The recorder; looked for (`dlsym`) by the first call.
#[inline]
pub(crate) fn recorder() -> &'static Abi {
    let known = RECORDER.load(Relaxed);
    if known.is_null() {
        return find();
    }
    // SAFETY: only `'static` tables are stored, which were complete before the program's first instruction or before `Release`;
    // a processor does not read through a pointer before it has the pointer.
    unsafe { &*known }
}

#[cold]
#[inline(never)]
fn find() -> &'static Abi {
    // SAFETY: a lookup by name; the answer is a data symbol of that name or null.
    let found: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr().cast::<c_char>()) };
    let found = found.cast::<Abi>();
    // SAFETY: whoever exports the symbol has a table there whose first two words tell what it is.
    let fits = !found.is_null()
        && unsafe { (*found).version == VERSION && (*found).size as usize >= size_of::<Abi>() };
    let chosen = if fits { found } else { (&raw const NONE).cast_mut() };
    // One that was set meanwhile stays.
    let _ = RECORDER.compare_exchange(core::ptr::null_mut(), chosen, Release, Acquire);
    // SAFETY: never null from here on; as above.
    unsafe { &*RECORDER.load(Acquire) }
}
