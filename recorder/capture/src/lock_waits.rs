//! Waits for locks and the like: the doors in `preload` try first and come here only when that failed.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::layout::{SessionPage, engines, event_kind};
use flightline_in_signal::payload::lock;
use flightline_in_signal::publish::Event;
use flightline_in_signal::{clock, state, sync_event};

use crate::{os, sandbox, session};

/// The session's page if what `bit` stands for is recorded now; a few loads, as every lock of the program asks.
#[inline]
pub fn enabled_engine(bit: u32) -> Option<&'static SessionPage> {
    let page = state::get()?.session;
    let on = page.engines.load(Relaxed) & bit != 0 && page.paused.load(Relaxed) == 0;
    // Even to read the clock may be a system call, which a restricted thread must not make.
    (on && page.stop.load(Relaxed) == 0 && !sandbox::applies()).then_some(page)
}

/// `true` if waits are recorded.
#[inline]
pub fn is_enabled() -> bool {
    enabled_engine(engines::LOCK).is_some()
}

/// Until when a wait may last.
#[derive(Clone, Copy)]
pub enum Limit {
    /// For ever.
    None,
    /// Until a clock shows this time, ns.
    Until(libc::clockid_t, u64),
    /// For this long, ns.
    For(u64),
}

/// Stands for the clock of a condition variable, which is an attribute that cannot be asked for.
pub const UNKNOWN_CLOCK: libc::clockid_t = -1;

/// A time as ns; what is before the clock's start is 0.
pub fn ns(time: &libc::timespec) -> u64 {
    let sec = u64::try_from(time.tv_sec).unwrap_or(0);
    sec.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

impl Limit {
    /// A limit by a clock.
    ///
    /// # Safety
    /// `time` is null or points at a time.
    pub unsafe fn until(clock: libc::clockid_t, time: *const libc::timespec) -> Limit {
        // SAFETY: by the contract.
        unsafe { time.as_ref() }.map_or(Limit::None, |time| Limit::Until(clock, ns(time)))
    }

    /// A limit from now on.
    ///
    /// # Safety
    /// As [`Limit::until`].
    pub unsafe fn after(time: *const libc::timespec) -> Limit {
        // SAFETY: by the contract.
        unsafe { time.as_ref() }.map_or(Limit::None, |time| Limit::For(ns(time)))
    }

    /// The wait's longest duration, asked when it is over after `waited` ns.
    fn duration(self, waited: u64) -> u64 {
        match self {
            Limit::None => lock::FOREVER,
            Limit::For(ns) => ns,
            Limit::Until(id, at) => {
                let id = match id {
                    // The wall clock passed this in 2001, the other one is not that far in any machine's life.
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
    /// Notes the time and who holds the lock.
    ///
    /// # Safety
    /// For a mutex or a lock to read or write, `address` is that of a valid one.
    #[inline]
    pub unsafe fn begin(kind: u64, address: usize, limit: Limit) -> Wait {
        let at = match kind {
            lock::MUTEX => MUTEX_OWNER.load(Relaxed),
            lock::READ | lock::WRITE => WRITER.load(Relaxed),
            _ => 0,
        };
        let owner = match at {
            0 => 0,
            // SAFETY: inside the lock, whose layout was looked at; it changes meanwhile, so by an atomic.
            at => unsafe { &*((address + at as usize) as *const AtomicU32) }.load(Relaxed),
        };
        Wait { kind, address, owner, limit, start_ns: clock::monotonic_ns() }
    }

    /// The same with a known owner.
    pub fn begin_owned(kind: u64, address: usize, limit: Limit, owner: u32) -> Wait {
        Wait { kind, address, owner, limit, start_ns: clock::monotonic_ns() }
    }

    /// The same with another limit.
    pub fn limited(self, limit: Limit) -> Wait {
        Wait { limit, ..self }
    }

    /// The wait is over; records it if it was long enough. Leaves `errno` alone.
    pub fn end(self, timed_out: bool) {
        let waited = clock::monotonic_ns().saturating_sub(self.start_ns);
        let Some(page) = enabled_engine(engines::LOCK) else { return };
        // In the child of a vfork and in restricted threads nothing may be done.
        if session::current().is_none() {
            return;
        }
        if waited < page.lock_ns.load(Relaxed) {
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
        // What finds no room is counted by the callee.
        let _ = sync_event::record(&event, true);
    }
}

/// Contended, but below the threshold: only counted.
fn note_short(waited: u64) {
    let Some(state) = state::get() else { return };
    let kind = usize::from(event_kind::LOCK);
    if let (Some(count), Some(value)) =
        (state.header.event_short.get(kind), state.header.event_short_value.get(kind))
    {
        count.fetch_add(1, Relaxed);
        value.fetch_add(waited, Relaxed);
    }
}

/// Offset of the holder's thread id in a mutex, in a lock to read or write; 0 = not known.
static MUTEX_OWNER: AtomicU32 = AtomicU32::new(0);
static WRITER: AtomicU32 = AtomicU32::new(0);

type Change = unsafe extern "C" fn(*mut libc::c_void) -> libc::c_int;

/// Looks where this C library keeps the owner: locks one and searches it for the caller's id where glibc has it.
///
/// # Safety
/// The functions are the C library's `pthread_mutex_trylock`, `pthread_mutex_unlock`, `pthread_rwlock_trywrlock` and
/// `pthread_rwlock_unlock`.
pub unsafe fn learn_owners(mutex: [Change; 2], rwlock: [Change; 2]) {
    let me = flightline_in_signal::sys::gettid();
    let look = |at: usize, object: usize, [take, leave]: [Change; 2]| {
        let word = (object + at) as *const AtomicU32;
        // SAFETY: an initialised lock that nobody else knows, and a word inside of it.
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
