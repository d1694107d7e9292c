//! Waits for locks in the JDK's form: a lock held by another thread is a monitor enter, a condition variable
//! a monitor wait, everything else a park. The class is the kind of lock.

use flightline_in_signal::payload::lock;
use jfr_format::schema::{JAVA_MONITOR_ENTER, JAVA_MONITOR_WAIT, THREAD_PARK};

use super::{Event, EventSite};
use crate::recording::Recording;

/// The event type of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Enter,
    Wait,
    Park,
}

/// The system call does not show the kind of lock, but the calling function does. Matched by parts of its
/// name.
const BY_FUNCTION: &[(&str, &str, Shape)] = &[
    ("mutex::futex::Mutex::lock", "std::sync::Mutex", Shape::Enter),
    ("rwlock::futex::RwLock::read", "std::sync::RwLock", Shape::Enter),
    ("rwlock::futex::RwLock::write", "std::sync::RwLock", Shape::Enter),
    ("condvar::futex::Condvar::wait", "std::sync::Condvar", Shape::Wait),
    ("std::sync::poison::condvar::Condvar::wait", "std::sync::Condvar", Shape::Wait),
    ("once::futex::Once::", "std::sync::Once", Shape::Enter),
    ("thread_parking::futex::Parker::park", "std::thread", Shape::Park),
    ("std::thread::park", "std::thread", Shape::Park),
    ("raw_mutex::RawMutex::lock_slow", "parking_lot::Mutex", Shape::Enter),
    ("raw_rwlock::RawRwLock::lock_", "parking_lot::RwLock", Shape::Enter),
    ("raw_rwlock::RawRwLock::upgrade", "parking_lot::RwLock", Shape::Enter),
    ("parking_lot::condvar::Condvar::wait", "parking_lot::Condvar", Shape::Wait),
    ("raw_fair_mutex", "parking_lot::FairMutex", Shape::Enter),
    ("parking_lot::once::Once::call_once", "parking_lot::Once", Shape::Enter),
    ("std::counting_semaphore", "std::counting_semaphore", Shape::Park),
    ("std::__atomic_semaphore", "std::counting_semaphore", Shape::Park),
    ("std::latch::", "std::latch", Shape::Park),
    ("std::barrier", "std::barrier", Shape::Park),
    ("std::__tree_barrier", "std::barrier", Shape::Park),
    ("std::__atomic_futex_unsigned", "std::future", Shape::Park),
    ("__cxa_guard_acquire", "static initialisation", Shape::Enter),
];

/// C++ atomics wait in this function, and all types that use them. It applies only if no more precise match
/// exists.
const ATOMIC: &str = "std::__atomic_";

/// Number of frames from the leaf, including inlined ones, in which the function is searched.
const NEAR: usize = 12;

fn by_function<'a>(names: impl Iterator<Item = &'a str>) -> (&'static str, Shape) {
    // Treat `<module::Type>::function` like `module::Type::function`.
    let names: Vec<String> = names.take(NEAR).map(|name| name.replace(['<', '>'], "")).collect();
    let known = names.iter().find_map(|name| BY_FUNCTION.iter().find(|(part, ..)| name.contains(part)));
    match known {
        Some(&(_, class, shape)) => (class, shape),
        None if names.iter().any(|name| name.contains(ATOMIC)) => ("std::atomic", Shape::Park),
        None => ("futex", Shape::Park),
    }
}

fn lock_class(recording: &Recording, place: &EventSite, kind: u64) -> (&'static str, Shape) {
    match kind {
        lock::MUTEX => ("pthread_mutex_t", Shape::Enter),
        lock::READ => ("pthread_rwlock_t.read", Shape::Enter),
        lock::WRITE => ("pthread_rwlock_t.write", Shape::Enter),
        lock::CONDITION => ("pthread_cond_t", Shape::Wait),
        lock::SEMAPHORE => ("sem_t", Shape::Park),
        lock::BARRIER => ("pthread_barrier_t", Shape::Park),
        lock::JOIN => ("pthread_t", Shape::Park),
        lock::FUTEX_PI => ("futex", Shape::Enter),
        lock::FUTEX => match place.trace {
            Some(trace) => by_function(recording.interner.names(trace)),
            None => ("futex", Shape::Park),
        },
        _ => ("unknown", Shape::Park),
    }
}

/// Writes the event.
pub fn write(recording: &mut Recording, place: &EventSite, event: &Event<'_>) {
    let (start_ns, took_ns) = event.span(lock::START, place.time_ns);
    let kind = event.word(lock::KIND);
    let (name, shape) = lock_class(recording, place, kind & lock::MASK);
    let class = recording.interner.class(name);
    let (start, took) = recording.interval(start_ns, took_ns);
    let address = event.word(lock::ADDRESS) as i64;
    let timeout = event.word(lock::TIMEOUT);
    let limit = (timeout != lock::FOREVER).then(|| i64::try_from(timeout).unwrap_or(i64::MAX));
    // 1 + the constant of a thread, see `ProcessState::name_owner`.
    let owner = event.word(lock::OWNER).checked_sub(1).map(|constant| constant as usize);
    let bytes = recording.interner.class_cost(class) + recording.other_thread_bytes(owner);
    let id = match shape {
        Shape::Enter => JAVA_MONITOR_ENTER,
        Shape::Wait => JAVA_MONITOR_WAIT,
        Shape::Park => THREAD_PARK,
    };
    recording.event_with_constants(
        id,
        place.thread,
        place.trace,
        bytes,
        |recording| (recording.class_key(class), recording.other_thread_key(owner)),
        |e, thread, stack, (class, owner)| {
            e.ticks(start).ticks(took).key(thread).key(stack).key(class);
            match shape {
                Shape::Enter => e.key(owner),
                // In ms like the JDK's, rounded up so that a short timeout is not 0.
                Shape::Wait => e
                    .key(0)
                    .long(limit.map_or(0, |ns| (ns as u64).div_ceil(1_000_000) as i64))
                    .boolean(kind & lock::TIMED_OUT != 0),
                // The JDK's value for none.
                Shape::Park => e.long(limit.unwrap_or(i64::MIN)).long(i64::MIN),
            };
            e.long(address);
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn futexes_are_classified_by_their_waiter() {
        let table = [
            (
                &["std::sys::sync::mutex::futex::Mutex::lock_contended", "main"][..],
                "std::sync::Mutex",
                Shape::Enter,
            ),
            (
                &[
                    "std::sys::pal::unix::futex::futex_wait",
                    "<std::sys::sync::mutex::futex::Mutex>::lock_contended",
                ],
                "std::sync::Mutex",
                Shape::Enter,
            ),
            (&["std::thread::park", "main"], "std::thread", Shape::Park),
            (&["parking_lot::raw_mutex::RawMutex::lock_slow"], "parking_lot::Mutex", Shape::Enter),
            (&["syscall", "own_wait", "main"], "futex", Shape::Park),
            (&["std::__atomic_base<int>::wait(int, std::memory_order) const"], "std::atomic", Shape::Park),
            (
                &[
                    "std::__atomic_base<int>::wait(int) const",
                    "std::__tree_barrier<std::__empty>::wait() const",
                ],
                "std::barrier",
                Shape::Park,
            ),
            (&[], "futex", Shape::Park),
        ];
        for (names, class, shape) in table {
            assert_eq!(by_function(names.iter().copied()), (class, shape), "{names:?}");
        }
    }
}
