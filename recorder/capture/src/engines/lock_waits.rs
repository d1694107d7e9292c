//! Records waits for locks and similar objects. The hooks in `preload` try to lock first and come here only
//! if that fails.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::layout::{SessionPage, engines, event_kind};
use flightline_in_signal::os::clock;
use flightline_in_signal::payload::lock;
use flightline_in_signal::publish::{Event, sync_event};
use flightline_in_signal::state;

use crate::{os, sandbox, session};

/// Returns the session page if the engine `bit` records now. This is a few loads only, because every lock
/// operation of the program calls it.
#[inline]
pub fn enabled_engine(bit: u32) -> Option<&'static SessionPage> {
    let page = state::get()?.session;
    let on = page.live.engines.load(Relaxed) & bit != 0 && page.live.paused.load(Relaxed) == 0;
    // Even reading the clock may be a system call, which a restricted thread must not make.
    (on && page.stop.load(Relaxed) == 0 && !sandbox::applies()).then_some(page)
}

/// Returns true if waits are recorded.
#[inline]
pub fn is_enabled() -> bool {
    enabled_engine(engines::LOCK).is_some()
}

/// The time limit of a wait.
#[derive(Clone, Copy)]
pub enum Limit {
    /// No limit.
    None,
    /// Until this time of a clock, ns.
    Until(libc::clockid_t, u64),
    /// For this duration, ns.
    For(u64),
}

/// The clock of a condition variable: an attribute that cannot be read.
pub const UNKNOWN_CLOCK: libc::clockid_t = -1;

