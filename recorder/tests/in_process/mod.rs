//! Runs the handler in this process: shared memory on the heap, real signals, and the ring read back.
#![allow(dead_code, reason = "each user takes its part")]

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use flightline_in_signal::layout::{
    FixedSettings, Identity, MODULE_TABLES, ModuleEntry, ModuleTable, ProcHeader, SampleRecord, SessionPage,
    ThreadSlot, module_flags,
};
use flightline_in_signal::os::{clock, vdso};
use flightline_in_signal::ring::{Next, Ring};
use flightline_in_signal::state::{self, Private, ProcState};
use flightline_in_signal::{handler, thread};
use object::{Object, ObjectSection};

const SLOTS: usize = 2048;
const RING_WORDS: usize = 1 << 20;

fn zeroed<T>() -> &'static mut T {
    // SAFETY: used for types of plain integers and atomics only.
    Box::leak(unsafe { Box::<T>::new_zeroed().assume_init() })
}

/// A sample from the ring.
pub struct Sample {
    pub fixed: SampleRecord,
    pub frames: Vec<u64>,
}

/// Installs a session with `period_ns`, engine `wished` and session flags, once per process. Later calls
/// return the first one.
pub fn install(period_ns: u64, wished: u32, flags: u32, with_rows: bool) -> &'static ProcState {
    static STATE: OnceLock<&'static ProcState> = OnceLock::new();
    STATE.get_or_init(|| {
        let session: &'static SessionPage = zeroed();
        session.live.period_ns.store(period_ns, Relaxed);
        session.live.engines.store(flightline_in_signal::layout::engines::CPU, Relaxed);
        let fixed = FixedSettings {
            engine: wished,
            max_depth: 1024,
            flags,
            seed: clock::monotonic_ns(),
            ..session.fixed.load()
        };
        session.fixed.store(fixed);
        let pid = std::process::id();
        let header: &'static ProcHeader = zeroed();
        header.identity.store(Identity { pid, ..Identity::default() });
        header.engine.kind.store(wished, Relaxed);
        let slots: &'static [ThreadSlot] = zeroed::<[ThreadSlot; SLOTS]>();
        let tables: &'static [ModuleTable; MODULE_TABLES] = zeroed();
        let rows = fill_tables(tables, with_rows);
        let words: &'static [AtomicU64] =
            (0..RING_WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
        let private: &'static Private = zeroed();
        let state = Box::leak(Box::new(ProcState {
            session,
            fixed,
            pid,
            header,
            slots,
            tables,
            ring: Ring::new(&header.ring, words).unwrap(),
            rows,
            private,
            salt: 0,
        }));
        // SAFETY: everything is leaked; the vDSO address comes from the auxiliary vector.
        unsafe {
            clock::set_vdso_clock(vdso::clock_gettime(libc::getauxval(libc::AT_SYSINFO_EHDR) as *const u8));
            state::install(state);
        }
        for signal in [libc::SIGTRAP, libc::SIGPROF] {
            catch(signal, on_signal);
        }
        state
    })
}

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's own arguments, full mask.
    unsafe { handler::on_signal(signal, info.cast(), context) };
}

