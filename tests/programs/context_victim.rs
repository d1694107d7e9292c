//! Enters and leaves spans whose parts are all derived from one number, so that an observer can check at any
//! moment whether they belong together.
//!
//! * `context_victim step`: prints the address of the thread's variable, then loops for ever.
//! * `context_victim signals ROUNDS`: checks in a handler of a 10 kHz timer; prints rounds, checks, checks
//!   within a span, failed checks, and the time in µs.
//! * `context_victim functions ROUNDS`: two spans a round, function `in_span_K` only within spans of trace K.
//! * `context_victim threads COUNT ROUNDS`: runs COUNT threads at a time, each with spans of its own; prints
//!   the number of spans.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU64};
use std::thread;
use std::time::Instant;

use flightline_context::record::{OwnedRecord, Record, SIDE_CAR_BEFORE};
use flightline_context::{Span, SpanContext, enter_context, label, own_slot};
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

/// The states in [`flightline_tests::contexts::ROUND`].
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

/// The state of the thread that owns the slot at `slot`; `None` if its parts do not belong together.
fn look(slot: *const AtomicPtr<u8>) -> Option<State> {
    // SAFETY: a variable of this thread, and its target.
    unsafe {
        let record = (*slot).load(Relaxed);
        if record.is_null() {
            return state(None, |_| [0; 8]);
        }
        let held: [u8; size_of::<OwnedRecord>()] = std::ptr::read(record.sub(SIDE_CAR_BEFORE).cast());
        // Leaving this state restores the previous one.
        state(Some(&held), |at| (*(at as *const Record)).span_id)
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
    // SAFETY: plain numbers and a handler; the timer's signal goes to this thread alone.
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

/// A function for each trace, which stays within it.
macro_rules! in_spans {
    ($($name:ident $number:literal),*) => {
        $(
            #[inline(never)]
            #[unsafe(no_mangle)]
            extern "C" fn $name() {
                work($number);
                black_box(());
            }
        )*
        const IN_SPANS: [extern "C" fn(); 16] = [$($name),*];
    };
}

in_spans!(
    in_span_0 0, in_span_1 1, in_span_2 2, in_span_3 3, in_span_4 4, in_span_5 5, in_span_6 6, in_span_7 7, in_span_8 8,
    in_span_9 9, in_span_10 10, in_span_11 11, in_span_12 12, in_span_13 13, in_span_14 14, in_span_15 15
);

#[inline(always)]
fn work(seed: u64) {
    for i in 0..200 {
        black_box(seed + i);
    }
}

/// A span with another one within it; the trace's number is in all bytes of its id and in the id of its caller.
fn two_spans(round: u64) {
    let [outer, inner] = [round % 16, (round * 7 + round / 16) % 16];
    let begin = |trace: u64| {
        let trace_id = [trace as u8 + 1; 16];
        Span::child_of(
            &SpanContext { trace_id, span_id: trace + 1, flags: 1, ..SpanContext::default() },
            "span",
        )
    };
    let outer_span = begin(outer);
    let entered = outer_span.enter();
    IN_SPANS[outer as usize]();
    {
        let inner_span = begin(inner);
        let _entered = inner_span.enter();
        IN_SPANS[inner as usize]();
    }
    IN_SPANS[outer as usize]();
    drop(entered);
}

/// Runs the program.
pub fn main() {
    let arguments: Vec<String> = crate::arguments_text().skip(1).collect();
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
            let from = Instant::now();
            (0..number(1)).for_each(|_| round());
            let took = from.elapsed().as_micros();
            let [looks, met, wrong] = [&LOOKS, &MET, &WRONG].map(|count| count.load(Relaxed));
            println!("{} {looks} {met} {wrong} {took}", number(1));
        }
        "functions" => (0..number(1)).for_each(two_spans),
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
                // All threads are in their spans at the same time.
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
        other => panic!("{other}: step, signals, functions or threads"),
    }
}
