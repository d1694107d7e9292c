//! Waits in parking_lot's locks. The program measures them with its own clock and writes their lengths to the
//! file named by `TRUTH_FILE`. A test records it.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, Once, RwLock};

const ROUNDS: usize = 12;
const NAP: Duration = Duration::from_millis(4);

static MUTEX: Mutex<u32> = Mutex::new(0);
static RWLOCK: RwLock<u32> = RwLock::new(0);
static READY: Mutex<bool> = Mutex::new(false);
static CONDVAR: Condvar = Condvar::new();
static ONCE: Mutex<usize> = Mutex::new(0);
static ONCES: [Once; ROUNDS] = [const { Once::new() }; ROUNDS];
static HELD: AtomicBool = AtomicBool::new(false);

fn timed<R>(call: impl FnOnce() -> R) -> (R, u128) {
    let start = Instant::now();
    let r = call();
    (r, start.elapsed().as_nanos())
}

#[inline(never)]
fn mutex_wait() -> u128 {
    let (guard, ns) = timed(|| MUTEX.lock());
    black_box(*guard);
    ns
}

#[inline(never)]
fn read_wait() -> u128 {
    let (guard, ns) = timed(|| RWLOCK.read());
    black_box(*guard);
    ns
}

#[inline(never)]
fn write_wait() -> u128 {
    let (guard, ns) = timed(|| RWLOCK.write());
    black_box(*guard);
    ns
}

#[inline(never)]
fn condvar_wait() -> u128 {
    let mut ready = READY.lock();
    let mut all = 0;
    while !*ready {
        all += timed(|| CONDVAR.wait(&mut ready)).1;
    }
    *ready = false;
    all
}

#[inline(never)]
fn condvar_late() -> u128 {
    let mut ready = READY.lock();
    let (result, ns) = timed(|| CONDVAR.wait_for(&mut ready, 10 * NAP));
    assert!(result.timed_out());
    ns
}

fn once() -> &'static Once {
    &ONCES[*ONCE.lock()]
}

#[inline(never)]
fn once_wait() -> u128 {
    let once = once();
    let ns = timed(|| once.call_once(|| unreachable!("another thread is at it"))).1;
    *ONCE.lock() += 1;
    ns
}

fn hold() {
    HELD.store(true, Ordering::Release);
    // Wait until the main thread sleeps.
    let stat = format!("/proc/self/task/{}/stat", std::process::id());
    while !std::fs::read_to_string(&stat).unwrap().rsplit(')').next().unwrap().starts_with(" S") {
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(NAP);
}

fn round(name: &str, wait: fn() -> u128, other: fn()) {
    let mut ns = 0;
    for _ in 0..ROUNDS {
        HELD.store(false, Ordering::Release);
        let thread = std::thread::spawn(other);
        while !HELD.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        ns += wait();
        thread.join().unwrap();
    }
    let Some(path) = std::env::var_os("TRUTH_FILE") else { return };
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(format!("function\t{name}\t{ns}\n").as_bytes()).unwrap();
}

fn main() {
    round("mutex_wait", mutex_wait, || {
        let guard = MUTEX.lock();
        hold();
        drop(guard);
    });
    round("read_wait", read_wait, || {
        let guard = RWLOCK.write();
        hold();
        drop(guard);
    });
    round("write_wait", write_wait, || {
        let guard = RWLOCK.read();
        hold();
        drop(guard);
    });
    round("condvar_wait", condvar_wait, || {
        hold();
        *READY.lock() = true;
        CONDVAR.notify_one();
    });
    round("condvar_late", condvar_late, || HELD.store(true, Ordering::Release));
    round("once_wait", once_wait, || once().call_once(hold));
}
