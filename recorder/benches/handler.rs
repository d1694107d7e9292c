//! Measures ns per walk and per handler call, 40 frames deep, warm and cold.
//!
//! `cargo bench -p flightline-recorder --bench handler` measures code without frame pointers, and with
//! `RUSTFLAGS="-C force-frame-pointers=yes"` code with them. Cold: 64 MiB are touched between two runs. The
//! results are medians (and tenth percentiles, for busy machines) of single runs (cold) or of batches (warm).

#[path = "../tests/in_process/mod.rs"]
mod in_process;

use std::cell::Cell;
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use flightline_in_signal::layout::{MODULE_TABLES, ModuleEntry, ModuleTable, engine, slot_state};
use flightline_in_signal::state::cookie::{Cookie, FROM_PERF, SIGTRAP};
use flightline_in_signal::state::{self, ProcState, slots};
use flightline_in_signal::unwind::interrupted::Regs;
use flightline_in_signal::unwind::modules::Modules;
use flightline_in_signal::unwind::rule_cache::{RuleCache, Tag};
use flightline_in_signal::unwind::stack::Local;
use flightline_in_signal::unwind::walk::{Lookup, Walked, prefetch, walk};
use flightline_in_signal::{context, handler};

macro_rules! chain {
    ($f:ident $next:ident $($rest:ident)*) => {
        #[inline(never)]
        fn $f(x: u64) -> u64 {
            let mut local = [x; 5];
            black_box(&mut local);
            let y = $next(local[0] + 1);
            black_box(&local);
            y ^ local[1]
        }
        chain!($next $($rest)*);
    };
    ($f:ident) => {
        #[inline(never)]
        fn $f(x: u64) -> u64 {
            // SAFETY: the signal is caught by `measure`.
            unsafe { libc::raise(libc::SIGUSR1) };
            black_box(x)
        }
    };
}

chain!(a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 d0 d1 d2 d3);

fn evict() {
    use std::cell::RefCell;
    thread_local!(static BIG: RefCell<Vec<u64>> = RefCell::new(vec![1; 8 << 20]));
    BIG.with_borrow_mut(|big| {
        for word in big.iter_mut().step_by(8) {
            *word = word.wrapping_mul(3);
        }
    });
}

/// Returns median and tenth percentile.
fn middle(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() / 10])
}

fn time(batch: u32, cold: bool, f: impl FnMut()) -> (f64, f64) {
    time_after(batch, cold, || (), f)
}

/// Measures `f`. `prepare` runs before each batch and is not measured.
fn time_after(batch: u32, cold: bool, prepare: impl Fn(), mut f: impl FnMut()) -> (f64, f64) {
    let rounds = if cold { 101 } else { 201 };
    let batch = if cold { 1 } else { batch };
    f();
    let one = || {
        prepare();
        if cold {
            evict();
        }
        let begun = Instant::now();
        for _ in 0..batch {
            f();
        }
        begun.elapsed().as_nanos() as f64 / f64::from(batch)
    };
    let mut one = one;
    middle((0..rounds).map(|_| one()).collect())
}

extern "C" fn measure(_: i32, _: *mut libc::siginfo_t, interrupted: *mut c_void) {
    static BEEN: AtomicBool = AtomicBool::new(false);
    if BEEN.swap(true, Relaxed) {
        return;
    }
    let state = state::get().unwrap();
    let slot = slots::current().unwrap();
    let stack = (slot.memory.stack_lo.load(Relaxed), slot.memory.stack_hi.load(Relaxed));
    // SAFETY: the kernel's own context.
    let regs = unsafe { Regs::interrupted(interrupted) };
    let depth = std::cell::Cell::new(0);
    for cold in [false, true] {
        let heat = if cold { "cold" } else { "warm" };
        for (name, tables, keep, again) in [
            ("memo", state.tables, true, true),
            // The state after a sample with a different stack.
            ("memo, new", state.tables, true, false),
            ("rows", state.tables, false, true),
            ("interpreter", without_rows(state), false, true),
        ] {
            let tag = AtomicU32::new(0);
            let run = || {
                // Another tag causes a miss in the cache.
                let tag = if keep { 0 } else { tag.fetch_add(1, Relaxed) };
                let walked =
                    walk_once(state, tables, &state.private.rule_cache, Tag(tag as u16), &regs, stack, again);
                assert_eq!(walked.flags, 0, "{walked:?}");
                depth.set(walked.depth);
            };
            let (ns, low) = time(200, cold, run);
            println!(
                "walk {heat} {name:<12} {ns:8.0} ns  {:6.1} ns/frame  (p10 {low:.0} ns)",
                ns / depth.get() as f64
            );
        }
        let mut info = [0u64; 16];
        info[1] = 6;
        let generation = slot.state.load(Relaxed) / (slot_state::MASK + 1);
        let slot_index = slots::index(state, slot);
        info[3] = Cookie { source: FROM_PERF, generation: generation as u8, slot: slot_index }.pack();
        // The state in the middle of a recording.
        slot.engine.stage.store(flightline_in_signal::layout::stage::PERF, Relaxed);
        for again in [true, false] {
            let run = || {
                if !again {
                    forget(state, slot_index);
                }
                // SAFETY: a siginfo as the kernel fills it for a perf trap, and the kernel's context.
                assert!(unsafe { handler::on_signal(SIGTRAP, info.as_ptr().cast(), interrupted) });
            };
            // Regular samples read the CPU clock one time in sixteen. Its cost is measured below.
            let regular = || slot.ledger.last_mono_ns.store(u64::MAX, Relaxed);
            let (ns, low) = time_after(50, cold, regular, run);
            let stack = if again { "" } else { ", new" };
            println!("handler {heat}{stack:<13} {ns:8.0} ns                   (p10 {low:.0} ns)");
            in_process::drain(state);
        }
        let regular = || slot.ledger.last_mono_ns.store(u64::MAX, Relaxed);
        let run = || {
            // SAFETY: as above.
            assert!(unsafe { handler::on_signal(SIGTRAP, info.as_ptr().cast(), interrupted) });
        };
        for (name, offset, at) in contexts() {
            context::set_offsets([offset, 0]);
            CONTEXT.set(at);
            let (ns, low) = time_after(50, cold, regular, run);
            println!("handler {heat}, {name:<20} {ns:8.0} ns                   (p10 {low:.0} ns)");
            in_process::drain(state);
            context::set_offsets([0, 0]);
        }
    }
    for cold in [false, true] {
        let (cpu, _) = time(200, cold, || _ = black_box(flightline_in_signal::os::clock::thread_cpu_ns()));
        let (mono, _) = time(200, cold, || _ = black_box(flightline_in_signal::os::clock::monotonic_ns()));
        let heat = if cold { "cold" } else { "warm" };
        println!("clocks {heat}: CPU time of the thread {cpu:.0} ns, monotonic {mono:.0} ns");
    }
    println!("{} frames, {} bytes of stack", depth.get(), stack.1 - regs.sp());
}