pub fn catch(signal: i32, function: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void)) {
    // SAFETY: a zeroed sigaction is filled before use.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = function as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&mut action.sa_mask);
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

fn fill_tables(tables: &[ModuleTable; MODULE_TABLES], with_rows: bool) -> &'static [AtomicU64] {
    let mut arena = vec![0u64];
    let mut entries = Vec::new();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let parse = |line: &str| -> Option<(u64, u64, bool, u64, String)> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let exec = words.next()?.contains('x');
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let offset = hex(words.next()?)?;
        Some((hex(start)?, hex(end)?, exec, offset, words.nth(2).unwrap_or("").to_owned()))
    };
    let maps: Vec<_> = maps.lines().filter_map(parse).collect();
    for (start, end, exec, offset, path) in &maps {
        if !exec || path == "[vsyscall]" {
            continue;
        }
        let bare = ModuleEntry {
            start: *start,
            end: *end,
            bias: 0,
            eh_frame_hdr: 0,
            eh_readable_end: 0,
            rows_off: 0,
            flags: module_flags::PERMANENT,
            path_id: 0,
            eh_readable_start: 0,
        };
        if !(path.starts_with('/') || path == "[vdso]") {
            // Code without a file, such as an emulator's signal trampoline.
            entries.push(bare);
            continue;
        }
        let elf = if path == "[vdso]" {
            // SAFETY: the vDSO's mapping, whole.
            unsafe { std::slice::from_raw_parts(*start as *const u8, (end - start) as usize) }.to_vec()
        } else {
            std::fs::read(path).unwrap()
        };
        let file = object::File::parse(&*elf).unwrap();
        let Some(hdr) = file.section_by_name(".eh_frame_hdr").map(|s| s.address()) else { continue };
        let text = file.section_by_name(".text").unwrap();
        let delta = text.address().wrapping_sub(text.file_range().unwrap().0);
        let bias = start.wrapping_sub(*offset).wrapping_sub(delta);
        let hdr = hdr.wrapping_add(bias);
        let readable = maps.iter().find(|m| m.0 <= hdr && hdr < m.1).map_or((hdr, hdr), |m| (m.0, m.1));
        let rows_off = arena.len() as u64 * 8;
        let rows = if with_rows { flightline_recorder::build_unwind_rows(&elf).unwrap() } else { Vec::new() };
        arena.extend(rows.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())));
        entries.push(ModuleEntry {
            bias,
            eh_frame_hdr: hdr,
            eh_readable_start: readable.0,
            eh_readable_end: readable.1,
            rows_off: if with_rows { rows_off } else { 0 },
            ..bare
        });
    }
    for (to, entry) in tables[0].entries.iter().zip(&entries) {
        to.store(*entry);
    }
    tables[0].count.store(entries.len() as u32, Relaxed);
    arena.into_iter().map(AtomicU64::new).collect::<Vec<_>>().leak()
}

/// Registers the calling thread with its stack bounds from the C library.
pub fn register() -> &'static ThreadSlot {
    let mut address = std::ptr::null_mut();
    let mut bytes = 0;
    // SAFETY: queries the attributes of the calling thread.
    unsafe {
        let mut attr = std::mem::zeroed();
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attr), 0);
        libc::pthread_attr_getstack(&attr, &mut address, &mut bytes);
        libc::pthread_attr_destroy(&mut attr);
    }
    let low = address as u64;
    let info = thread::ThreadInfo { stack: (low, low + bytes as u64), ..Default::default() };
    thread::register(&info).expect("a free slot")
}

/// Returns all samples in the ring.
pub fn drain(state: &ProcState) -> Vec<Sample> {
    let mut samples = Vec::new();
    while let Next::Ready { payload, len, .. } = state.ring.next() {
        let word = |i: usize| payload[i].load(Relaxed);
        let fixed = SampleRecord {
            time_ns: word(0),
            tid: word(1) as u32,
            slot: (word(1) >> 32) as u32,
            weight_ns: word(2),
            depth: word(3) as u16,
            flags: (word(3) >> 16) as u16,
            modules_gen: (word(3) >> 32) as u32,
            exact_frames: word(4),
        };
        samples.push(Sample { fixed, frames: payload[5..].iter().map(|w| w.load(Relaxed)).collect() });
        state.ring.release(len);
    }
    samples
}

/// Uses `ns` of this thread's CPU time.
pub fn burn(ns: u64) {
    let end = clock::thread_cpu_ns() + ns;
    let mut x = 1u64;
    while clock::thread_cpu_ns() < end {
        for _ in 0..2000 {
            x = std::hint::black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
        }
    }
}
