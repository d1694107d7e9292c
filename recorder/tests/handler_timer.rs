//! Runs the handler on real signals of the timer engine, without unwind tables.
#![cfg(target_os = "linux")]

mod in_process;

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::Relaxed};

use flightline_in_signal::layout::{ThreadSlot, engine, sample_flags};
use flightline_in_signal::{engine as arming, handler};

const PERIOD: u64 = 10_000_000;

#[test]
fn timer_engine_conserves_cpu_time() {
    let state = in_process::install(PERIOD, engine::TIMER, 0, false);
    let slot = in_process::register();
    arming::arm(slot).unwrap();
    in_process::burn(500_000_000);
    arming::disarm(slot);
    let samples = in_process::drain(state);
    let sum: u64 = samples.iter().map(|s| s.fixed.weight_ns).sum();
    assert_eq!(slot.ledger.armed_cpu_ns.load(Relaxed) + sum, slot.ledger.last_cpu_ns.load(Relaxed));
    assert!((35..=51).contains(&samples.len()), "{} samples", samples.len());
    for sample in &samples {
        assert_eq!(
            sample.fixed.flags & sample_flags::TRUNCATED,
            0,
            "{:?} {:x?}",
            sample.fixed,
            sample.frames
        );
        assert!(sample.fixed.flags & sample_flags::TIMER != 0);
    }
    strangers();
    stack_use();
    in_process::drain(state);
    interrupted_handlers(state);
}

/// Tests that the handler passes on signals that are not ours.
fn strangers() {
    static TAKEN: AtomicBool = AtomicBool::new(true);
    extern "C" fn stranger(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel's own arguments, full mask.
        TAKEN.store(unsafe { handler::on_signal(signal, info.cast(), context) }, Relaxed);
    }
    in_process::catch(libc::SIGPROF, stranger);
    // SAFETY: the signal is caught.
    unsafe { libc::raise(libc::SIGPROF) };
    assert!(!TAKEN.load(Relaxed));
    // SAFETY: the handler must survive a null siginfo.
    assert!(!unsafe { handler::on_signal(libc::SIGPROF, std::ptr::null(), std::ptr::null()) });
}

/// Measures the stack that a sample needs, including the interpreter, in addition to the kernel's signal
/// frame.
fn stack_use() {
    static ENTRY: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn sampled(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
        let here = 0u8;
        ENTRY.store(&raw const here as usize, Relaxed);
        // SAFETY: the kernel's own arguments, full mask.
        unsafe { handler::on_signal(signal, info.cast(), context) };
    }
    in_process::catch(libc::SIGPROF, sampled);
    std::thread::spawn(move || {
        const PAINT: u8 = 0xa7;
        let mut memory = vec![PAINT; 1 << 18];
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
        let slot = in_process::register();
        flightline_in_signal::state::forget_rules();
        // SAFETY: the alternate stack outlives its use.
        unsafe { assert_eq!(libc::sigaltstack(&stack, std::ptr::null_mut()), 0) };
        arming::arm(slot).unwrap();
        in_process::burn(100_000_000);
        arming::disarm(slot);
        let off = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: plain call.
        unsafe { libc::sigaltstack(&off, std::ptr::null_mut()) };
        let lowest = memory.iter().position(|byte| *byte != PAINT).expect("the handler ran there");
        let used = ENTRY.load(Relaxed) - (memory.as_ptr() as usize + lowest);
        eprintln!("the handler needs {used} bytes of stack");
        assert!(used < 3072, "{used} bytes of stack");
    })
    .join()
    .unwrap();
}

/// Tests that a sample inside another signal's handler, on an alternate stack, is walked through the signal
/// frame to the root.
fn interrupted_handlers(state: &'static flightline_in_signal::state::ProcState) {
    extern "C" fn sampled(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel's own arguments, full mask.
        unsafe { handler::on_signal(signal, info.cast(), context) };
    }
    // Sampling starts and ends here, so that no tick occurs outside the handler.
    extern "C" fn busy(_: i32, _: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: the thread stores its slot before it raises the signal; slots are never freed.
        let slot = unsafe { &*SLOT.load(Relaxed) };
        arming::arm(slot).unwrap();
        in_process::burn(100_000_000);
        arming::disarm(slot);
    }
    static SLOT: AtomicPtr<ThreadSlot> = AtomicPtr::new(std::ptr::null_mut());
    in_process::catch(libc::SIGPROF, sampled);
    std::thread::spawn(move || {
        let slot = in_process::register();
        let mut memory = vec![0u8; 1 << 18];
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
        // SAFETY: the alternate stack outlives its use; the handler is installed with an empty mask.
        unsafe {
            assert_eq!(libc::sigaltstack(&stack, std::ptr::null_mut()), 0);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = busy as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
            SLOT.store(std::ptr::from_ref(slot).cast_mut(), Relaxed);
            libc::raise(libc::SIGUSR1);
        }
        let samples = in_process::drain(state);
        assert!(samples.len() >= 5, "{} samples", samples.len());
        for sample in &samples {
            assert_eq!(
                sample.fixed.flags & sample_flags::TRUNCATED,
                0,
                "{:?} {:x?}",
                sample.fixed,
                sample.frames
            );
            assert_eq!(
                sample.fixed.exact_frames.count_ones(),
                2,
                "the leaf and the interrupted frame are exact"
            );
        }
        let off = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: plain call.
        unsafe { libc::sigaltstack(&off, std::ptr::null_mut()) };
    })
    .join()
    .unwrap();
}
