//! The functions of `flightline.h`.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flightline_capture::lifecycle::join::Refused;
use flightline_capture::os::spin::Spin;
use flightline_capture::os::{self, Text};
use flightline_capture::{Moment, session};
use flightline_in_signal::layout::SessionPage;
use flightline_in_signal::os::clock;

use crate::helper::{self, Service, Settings};
use crate::real::{KeepErrno, publish};

/// Maximum wait of a call that starts, stops or dumps a recording, ms.
const LONGEST_CALL_MS: u64 = 5000;

/// `struct flightline_options`. It grows at its end; `size` is the size that the caller was compiled with.
#[repr(C)]
pub struct Options {
    size: usize,
    output: *const c_char,
    rate_hz: u32,
    reserved: u32,
    engine: *const c_char,
    program: *const c_char,
    events: *const c_char,
    repository: *const c_char,
    max_age: *const c_char,
    max_size: *const c_char,
    labels: *const c_char,
}

/// Serialises start and stop.
static DOOR: Spin = Spin::new();

/// Returns 1 while this object records this process.
#[unsafe(no_mangle)]
pub extern "C" fn flightline_active() -> c_int {
    c_int::from(flightline_capture::is_active())
}

fn text<'a>(word: *const c_char) -> Option<&'a CStr> {
    // SAFETY: null or a C string, which the caller of `flightline_start` guarantees.
    (!word.is_null()).then(|| unsafe { CStr::from_ptr(word) })
}

/// Starts a recording of this process; see `flightline.h`.
///
/// # Safety
/// `options` is null or points to `size` bytes of a `struct flightline_options`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flightline_start(options: *const Options) -> c_int {
    let _errno = KeepErrno::new();
    // SAFETY: all-zero is a valid structure without any option.
    let mut known: Options = unsafe { core::mem::zeroed() };
    // SAFETY: the caller guarantees null or `size` bytes of the structure.
    let given = unsafe { copy_known(options, &mut known) };
    if !given || known.size < core::mem::offset_of!(Options, rate_hz) {
        return -libc::EINVAL;
    }
    if known.rate_hz > 10_000 || known.reserved != 0 {
        return -libc::EINVAL;
    }
    let mut rate = Text::<16>::new();
    rate.number(known.rate_hz.into());
    let rate = if known.rate_hz == 0 { None } else { rate.cstr().ok() };
    let word = |word| text(word).filter(|text| !text.is_empty());
    let settings = Settings {
        options: [
            word(known.output),
            word(known.repository),
            rate,
            word(known.events),
            word(known.engine),
            word(known.max_age),
            word(known.max_size),
            None,
            None,
            word(known.labels),
            None,
        ],
        program: text(known.program).or_else(|| os::env(c"FLIGHTLINE_BIN")),
        silent: false,
    };
    let settings = settings.sorted();
    if settings.target().is_none() {
        return -libc::EINVAL;
    }
    publish();
    DOOR.with(|| {
        if session::current().is_some() {
            return -libc::EALREADY;
        }
        let started = helper::launch(&settings, LONGEST_CALL_MS).and_then(|dir| {
            flightline_capture::start(dir.cstr()?, Moment::Later).map_err(|refused| match refused {
                Refused::Os(_, errno) => errno,
                Refused::Owner => libc::EPERM,
                Refused::Format => libc::EPROTO,
                Refused::NotWanted => libc::EALREADY,
                Refused::Full => libc::ENOMEM,
            })
        });
        started.map_or_else(|errno| -errno, |()| 0)
    })
}

/// `struct flightline_join_options`. It grows at its end.
#[repr(C)]
pub struct JoinOptions {
    size: usize,
    service: *const c_char,
    token_file: *const c_char,
    ca_file: *const c_char,
    labels: *const c_char,
    rate_hz: u32,
    reserved: u32,
    program: *const c_char,
}

