//! The resources used in each span, by the program's own clocks, which are read at every change of the
//! innermost span.

use std::alloc::{GlobalAlloc, System};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use flightline_context::{Entered, Span};
use flightline_tests::span_truth::{METRICS, NAMES, TRACES};
use flightline_tests::truth;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The summed figures, as [`METRICS`] names them.
#[derive(Clone, Copy)]
pub enum Metric {
    Count,
    Cpu,
    Wall,
    Off,
    Queued,
    Bytes,
    Lock,
}

/// By name and trace.
static SUMS: [[[AtomicU64; METRICS.len()]; TRACES]; NAMES.len()] =
    [const { [const { [const { AtomicU64::new(0) }; METRICS.len()] }; TRACES] }; NAMES.len()];

type Place = (usize, usize);

fn put((name, trace): Place, metric: Metric, value: u64) {
    SUMS[name][trace][metric as usize].fetch_add(value, Relaxed);
}

/// A thread's clocks, ns.
#[derive(Clone, Copy)]
struct Clocks {
    cpu: u64,
    wall: u64,
    /// Runnable, but without a processor.
    queued: u64,
}

struct Account {
    schedstat: File,
    last: Clocks,
    /// Spans that are active, innermost last.
    active: [Place; 16],
    depth: usize,
}

thread_local! {
    static ACCOUNT: RefCell<Option<Account>> = const { RefCell::new(None) };
    // Separate, because the allocator reads it.
    static INNERMOST: Cell<Option<Place>> = const { Cell::new(None) };
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a local of the right type.
    unsafe { libc::clock_gettime(id, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64
}

pub fn cpu_ns() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

impl Clocks {
    fn read(schedstat: &File) -> Clocks {
        // Reading the account takes longest.
        let (cpu, wall) = (cpu_ns(), clock(libc::CLOCK_MONOTONIC));
        let mut text = [0; 96];
        let len = schedstat.read_at(&mut text, 0).expect("this thread's schedstat");
        let text = std::str::from_utf8(&text[..len]).expect("numbers");
        let queued = text.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("three numbers");
        Clocks { cpu, wall, queued }
    }
}

/// Starts the thread's account.
pub fn begin_thread() {
    let schedstat = File::open("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    let last = Clocks::read(&schedstat);
    let account = Account { schedstat, last, active: [(0, 0); 16], depth: 0 };
    ACCOUNT.with(|of| *of.borrow_mut() = Some(account));
}

/// Adds the resources used since the last change to the span that was innermost.
fn change(next: impl FnOnce(&mut Account)) {
    ACCOUNT.with(|account| {
        let mut account = account.borrow_mut();
        // Tasks may be dropped by the thread that drops the runtime, which has no account.
        let Some(account) = account.as_mut() else { return };
        let now = Clocks::read(&account.schedstat);
        if let Some(place) = account.innermost() {
            let of = |read: fn(&Clocks) -> u64| read(&now) - read(&account.last);
            let (cpu, wall, queued) = (of(|c| c.cpu), of(|c| c.wall), of(|c| c.queued));
            put(place, Metric::Cpu, cpu);
            put(place, Metric::Wall, wall);
            put(place, Metric::Off, wall.saturating_sub(cpu));
            put(place, Metric::Queued, queued);
        }
        account.last = now;
        next(account);
        INNERMOST.set(account.innermost());
    });
}

impl Account {
    fn innermost(&self) -> Option<Place> {
        self.depth.checked_sub(1).map(|at| self.active[at])
    }
}

fn enter(place: Place) {
    change(|account| {
        account.active[account.depth] = place;
        account.depth += 1;
    });
}

fn exit() {
    change(|account| account.depth -= 1);
}

/// Adds to the innermost span of this thread.
pub fn add(metric: Metric, value: u64) {
    if let Some(place) = INNERMOST.get() {
        put(place, metric, value);
    }
}

/// Writes the ground truth.
pub fn tell(names: &[&str]) {
    for (name, traces) in names.iter().zip(&SUMS) {
        for (trace, sums) in traces.iter().enumerate() {
            for (metric, sum) in METRICS.iter().zip(sums) {
                truth::tell("count", &format!("{name} {trace} {metric}"), sum.load(Relaxed));
            }
        }
    }
}

fn number(name: &str) -> usize {
    NAMES.iter().position(|known| *known == name).expect("a name of the list")
}

/// A span of our own API that is entered.
pub struct Known<'a>(Option<Entered<'a>>);

impl<'a> Known<'a> {
    pub fn enter(span: &'a Span, name: &str, trace: usize) -> Known<'a> {
        let entered = span.enter();
        enter((number(name), trace));
        add(Metric::Count, 1);
        Known(Some(entered))
    }
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        drop(self.0.take());
        exit();
    }
}

/// Does the same for spans of `tracing`. Their trace is that of the enclosing span, or determined by their
/// tenant and name.
pub struct Layer;

struct Of(Place);

struct Tenant(Option<usize>, &'static str);

impl Visit for Tenant {
    fn record_str(&mut self, _: &Field, value: &str) {
        use flightline_tests::span_truth::{endpoint, tenant};
        self.0 = (0..TRACES).find(|trace| tenant(*trace) == value && endpoint(*trace) == self.1);
    }
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Layer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let meta: &'static Metadata<'static> = attributes.metadata();
        let span = context.span(id).expect("it is new");
        let around = span.parent().and_then(|parent| parent.extensions().get::<Of>().map(|of| of.0.1));
        let mut tenant = Tenant(around, meta.name());
        attributes.record(&mut tenant);
        let place = (number(meta.name()), tenant.0.expect("a trace"));
        put(place, Metric::Count, 1);
        span.extensions_mut().insert(Of(place));
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).expect("it is there");
        let place = span.extensions().get::<Of>().expect("ours").0;
        enter(place);
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        exit();
    }
}

/// Counts the allocated bytes.
pub struct Counting;

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        add(Metric::Bytes, layout.size() as u64);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: std::alloc::Layout) -> *mut u8 {
        add(Metric::Bytes, layout.size() as u64);
        // SAFETY: passed on.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: std::alloc::Layout, size: usize) -> *mut u8 {
        // Reallocation to another size counts as an allocation.
        add(Metric::Bytes, size as u64);
        // SAFETY: passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}
