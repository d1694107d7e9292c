//! Waits in Rust's own locks whose length the program measures.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, RwLock};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 12;
const NAP: Duration = Duration::from_millis(4);

static MUTEX: Mutex<u32> = Mutex::new(0);
static RWLOCK: RwLock<u32> = RwLock::new(0);
static READY: Mutex<bool> = Mutex::new(false);
static CONDVAR: Condvar = Condvar::new();
static HELD: AtomicU32 = AtomicU32::new(0);

fn tell(name: &str, ns: u128) {
    let path = std::env::var_os("TRUTH_FILE").unwrap();
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(format!("function\t{name}\t{ns}\n").as_bytes()).unwrap();
}

fn timed<R>(call: impl FnOnce() -> R) -> (R, u128) {
    let start = Instant::now();
    let r = call();
    (r, start.elapsed().as_nanos())
}

#[inline(never)]
fn mutex_wait() -> u128 {
    let (guard, ns) = timed(|| MUTEX.lock().unwrap());
    black_box(*guard);
    ns
}

#[inline(never)]
fn read_wait() -> u128 {
    let (guard, ns) = timed(|| RWLOCK.read().unwrap());
    black_box(*guard);
    ns
}

#[inline(never)]
fn write_wait() -> u128 {
    let (guard, ns) = timed(|| RWLOCK.write().unwrap());
    black_box(*guard);
    ns
}

#[inline(never)]
fn condvar_wait() -> u128 {
    let mut ready = READY.lock().unwrap();
    let mut all = 0;
    while !*ready {
        let (guard, ns) = timed(|| CONDVAR.wait(ready).unwrap());
        ready = guard;
        all += ns;
    }
    *ready = false;
    all
}

#[inline(never)]
fn park_wait() -> u128 {
    timed(std::thread::park).1
}

/// Waits until the other thread has taken the lock, without a wait of its own that would be recorded.
fn until_held() {
    while HELD.swap(0, Ordering::AcqRel) == 0 {
        std::thread::yield_now();
    }
}

fn round(name: &str, wait: fn() -> u128, other: fn()) {
    let mut ns = 0;
    for _ in 0..ROUNDS {
        let main = std::thread::current();
        let thread = std::thread::spawn(move || {
            other();
            main.unpark();
        });
        until_held();
        ns += wait();
        thread.join().unwrap();
        // The unpark of a round that did not park must not end the next one early.
        std::thread::park_timeout(Duration::ZERO);
    }
    tell(name, ns);
}

fn hold() {
    HELD.store(1, Ordering::Release);
    // Until the main thread sleeps.
    let stat = format!("/proc/self/task/{}/stat", std::process::id());
    while !std::fs::read_to_string(&stat).unwrap().rsplit(')').next().unwrap().starts_with(" S") {
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(NAP);
}

fn main() {
    round("mutex_wait", mutex_wait, || {
        let guard = MUTEX.lock().unwrap();
        hold();
        drop(guard);
    });
    round("read_wait", read_wait, || {
        let guard = RWLOCK.write().unwrap();
        hold();
        drop(guard);
    });
    round("write_wait", write_wait, || {
        let guard = RWLOCK.read().unwrap();
        hold();
        drop(guard);
    });
    round("condvar_wait", condvar_wait, || {
        hold();
        *READY.lock().unwrap() = true;
        CONDVAR.notify_one();
    });
    round("park_wait", park_wait, hold);
}