/// Converts a time to ns; a time before the clock's start becomes 0.
pub fn ns(time: &libc::timespec) -> u64 {
    let sec = u64::try_from(time.tv_sec).unwrap_or(0);
    sec.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

impl Limit {
    /// A limit by a clock's time.
    ///
    /// # Safety
    /// `time` is null or points to a time.
    pub unsafe fn until(clock: libc::clockid_t, time: *const libc::timespec) -> Limit {
        // SAFETY: the caller guarantees that `time` is null or points to a time.
        unsafe { time.as_ref() }.map_or(Limit::None, |time| Limit::Until(clock, ns(time)))
    }

    /// A limit by duration.
    ///
    /// # Safety
    /// As [`Limit::until`].
    pub unsafe fn after(time: *const libc::timespec) -> Limit {
        // SAFETY: the caller guarantees that `time` is null or points to a time.
        unsafe { time.as_ref() }.map_or(Limit::None, |time| Limit::For(ns(time)))
    }

    /// Returns the maximum duration of the wait, called after it took `waited` ns.
    fn duration(self, waited: u64) -> u64 {
        match self {
            Limit::None => lock::FOREVER,
            Limit::For(ns) => ns,
            Limit::Until(id, at) => {
                let id = match id {
                    // The wall clock passed this value in 2001; the monotonic clock does not reach it in any
                    // machine's life.
                    UNKNOWN_CLOCK if at > 1_000_000_000_000_000_000 => libc::CLOCK_REALTIME,
                    UNKNOWN_CLOCK => libc::CLOCK_MONOTONIC,
                    id => id,
                };
                let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                let args = [id as usize, (&raw mut now) as usize, 0, 0, 0, 0];
                // SAFETY: the kernel writes one timespec.
                let _ = unsafe { os::syscall(libc::SYS_clock_gettime, args) };
                at.saturating_add(waited).saturating_sub(ns(&now))
            }
        }
    }
}

/// A wait that is about to begin.
pub struct Wait {
    kind: u64,
    address: usize,
    owner: u32,
    limit: Limit,
    start_ns: u64,
}

impl Wait {
    /// Stores the time and the holder of the lock.
    ///
    /// # Safety
    /// For a mutex or a read-write lock, `address` is that of a valid one.
    #[inline]
    pub unsafe fn begin(kind: u64, address: usize, limit: Limit) -> Wait {
        let at = match kind {
            lock::MUTEX => MUTEX_OWNER.load(Relaxed),
            lock::READ | lock::WRITE => WRITER.load(Relaxed),
            _ => 0,
        };
        let owner = match at {
            0 => 0,
            // SAFETY: inside the lock, whose layout is known; other threads change the word, so it is read as
            // an atomic.
            at => unsafe { &*((address + at as usize) as *const AtomicU32) }.load(Relaxed),
        };
        Wait { kind, address, owner, limit, start_ns: clock::monotonic_ns() }
    }

    /// Stores the time and a known owner.
    pub fn begin_owned(kind: u64, address: usize, limit: Limit, owner: u32) -> Wait {
        Wait { kind, address, owner, limit, start_ns: clock::monotonic_ns() }
    }

    /// Replaces the limit.
    pub fn limited(self, limit: Limit) -> Wait {
        Wait { limit, ..self }
    }

    /// Ends the wait, and records it if it was long enough. Does not change `errno`.
    pub fn end(self, timed_out: bool) {
        let waited = clock::monotonic_ns().saturating_sub(self.start_ns);
        let Some(page) = enabled_engine(engines::LOCK) else { return };
        // The child of a vfork and restricted threads must not record.
        if session::current().is_none() {
            return;
        }
        if waited < page.live.lock_ns.load(Relaxed) {
            return note_short(waited);
        }
        let mut words = [0u64; lock::WORDS];
        let values = [
            (lock::START, self.start_ns),
            (lock::ADDRESS, self.address as u64),
            (lock::KIND, self.kind | if timed_out { lock::TIMED_OUT } else { 0 }),
            (lock::OWNER, self.owner.into()),
            (lock::TIMEOUT, self.limit.duration(waited)),
        ];
        for (index, value) in values {
            if let Some(word) = words.get_mut(index) {
                *word = value;
            }
        }
        let event = Event { kind: event_kind::LOCK, index: 0, value: waited, extra: &words };
        // `record` counts an event that finds no room.
        let _ = sync_event::record(&event, true);
    }
}

/// Counts a wait that was contended but below the threshold.
fn note_short(waited: u64) {
    let Some(state) = state::get() else { return };
    let kind = usize::from(event_kind::LOCK);
    if let (Some(count), Some(value)) =
        (state.header.counters.event_short.get(kind), state.header.counters.event_short_value.get(kind))
    {
        count.fetch_add(1, Relaxed);
        value.fetch_add(waited, Relaxed);
    }
}

/// Offset of the holder's thread id in a mutex and in a read-write lock; 0 = unknown.
static MUTEX_OWNER: AtomicU32 = AtomicU32::new(0);
static WRITER: AtomicU32 = AtomicU32::new(0);

type Change = unsafe extern "C" fn(*mut libc::c_void) -> libc::c_int;

/// Finds where this C library stores the owner: locks an object and compares the word at glibc's offset with
/// the caller's id.
///
/// # Safety
/// The functions are the C library's `pthread_mutex_trylock`, `pthread_mutex_unlock`, `pthread_rwlock_trywrlock` and
/// `pthread_rwlock_unlock`.
pub unsafe fn learn_owners(mutex: [Change; 2], rwlock: [Change; 2]) {
    let me = flightline_in_signal::os::sys::gettid();
    let look = |at: usize, object: usize, [take, leave]: [Change; 2]| {
        let word = (object + at) as *const AtomicU32;
        // SAFETY: an initialised lock that no other thread knows, and a word inside it.
        unsafe {
            let before = (*word).load(Relaxed);
            if take(object as *mut _) != 0 {
                return 0;
            }
            let held = (*word).load(Relaxed);
            leave(object as *mut _);
            if before == 0 && held == me && (*word).load(Relaxed) == 0 { at as u32 } else { 0 }
        }
    };
    let mut lock = libc::PTHREAD_MUTEX_INITIALIZER;
    MUTEX_OWNER.store(look(8, (&raw mut lock) as usize, mutex), Relaxed);
    let mut lock = libc::PTHREAD_RWLOCK_INITIALIZER;
    WRITER.store(look(24, (&raw mut lock) as usize, rwlock), Relaxed);
}
