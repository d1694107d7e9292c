//! A lock for the short moments in which two threads may change the same data.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::os::{self, fork_token};

/// The lock. It is held for a few instructions only, and handlers never wait for it.
///
/// The lock word is the owner's fork token. A child that copied the memory while a thread of its parent held the lock sees a token
/// other than its own and takes the lock over, because that thread does not exist in the child.
pub struct Spin(AtomicU32);

impl Spin {
    /// Unlocked.
    pub const fn new() -> Self {
        Spin(AtomicU32::new(0))
    }

    /// Runs `f` with the lock held.
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        self.lock();
        let r = f();
        self.unlock();
        r
    }

    /// Waits for the lock.
    pub fn lock(&self) {
        while !self.try_lock() {
            // SAFETY: no pointers.
            let _ = unsafe { os::syscall(libc::SYS_sched_yield, [0; 6]) };
        }
    }

    /// Takes the lock if no thread of this process holds it. Async-signal-safe.
    pub fn try_lock(&self) -> bool {
        let own = fork_token::own();
        let held = self.0.load(Relaxed);
        held != own && self.0.compare_exchange(held, own, Acquire, Relaxed).is_ok()
    }

    /// Releases the lock.
    pub fn unlock(&self) {
        self.0.store(0, Release);
    }

    /// Returns true while a thread of this process holds the lock.
    pub fn is_locked(&self) -> bool {
        self.0.load(Acquire) == fork_token::own()
    }
}

impl Default for Spin {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forked_child_takes_over_its_parents_lock() {
        let lock = Spin::new();
        lock.lock();
        assert!(lock.is_locked() && !lock.try_lock());
        // A raw clone runs no fork handler.
        // SAFETY: the child only makes system calls and ends.
        let child = unsafe { os::syscall(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0, 0, 0]) }.unwrap();
        if child == 0 {
            let free = !lock.is_locked() && lock.try_lock() && lock.is_locked() && !lock.try_lock();
            lock.unlock();
            // SAFETY: ends the child.
            let _ = unsafe { os::syscall(libc::SYS_exit_group, [usize::from(!free), 0, 0, 0, 0, 0]) };
        }
        let mut status = 0i32;
        let args = [child, &raw mut status as usize, 0, 0, 0, 0];
        // SAFETY: the kernel writes the local.
        unsafe { os::syscall(libc::SYS_wait4, args) }.unwrap();
        assert_eq!(status, 0);
        assert!(lock.is_locked());
        lock.unlock();
        assert!(lock.try_lock());
    }
}
