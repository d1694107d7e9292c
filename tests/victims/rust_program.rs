//! Generic code, closures, trait objects, threads and a panic that is caught. usage: rust_program SECONDS
//! (of CPU time of each thread, so that it does the same work on a busy machine)
use std::collections::HashMap;

#[repr(C)]
struct Timespec {
    sec: i64,
    nsec: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// CPU seconds of the calling thread.
fn cpu_seconds() -> f64 {
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut time = Timespec { sec: 0, nsec: 0 };
    // SAFETY: `time` is valid for writes, the clock is one of Linux.
    assert_eq!(unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    time.sec as f64 + time.nsec as f64 * 1e-9
}

trait Work: Send {
    fn run(&mut self, n: u64) -> u64;
}

struct Counter<K>(HashMap<K, u64>);

impl Work for Counter<String> {
    #[inline(never)]
    fn run(&mut self, n: u64) -> u64 {
        for i in 0..2000 {
            *self.0.entry(format!("key-{}", (n + i * 7919) % 5000)).or_default() += 1;
        }
        self.0.len() as u64
    }
}

struct Sorter(Vec<u64>);

impl Work for Sorter {
    #[inline(never)]
    fn run(&mut self, n: u64) -> u64 {
        let mut x: u64 = n | 1;
        for v in &mut self.0 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            *v = x;
        }
        self.0.sort_unstable();
        self.0[self.0.len() / 2]
    }
}

#[inline(never)]
fn drive(work: &mut dyn Work, end: f64) -> u64 {
    let mut sum: u64 = 0;
    while cpu_seconds() < end {
        sum ^= (0..4).map(|i| work.run(sum.wrapping_add(i))).fold(0, u64::wrapping_add);
    }
    sum
}

fn main() {
    let end: f64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1.0);
    std::panic::set_hook(Box::new(|_| {}));
    let threads: Vec<_> = (0..2)
        .map(|i| {
            std::thread::Builder::new()
                .name(format!("rust-{i}"))
                .spawn(move || {
                    let mut work: Box<dyn Work> = if i == 0 {
                        Box::new(Counter::<String>(HashMap::new()))
                    } else {
                        Box::new(Sorter(vec![0; 4000]))
                    };
                    drive(work.as_mut(), end)
                })
                .unwrap()
        })
        .collect();
    let caught = std::panic::catch_unwind(|| panic!("caught")).is_err();
    let sum: u64 = threads.into_iter().map(|t| t.join().unwrap()).fold(0, u64::wrapping_add);
    println!("{caught} {}", sum != 0);
}
