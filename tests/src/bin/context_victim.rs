//! Enters and leaves spans of which every part follows from one number, so that who looks at any moment knows what belongs together.
//!
//! `context_victim step`: prints where the thread's variable is, then goes round for good.
//! `context_victim signals ROUNDS`: looks itself, in a handler of a 10 kHz timer; prints rounds, looks, looks that met a span.
//! `context_victim threads COUNT ROUNDS`: as many threads at a time, each with spans of its own; prints spans entered.

use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU64};
use std::thread;

use flightline_context::record::{Held, SIDE_CAR_BEFORE};
use flightline_context::{SpanContext, enter_context, label, own_slot};
use flightline_tests::contexts::{State, state};

fn context(id: u8) -> SpanContext {
    SpanContext {
        trace_id: [id; 16],
        span_id: u64::from_ne_bytes([id; 8]),
        parent_span_id: u64::from(id) + 1,
        local_root_span_id: u64::from(id) + 2,
        flags: id,
    }
}

/// What [`flightline_tests::contexts::ROUND`] lists.
fn round() {
    let outer = enter_context(&context(1));
    label("k", "1").expect("room");
    label("k", "22").expect("room");
    let inner = enter_context(&context(3));
    let innermost = enter_context(&context(5));
    // Out of order.
    drop(inner);
    drop(innermost);
    drop(outer);
}

static SLOT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static LOOKS: AtomicU64 = AtomicU64::new(0);
static MET: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

/// The state of the thread that owns the slot at `slot`; `None`: what is there does not belong together.
fn look(slot: *const AtomicPtr<u8>) -> Option<State> {
    // SAFETY: a variable of this thread, and what it points at.
    unsafe {
        let record = (*slot).load(Relaxed);
        if record.is_null() {
            return state(None);
        }
        let held: [u8; size_of::<Held>()] = std::ptr::read(record.sub(SIDE_CAR_BEFORE).cast());
        state(Some(&held))
    }
}

extern "C" fn on_timer(_: libc::c_int) {
    let found = look(SLOT.load(Relaxed).cast());
    LOOKS.fetch_add(1, Relaxed);
    MET.fetch_add(found.is_some_and(|state| state.id != 0).into(), Relaxed);
    WRONG.fetch_add(found.is_none().into(), Relaxed);
}

/// 10 kHz for the calling thread.
fn start_timer() {
    // SAFETY: all of it is plain numbers and a handler; the timer's signal goes to this thread alone.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_timer as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGUSR1;
        event.sigev_notify_thread_id = libc::gettid();
        let mut timer = std::mem::zeroed();
        assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0);
        let every = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
        let times = libc::itimerspec { it_interval: every, it_value: every };
        assert_eq!(libc::timer_settime(timer, 0, &times, std::ptr::null_mut()), 0);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| arguments[i].parse::<u64>().expect("a number");
    match arguments[0].as_str() {
        "step" => {
            println!("{:#x}", own_slot() as usize);
            loop {
                round();
            }
        }
        "signals" => {
            SLOT.store(own_slot() as *mut u8, Relaxed);
            start_timer();
            (0..number(1)).for_each(|_| round());
            println!("{} {} {} {}", number(1), LOOKS.load(Relaxed), MET.load(Relaxed), WRONG.load(Relaxed));
        }
        "threads" => {
            let (count, rounds) = (number(1) as usize, number(2));
            let (begun, done) = (Barrier::new(count), Barrier::new(count));
            let (entered, wrong) = (AtomicU64::new(0), AtomicU64::new(0));
            let work = |i: usize| {
                begun.wait();
                let id = (i % 255) as u8 + 1;
                let outer = enter_context(&context(id));
                for _ in 0..rounds {
                    let inner = enter_context(&context(id ^ 0x80 | 1));
                    let found = look(own_slot().cast());
                    wrong.fetch_add((found.map(|state| state.id) != Some(id ^ 0x80 | 1)).into(), Relaxed);
                    drop(inner);
                    let found = look(own_slot().cast());
                    wrong.fetch_add((found.map(|state| state.id) != Some(id)).into(), Relaxed);
                    thread::yield_now();
                }
                entered.fetch_add(rounds + 1, Relaxed);
                // All are in theirs at once.
                done.wait();
                drop(outer);
            };
            thread::scope(|scope| {
                for i in 0..count {
                    let thread = thread::Builder::new().stack_size(64 << 10);
                    let work = &work;
                    thread.spawn_scoped(scope, move || work(i)).expect("a thread");
                }
            });
            println!("{} {}", entered.load(Relaxed), wrong.load(Relaxed));
        }
        other => panic!("{other}: step, signals or threads"),
    }
}
