//! Compares the walker inside this process with the C library's backtrace(3), from a signal handler. This is
//! the only oracle that exists on every architecture, including emulated ones. Tests the interpreter and the
//! unwind tables.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod in_process;

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use flightline_in_signal::layout::{MODULE_TABLES, ModuleEntry, ModuleTable, engine, walk_end};
use flightline_in_signal::state::{self, slots};
use flightline_in_signal::unwind::interrupted::Regs;
use flightline_in_signal::unwind::modules::Modules;
use flightline_in_signal::unwind::rule_cache::Tag;
use flightline_in_signal::unwind::stack::Local;
use flightline_in_signal::unwind::walk::{Lookup, walk};

static COMPARED: AtomicUsize = AtomicUsize::new(0);

/// Returns the module table without unwind tables.
fn bare() -> &'static [ModuleTable; MODULE_TABLES] {
    let state = state::get().unwrap();
    // SAFETY: all zero is an empty table set.
    let copy: Box<[ModuleTable; MODULE_TABLES]> = unsafe { Box::new_zeroed().assume_init() };
    for (to, from) in copy[0].entries.iter().zip(&state.tables[0].entries) {
        to.store(ModuleEntry { rows_off: 0, ..from.load() });
    }
    copy[0].count.store(state.tables[0].count.load(Relaxed), Relaxed);
    Box::leak(copy)
}

extern "C" fn compare(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's own context.
    let regs = unsafe { Regs::interrupted(context) };
    let mut theirs = [std::ptr::null_mut::<c_void>(); 300];
    // SAFETY: room for 300 addresses; the library was loaded by an earlier call.
    let n = unsafe { libc::backtrace(theirs.as_mut_ptr(), 300) } as usize;
    let theirs: Vec<u64> = theirs[..n].iter().map(|p| *p as u64).collect();
    let state = state::get().unwrap();
    let slot = slots::current().unwrap();
    let stack = (slot.memory.stack_lo.load(Relaxed), slot.memory.stack_hi.load(Relaxed));
    for (n, tables) in [state.tables, bare()].into_iter().enumerate() {
        let mut lease = state.private.scratch.take().unwrap();
        let scratch = lease.scratch();
        let modules = Modules::now(tables, &state.header.modules.generation);
        // SAFETY: this thread's stack.
        let mut memory = unsafe { Local::new(state.pid, stack, regs.sp(), &mut scratch.windows) };
        let lookup = Lookup {
            modules,
            rows: state.rows,
            rule_cache: &state.private.rule_cache,
            tag: Tag(n as u16),
            jvm: None,
        };
        let walked = walk(&lookup, &regs, &mut memory, &mut scratch.machine, &mut scratch.frames);
        let ours = &scratch.frames[..walked.depth];
        assert_eq!(walked.end, walk_end::ROOT, "{walked:?} {ours:x?}\nbacktrace {theirs:x?}");
        // backtrace starts in this handler; the interrupted instruction is among its frames.
        let from = theirs.iter().position(|pc| *pc == regs.pc).expect("the interrupted instruction");
        assert_eq!(ours, &theirs[from..]);
        COMPARED.fetch_add(ours.len(), Relaxed);
    }
}

#[inline(never)]
fn recurse(n: u32) -> u32 {
    if n == 0 {
        // SAFETY: the signal is caught.
        unsafe { libc::raise(libc::SIGUSR1) };
        return 1;
    }
    std::hint::black_box(recurse(n - 1)) + 1
}

/// Recurses through a C library function with a callback.
fn through_qsort(n: u32) {
    extern "C" fn order(_: *const c_void, _: *const c_void) -> i32 {
        recurse(5);
        0
    }
    let mut numbers = vec![1u64; n as usize];
    // SAFETY: the elements are plain and the comparison touches none.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 8, Some(order)) };
}

#[test]
fn walk_matches_libc_backtrace() {
    in_process::install(1_000_000, engine::NONE, 0, true);
    let mut warm = [std::ptr::null_mut(); 4];
    // SAFETY: loads the unwinder outside the handler.
    unsafe { libc::backtrace(warm.as_mut_ptr(), 4) };
    std::thread::spawn(|| {
        let off = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: Rust's own alternate stack is too small for this test.
        unsafe { libc::sigaltstack(&off, std::ptr::null_mut()) };
        in_process::register();
        in_process::catch(libc::SIGUSR1, compare);
        recurse(3);
        recurse(100);
        through_qsort(3);
    })
    .join()
    .unwrap();
    assert!(COMPARED.load(Relaxed) > 200);
}
