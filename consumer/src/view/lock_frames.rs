//! The functions that implement locks, so that a wait is attributed to the code that uses the lock.

/// Prefixes of native functions that implement or wait for a lock: Rust's std, `parking_lot`, libstdc++
/// and libc++, glibc and musl, the kernel, HotSpot. Leading underscores and a return type are removed
/// before the comparison.
const NATIVE: &[&str] = &[
    // Rust's std: its system-specific modules, and the locks themselves.
    "std::sys::",
    "std::sync::",
    "std::thread::park",
    "std::thread::functions::park",
    "std::thread::thread::Thread::park",
    "parking_lot::",
    "parking_lot_core::",
    "lock_api::",
    // C++ standard library.
    "std::mutex::",
    "std::timed_mutex::",
    "std::recursive_mutex::",
    "std::recursive_timed_mutex::",
    "std::shared_mutex::",
    "std::shared_timed_mutex::",
    "std::lock_guard<",
    "std::unique_lock<",
    "std::shared_lock<",
    "std::scoped_lock<",
    "std::condition_variable::",
    "std::condition_variable_any::",
    "std::lock<",
    "std::__mutex_base::",
    "std::__recursive_mutex_base::",
    "std::__shared_mutex_base::",
    "std::__shared_mutex_pthread::",
    "std::__shared_mutex_cv::",
    "std::__shared_timed_mutex_base::",
    "std::__condvar::",
    "gthread_",
    // C library, and interposers of its functions.
    "pthread_mutex_",
    "pthread_rwlock_",
    "pthread_cond_",
    "pthread_spin_",
    "pthread_barrier_",
    "sem_wait",
    "sem_timedwait",
    "sem_clockwait",
    "new_sem_",
    "lll_lock_",
    "timedwait",
    "futex_",
    // HotSpot.
    "ObjectMonitor::",
    "ObjectSynchronizer::",
    "Parker::",
    "PlatformEvent::",
    "PlatformMonitor::",
    "PlatformMutex::",
    "os::PlatformEvent::",
    "os::PlatformMonitor::",
    "os::PlatformMutex::",
    "Unsafe_Park",
];

/// Java methods that wait for a lock, by class.
const JAVA: &[(&str, &str)] = &[
    ("java.lang.Object", "wait"),
    ("java.lang.VirtualThread", "park"),
    ("jdk.internal.misc.Unsafe", "park"),
    ("sun.misc.Unsafe", "park"),
];

/// Returns true if the native function `name`, demangled, is part of a lock's implementation.
pub(super) fn is_native_lock(name: &str) -> bool {
    let name = name.trim_start_matches(['<', '&']);
    let name = ["void ", "bool "].iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name);
    let name = name.trim_start_matches('_');
    // glibc's internal names: `__GI___pthread_mutex_lock`.
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    // The inline namespaces of libc++ and libstdc++: `std::__1::mutex::lock`.
    let inner = ["std::__1::", "std::_V2::"].iter().find_map(|space| name.strip_prefix(space));
    match inner {
        Some(inner) => {
            NATIVE.iter().filter_map(|start| start.strip_prefix("std::")).any(|s| inner.starts_with(s))
        }
        None => NATIVE.iter().any(|start| name.starts_with(start)),
    }
}

/// Returns true if the Java method `name` of `class` is part of a lock's implementation.
pub(super) fn is_java_lock(class: &str, name: &str) -> bool {
    class.starts_with("java.util.concurrent.locks.")
        || JAVA.iter().any(|&(of, method)| class == of && name.starts_with(method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_functions_are_recognized() {
        for name in [
            "std::sys::pal::unix::futex::futex_wait",
            "<std::sys::sync::mutex::futex::Mutex>::lock_contended",
            "std::sync::poison::mutex::Mutex<T>::lock",
            "<std::sync::poison::condvar::Condvar>::wait",
            "<parking_lot::raw_mutex::RawMutex>::lock_slow",
            "lock_api::mutex::Mutex<R, T>::lock",
            "std::mutex::lock()",
            "std::__1::mutex::lock()",
            "std::_V2::condition_variable_any::wait(std::mutex&)",
            "void std::condition_variable::wait<main::{lambda()#1}>(std::unique_lock<std::mutex>&)",
            "__gthread_mutex_lock(pthread_mutex_t*)",
            "___pthread_mutex_lock",
            "__GI___pthread_cond_wait",
            "pthread_mutex_lock@@GLIBC_2.2.5",
            "pthread_mutex_lock_hook",
            "__lll_lock_wait",
            "__futex_abstimed_wait_common64",
            "ObjectMonitor::enter(JavaThread*)",
        ] {
            assert!(is_native_lock(name), "{name}");
        }
        for name in [
            "m::work_under_lock",
            "std::thread::Builder::spawn_unchecked_",
            "std::vector<int>::push_back(int)",
            "std::__1::vector<int>::push_back(int)",
            "pthread_create",
            "start_thread",
            "mutex_user",
            "ProcSleep",
            "",
        ] {
            assert!(!is_native_lock(name), "{name}");
        }
        assert!(is_java_lock("java.util.concurrent.locks.ReentrantLock$Sync", "lock"));
        assert!(
            is_java_lock("java.lang.Object", "wait0") && is_java_lock("jdk.internal.misc.Unsafe", "park")
        );
        assert!(!is_java_lock("java.lang.Object", "hashCode") && !is_java_lock("Work", "wait"));
    }
}
