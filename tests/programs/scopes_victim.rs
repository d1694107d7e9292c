//! A program whose threads work at task attempts, several at once. Functions are named after the task that
//! calls them. Usage: `scopes_victim ROUNDS`. Prints the number of attempts, and the time that a scope takes.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flightline_context::{LEFT_OUT, Scope, Span, SpanContext, enter_context, scope};

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a local of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Computes, allocates and waits.
fn work(ms: u64) {
    let end = cpu_time() + Duration::from_millis(ms);
    while cpu_time() < end {
        for i in 0..2000u64 {
            black_box(i * i);
        }
    }
    for i in 0..16 {
        // SAFETY: a block of our own.
        unsafe { libc::free(black_box(libc::malloc(4096 + i))) };
    }
    std::thread::sleep(Duration::from_millis(4));
}

macro_rules! functions {
    ($($name:ident)*) => { $(
        #[inline(never)]
        #[unsafe(no_mangle)]
        extern "C" fn $name(ms: u64) {
            work(ms);
            // Identical functions would be merged.
            black_box(stringify!($name));
        }
    )* };
}
functions!(in_task_0 in_task_1 in_task_2 in_task_3 in_step_0 in_step_1 in_step_2 in_step_3 in_no_task);

const TASKS: [extern "C" fn(u64); 4] = [in_task_0, in_task_1, in_task_2, in_task_3];
const STEPS: [extern "C" fn(u64); 4] = [in_step_0, in_step_1, in_step_2, in_step_3];

/// An attempt: on this thread, partly in a step of its own and in another tracer's span, and on a thread that
/// it starts.
fn attempt(task: usize, number: usize) {
    let attempt = scope([
        ("task", &format_args!("task_{task}") as &dyn std::fmt::Display),
        ("attempt", &number),
        ("only", &["zero", "one", "two", "three"][task]),
    ]);
    TASKS[task](3);
    let shared: &Scope = &attempt;
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let _inside = shared.enter();
            TASKS[task](3);
        });
        {
            let _step = scope([("step", "sort")]);
            STEPS[task](2);
            let foreign = SpanContext { trace_id: [7; 16], span_id: 7, flags: 1, ..SpanContext::default() };
            let _foreign = enter_context(&foreign);
            STEPS[task](1);
        }
        let span = Span::new("spill");
        let _inside = span.enter();
        TASKS[task](1);
    });
}

/// Runs the program.
pub fn main() {
    let rounds: usize = crate::arguments_text().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10);
    let job = Scope::named("job", [("dag", "dag_7")]);
    let next = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= rounds * TASKS.len() {
                        break;
                    }
                    {
                        let _job = job.enter();
                        attempt(number % TASKS.len(), number / TASKS.len());
                    }
                    in_no_task(1);
                }
            });
        }
    });
    drop(job);
    // More labels than a scope holds: the omitted ones are counted next to the others.
    let many = scope((0..10_000).map(|i| (format!("key_{i}"), "v".repeat(40))));
    in_no_task(20);
    println!("attempts {}", rounds * TASKS.len());
    println!("{LEFT_OUT} {}", many.left_out());
}