/// Lets a profiling service record this process on request; see `flightline.h`.
///
/// # Safety
/// `options` is null or points to `size` bytes of a `struct flightline_join_options`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flightline_join(options: *const JoinOptions) -> c_int {
    let _errno = KeepErrno::new();
    // SAFETY: all-zero is a valid structure without any option.
    let mut known: JoinOptions = unsafe { core::mem::zeroed() };
    // SAFETY: the caller guarantees null or `size` bytes of the structure.
    if !unsafe { copy_known(options, &mut known) } || known.rate_hz > 1_000 || known.reserved != 0 {
        return -libc::EINVAL;
    }
    let mut rate = Text::<16>::new();
    rate.number(known.rate_hz.into());
    let rate = if known.rate_hz == 0 { None } else { rate.cstr().ok() };
    let word = |word| text(word).filter(|text| !text.is_empty());
    let service = Service {
        options: [word(known.service), word(known.token_file), word(known.ca_file), rate, word(known.labels)],
        program: word(known.program).or_else(|| os::env(c"FLIGHTLINE_BIN")),
        silent: false,
    };
    publish();
    DOOR.with(|| {
        if helper::has_joined() {
            return -libc::EALREADY;
        }
        flightline_capture::wait_for_commands();
        service.start_agent().map_or_else(|errno| -errno, |()| 0)
    })
}

/// Copies the members that both sides have of a structure whose first word is its size. Returns false if
/// `from` is null.
///
/// # Safety
/// `from` is null or points to the number of bytes in its first word; any bytes are a valid `T`.
unsafe fn copy_known<T>(from: *const T, to: &mut T) -> bool {
    if from.is_null() {
        return false;
    }
    // SAFETY: the caller guarantees that many bytes; no more than the size of `T` is copied.
    unsafe {
        let size = from.cast::<usize>().read();
        core::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut *to).cast(), size.min(size_of::<T>()));
        size >= size_of::<usize>()
    }
}

/// Waits for `done`, at most `ms`.
fn wait(ms: u64, done: impl Fn() -> bool) -> c_int {
    let begin = clock::monotonic_ns();
    while !done() {
        let waited = clock::monotonic_ns() - begin;
        if waited >= ms * 1_000_000 {
            return -libc::ETIMEDOUT;
        }
        let nap = [0, (waited / 4).clamp(50_000, 1_000_000) as i64];
        // SAFETY: the kernel reads one timespec.
        let _ = unsafe { os::syscall(libc::SYS_nanosleep, [nap.as_ptr() as usize, 0, 0, 0, 0, 0]) };
    }
    0
}

/// Stops the recording of this process and waits until its output is complete; see `flightline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn flightline_stop() -> c_int {
    let _errno = KeepErrno::new();
    let Some(stopped) = DOOR.with(flightline_capture::stop) else { return -libc::ESRCH };
    let page = stopped.session();
    page.stop.store(1, Release);
    wait(LONGEST_CALL_MS, || page.drain_pid.load(Acquire) == 0)
}

/// Writes out everything recorded so far; see `flightline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn flightline_dump() -> c_int {
    let _errno = KeepErrno::new();
    let Some(attached) = session::current() else { return -libc::ESRCH };
    // Pages of sessions stay mapped, so the reference may outlive the recording.
    let page: &'static SessionPage = attached.state.session;
    let wanted = page.flush.requested.fetch_add(1, Relaxed) + 1;
    // The recorder watches this directory. If the path is no longer reachable, the recorder sees the request
    // at its next poll, within a tenth of a second.
    if let Ok(dir) = attached.dir.cstr() {
        let (here, now) = (libc::AT_FDCWD as usize, 0);
        // SAFETY: the kernel reads the path.
        let _ = unsafe { os::syscall(libc::SYS_utimensat, [here, dir.as_ptr() as usize, now, 0, 0, 0]) };
    }
    wait(LONGEST_CALL_MS, || page.flush.done.load(Acquire) >= wanted)
}
