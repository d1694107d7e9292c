//! A load of nested spans that measures its work in each: requests of async tasks that move between threads
//! (`tracing`), and jobs of plain threads (our own API), both with waits, locks and allocations.
//!
//! `span_load SECONDS`. Writes `SPAN TRACE METRIC` to TRUTH_FILE (see `flightline_tests::span_truth`): trace
//! `k` has ids of 16 bytes `k + 1`, requests of one endpoint and one tenant.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use flightline_context::{Span, SpanContext, enter_context, label};
use flightline_tests::span_truth::{JOBS, NAMES, TRACES, endpoint, tenant};
use tracing::{Instrument, info_span};
use tracing_subscriber::prelude::*;

mod ledger;

use ledger::{Counting, Known, Metric, add, begin_thread};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// xorshift: lengths that follow no pattern, as a sampling period that is a multiple of it would hit the same places.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(n)) >> 64) as u64
    }

    /// From half to one and a half of it.
    fn about(&mut self, n: u64) -> u64 {
        n / 2 + self.below(n)
    }
}

/// Uses about this many µs of CPU time.
#[inline(never)]
fn burn(random: &mut Random, us: u64) {
    let end = ledger::cpu_ns() + random.about(us * 1000);
    let mut x = end | 1;
    while ledger::cpu_ns() < end {
        for _ in 0..2000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        std::hint::black_box(x);
    }
}

/// Allocates about this many blocks of about 8 KiB.
#[inline(never)]
fn allocate(random: &mut Random, blocks: u64) {
    for _ in 0..random.about(blocks) {
        let len = random.about(8 << 10) as usize;
        drop(std::hint::black_box(Vec::<u8>::with_capacity(len)));
    }
}

/// The thread waits, and all its tasks with it.
fn nap(random: &mut Random, us: u64) {
    std::thread::sleep(Duration::from_micros(random.about(us)));
}

/// Acquires a lock that others hold for about 3 ms, and holds it as long.
fn contend(random: &mut Random, lock: &Mutex<()>) {
    let free = lock.try_lock();
    let held = free.unwrap_or_else(|_| {
        let from = Instant::now();
        let held = lock.lock().unwrap();
        add(Metric::Lock, from.elapsed().as_nanos() as u64);
        held
    });
    nap(random, 3000);
    drop(held);
}

/// An incoming request: a span of another process.
fn caller(trace: usize) -> SpanContext {
    let trace_id = [trace as u8 + 1; 16];
    SpanContext { trace_id, span_id: 0x1000 + trace as u64, flags: 1, ..SpanContext::default() }
}

static LOCKS: [Mutex<()>; 2] = [const { Mutex::new(()) }; 2];

async fn request(trace: usize, random: &mut Random) {
    burn(random, 1500);
    async {
        burn(random, 2500);
        tokio::time::sleep(Duration::from_micros(random.about(2000))).await;
        burn(random, 1500);
        tokio::task::yield_now().await;
        allocate(random, 12);
        burn(random, 800);
    }
    .instrument(info_span!("query"))
    .await;
    allocate(random, 8);
    burn(random, 1200);
    info_span!("render").in_scope(|| {
        allocate(random, 30);
        burn(random, 4000);
    });
    tokio::task::yield_now().await;
    info_span!("commit").in_scope(|| {
        burn(random, 1000);
        contend(random, &LOCKS[0]);
        nap(random, 2000 + 1000 * trace as u64);
    });
    burn(random, 700);
}

async fn client(trace: usize, until: Instant) {
    let mut random = Random(0x9e37_79b9 + trace as u64);
    while Instant::now() < until {
        let span = {
            let _received = enter_context(&caller(trace));
            let tenant = tenant(trace);
            match endpoint(trace) {
                "cart" => info_span!("cart", tenant),
                _ => info_span!("order", tenant),
            }
        };
        request(trace, &mut random).instrument(span).await;
        // In no span.
        tokio::task::yield_now().await;
    }
}

/// A job of nested spans on one thread.
fn job(trace: usize, random: &mut Random) {
    let batch = Span::child_of(&caller(trace), "batch");
    let _batch = Known::enter(&batch, "batch", trace);
    label("tenant", tenant(trace)).expect("room for a label");
    burn(random, 1500);
    for _ in 0..2 {
        let parse = Span::new("parse");
        let _parse = Known::enter(&parse, "parse", trace);
        burn(random, 2000);
        allocate(random, 16);
        let index = Span::new("index");
        let _index = Known::enter(&index, "index", trace);
        burn(random, 1500);
        contend(random, &LOCKS[1]);
    }
    nap(random, 8000);
    burn(random, 1000);
}

fn worker(trace: usize, until: Instant) {
    begin_thread();
    let mut random = Random(0xb529_7a4d + trace as u64);
    while Instant::now() < until {
        job(trace, &mut random);
        burn(&mut random, 500);
    }
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(2.0);
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    // The ledger's layer is inside ours: its own clock readings are in the span for both.
    let layers = flightline_tracing::layer().with_labels(["tenant"]);
    tracing_subscriber::registry().with(layers).with(ledger::Layer).init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_time()
        .on_thread_start(begin_thread)
        .build()
        .expect("a runtime");
    std::thread::scope(|scope| {
        for trace in (0..TRACES).filter(|trace| endpoint(*trace) == JOBS) {
            scope.spawn(move || worker(trace, until));
        }
        let clients = (0..TRACES).filter(|trace| endpoint(*trace) != JOBS);
        let tasks: Vec<_> = clients.map(|trace| runtime.spawn(client(trace, until))).collect();
        for task in tasks {
            runtime.block_on(task).expect("no task fails");
        }
    });
    drop(runtime);
    ledger::tell(&NAMES);
}
