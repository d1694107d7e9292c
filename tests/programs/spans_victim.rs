//! A program with nested spans that knows its work in each. Functions are named after the span that calls
//! them, and spans are printed as `name id parent`. Usage: `spans_victim ROUNDS [THREADS]`, or `spans_victim
//! open MS`, which works in spans for that time and is then killed.

use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

use flightline_context::{Span, SpanContext, label};

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a local of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn burn(ms: u64) {
    let end = cpu_time() + Duration::from_millis(ms);
    while cpu_time() < end {
        for i in 0..2000u64 {
            black_box(i * i);
        }
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn in_outer() {
    burn(3);
    black_box(());
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn in_inner(lock: &Mutex<()>) {
    burn(3);
    // Allocated by malloc, and through the C library's interposed functions.
    for i in 0..64 {
        // SAFETY: a block of our own.
        unsafe { libc::free(black_box(libc::malloc(4096 + i))) };
    }
    std::thread::sleep(Duration::from_millis(12));
    let (mut from, mut to) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let held = lock.lock().unwrap();
        let waits = scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(3));
            drop(to.write_all(b"x"));
        });
        from.read_exact(&mut [0]).unwrap();
        drop(held);
        waits.join().unwrap();
    });
    black_box(());
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn in_none() {
    burn(2);
    black_box(());
}

fn told(name: &str, context: &SpanContext) {
    let line = format!("{name} {} {}\n", context.span_id as i64, context.parent_span_id as i64);
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

fn work(rounds: usize, lock: &Mutex<()>) {
    for round in 0..rounds {
        let outer = Span::root("outer");
        let entered = outer.enter();
        label("tenant", &format!("t{}", round % 3)).unwrap();
        in_outer();
        {
            let inner = Span::new("inner");
            let _entered = inner.enter();
            label("path", "/a \"b\"").unwrap();
            in_inner(lock);
            told("inner", inner.context());
        }
        in_outer();
        drop(entered);
        told("outer", outer.context());
        in_none();
        let idle = Span::root("idle");
        drop(idle.enter());
        told("idle", idle.context());
    }
}

/// Waits within spans until it is killed.
fn open(ms: u64) {
    let outer = Span::root("outer");
    let _outer = outer.enter();
    label("tenant", "t").unwrap();
    told("outer", outer.context());
    let done = Span::new("done");
    let entered = done.enter();
    burn(100);
    drop(entered);
    drop(done);
    let inner = Span::new("inner");
    let _inner = inner.enter();
    told("inner", inner.context());
    burn(ms);
    // SAFETY: no pointers.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Runs the program.
pub fn main() {
    let mut arguments = crate::arguments_text().skip(1);
    if arguments.next().is_some_and(|first| first == "open") {
        return open(arguments.next().and_then(|ms| ms.parse().ok()).unwrap());
    }
    let number = |i: usize| crate::arguments_text().nth(i).and_then(|n| n.parse().ok());
    let (rounds, threads) = (number(1).unwrap_or(10), number(2).unwrap_or(2));
    let locks: Vec<Mutex<()>> = (0..threads).map(|_| Mutex::new(())).collect();
    std::thread::scope(|scope| {
        locks.iter().for_each(|lock| drop(scope.spawn(move || work(rounds, lock))));
    });
    // A forked child starts without a span.
    let outer = Span::root("forking");
    let entered = outer.enter();
    // SAFETY: the only thread by now; the child ends by _exit.
    match unsafe { libc::fork() } {
        0 => {
            let clear = flightline_context::current().is_none();
            in_none();
            // SAFETY: nothing is left to do.
            unsafe { libc::_exit(i32::from(!clear)) };
        }
        child => {
            let mut status = 0;
            // SAFETY: a local of the right type.
            unsafe { libc::waitpid(child, &mut status, 0) };
            println!("child {status}");
        }
    }
    drop(entered);
}