thread_local!(static CONTEXT: Cell<*const u8> = const { Cell::new(std::ptr::null()) });

/// Contexts that a thread may have published: offset of its variable, 0 = contexts are not read, and the
/// target of its pointer.
fn contexts() -> [(&'static str, usize, *const u8); 4] {
    #[repr(align(4096))]
    struct Page([u8; 8192]);
    let page: &'static mut Page = Box::leak(Box::new(Page([0; 8192])));
    let mut record = |at: usize| {
        page.0[at - context::CAR_BYTES..][..4].copy_from_slice(&context::CAR_MAGIC.to_le_bytes());
        page.0[at..at + 24].fill(7);
        // Valid, sampled, labels of 40 bytes.
        page.0[at + 24..at + 28].copy_from_slice(&[1, 1, 40, 0]);
        page.0[at..].as_ptr()
    };
    let (ours, other) = (record(128), record(4098));
    let offset = CONTEXT.with(|c| std::ptr::from_ref(c) as usize).wrapping_sub(context::thread_pointer());
    [
        ("nobody looks", 0, std::ptr::null()),
        ("no context", offset, std::ptr::null()),
        ("our context", offset, ours),
        ("another's context", offset, other),
    ]
}

/// Returns the same modules without unwind tables.
fn without_rows(state: &ProcState) -> &'static Tables {
    // SAFETY: all zero is an empty table set.
    let copy: Box<Tables> = unsafe { Box::new_zeroed().assume_init() };
    for (to, from) in copy[0].entries.iter().zip(&state.tables[0].entries) {
        to.store(ModuleEntry { rows_off: 0, ..from.load() });
    }
    copy[0].count.store(state.tables[0].count.load(Relaxed), Relaxed);
    Box::leak(copy)
}

type Tables = [ModuleTable; MODULE_TABLES];

#[inline(never)]
fn walk_once(
    state: &ProcState,
    tables: &Tables,
    memo: &RuleCache,
    tag: Tag,
    regs: &Regs,
    stack: (u64, u64),
    again: bool,
) -> Walked {
    let mut lease = state.private.scratch.take().unwrap();
    let scratch = lease.scratch();
    let modules = Modules::now(tables, &state.header.modules.generation);
    // SAFETY: the stack is this thread's.
    let mut memory = unsafe { Local::new(state.pid, stack, regs.sp(), &mut scratch.windows) };
    let lookup = Lookup { modules, rows: state.rows, rule_cache: memo, tag, jvm: None };
    let last = if again { scratch.frames.get(..scratch.depth).unwrap() } else { &[] };
    prefetch(&lookup, regs, &memory, last);
    let walked = walk(&lookup, regs, &mut memory, &mut scratch.machine, &mut scratch.frames);
    scratch.depth = walked.depth;
    walked
}

/// Clears the caches, as if the thread's last sample had a different stack.
fn forget(state: &ProcState, slot: u32) {
    state.private.scratch.take_for(slot).unwrap().scratch().depth = 0;
}

fn main() {
    let with_fp = cfg!(target_feature = "fp-armv8")
        || option_env!("RUSTFLAGS").is_some_and(|f| f.contains("frame-pointers"));
    println!("code {} frame pointers", if with_fp { "with" } else { "without" });
    in_process::install(1_000_000, engine::NONE, 0, true);
    in_process::catch(libc::SIGUSR1, measure);
    let run = || {
        // Rust's own alternate stack is too small for the measurements.
        let off = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: plain call.
        unsafe { libc::sigaltstack(&off, std::ptr::null_mut()) };
        in_process::register();
        black_box(a0(1));
    };
    std::thread::spawn(run).join().unwrap();
}
