//! Buffered streams: the C library reads and writes for them by calls of its own that nobody can come between. What
//! the buffer holds already is handed out without a look at the clock.

use core::ffi::{c_char, c_int, c_void};

use flightline_capture::slow_io::{self, Call, Path};
use flightline_in_signal::payload::io;
use libc::{FILE, size_t, ssize_t};

use crate::real::{Next, fail, look_up, next};

const EOF: c_int = -1;

fn descriptor(stream: *mut FILE) -> c_int {
    type Fileno = unsafe extern "C" fn(*mut FILE) -> c_int;
    let Some(real) = next!(c"fileno" as Fileno) else { return -1 };
    let _errno = crate::real::KeepErrno::new();
    // SAFETY: the program's stream.
    unsafe { real(stream) }
}

/// Bytes that can be read from a stream's buffer. glibc keeps the two pointers at the same place since programs have
/// them compiled in; elsewhere nothing is known.
///
/// # Safety
/// `stream` is an open stream.
#[inline]
unsafe fn buffered(stream: *mut FILE) -> usize {
    #[cfg(target_env = "gnu")]
    {
        let words = stream.cast::<usize>();
        // SAFETY: by the contract; the second and the third word of every glibc stream.
        let (at, end) = unsafe { (words.add(1).read_volatile(), words.add(2).read_volatile()) };
        end.saturating_sub(at)
    }
    #[cfg(not(target_env = "gnu"))]
    {
        let _ = stream;
        0
    }
}

/// `stream! { OPERATION => fn NAME c"NAME"(ARGUMENTS) -> RESULT, stream, quick, r => bytes }`: `quick` tells that no
/// system call will be made; `bytes` what result `r` stands for.
macro_rules! stream {
    ($($operation:expr => fn $name:ident $text:literal($($arg:ident: $type:ty),*) -> $ret:ty, $stream:expr,
        $quick:expr, $r:ident => $bytes:expr, $failed:expr;)*) => { $(
        #[doc = concat!("`", stringify!($name), "`, timed")]
        ///
        /// # Safety
        /// As the function itself.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            look_up! { static NEXT: Next = Next::new($text); }
            type Function = unsafe extern "C" fn($($type),*) -> $ret;
            let address = NEXT.address();
            // SAFETY: null or the C library's function of that name, which has this type.
            let real = unsafe { core::mem::transmute::<*mut c_void, Option<Function>>(address) };
            let Some(real) = real else {
                fail(libc::ENOSYS);
                return $failed;
            };
            if !slow_io::is_enabled() || $quick {
                // SAFETY: passed on.
                return unsafe { real($($arg),*) };
            }
            let call = Call::begin($operation, descriptor($stream));
            // SAFETY: passed on.
            let $r = unsafe { real($($arg),*) };
            call.end_with(|| {
                let bytes = $bytes;
                (bytes, $operation == io::READ && ended($stream, bytes))
            });
            $r
        }
    )* };
}

/// Whether a stream is at its end.
fn ended(stream: *mut FILE, bytes: i64) -> bool {
    type Feof = unsafe extern "C" fn(*mut FILE) -> c_int;
    if bytes > 0 {
        return false;
    }
    // Without its lock: it may be held by this thread's caller or by nobody.
    match next!(c"feof_unlocked" as Feof) {
        // SAFETY: the program's stream.
        Some(real) => unsafe { real(stream) != 0 },
        None => false,
    }
}

fn product(size: size_t, count: size_t) -> i64 {
    size.saturating_mul(count).min(i64::MAX as usize) as i64
}

/// Length of a line that was read; -1 without one.
///
/// # Safety
/// `line` is null or a C string.
unsafe fn length(line: *const c_char) -> i64 {
    // SAFETY: by the contract.
    if line.is_null() { -1 } else { unsafe { core::ffi::CStr::from_ptr(line) }.count_bytes() as i64 }
}

/// Whether a stream's buffer holds that many bytes to read.
#[inline]
fn holds(stream: *mut FILE, bytes: i64) -> bool {
    // SAFETY: a stream that the program reads from.
    unsafe { buffered(stream) as i64 >= bytes }
}

/// Bytes of the line that a call gave back.
fn line(result: *const c_char) -> i64 {
    // SAFETY: null or a C string that the C library has just written.
    unsafe { length(result) }
}

/// Bytes of a text that was written, unless that failed.
fn put(result: c_int, text: *const c_char) -> i64 {
    // SAFETY: the C library has just read the same text to its end.
    if result < 0 { -1 } else { unsafe { length(text) } }
}

stream! {
    io::READ => fn fread c"fread"(to: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t, stream,
        holds(stream, product(size, count)), r => product(size, r), 0;
    io::READ => fn fread_unlocked c"fread_unlocked"(
        to: *mut c_void, size: size_t, count: size_t, stream: *mut FILE
    ) -> size_t, stream,
        holds(stream, product(size, count)), r => product(size, r), 0;
    io::READ => fn __fread_chk c"__fread_chk"(
        to: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE
    ) -> size_t, stream,
        holds(stream, product(size, count)), r => product(size, r), 0;
    io::READ => fn __fread_unlocked_chk c"__fread_unlocked_chk"(
        to: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE
    ) -> size_t, stream,
        holds(stream, product(size, count)), r => product(size, r), 0;
    io::WRITE => fn fwrite c"fwrite"(
        from: *const c_void, size: size_t, count: size_t, stream: *mut FILE
    ) -> size_t, stream, false, r => product(size, r), 0;
    io::WRITE => fn fwrite_unlocked c"fwrite_unlocked"(
        from: *const c_void, size: size_t, count: size_t, stream: *mut FILE
    ) -> size_t, stream, false, r => product(size, r), 0;

    io::READ => fn fgets c"fgets"(to: *mut c_char, room: c_int, stream: *mut FILE) -> *mut c_char, stream, false,
        r => line(r), core::ptr::null_mut();
    io::READ => fn fgets_unlocked c"fgets_unlocked"(to: *mut c_char, room: c_int, stream: *mut FILE) -> *mut c_char,
        stream, false, r => line(r), core::ptr::null_mut();
    io::READ => fn __fgets_chk c"__fgets_chk"(
        to: *mut c_char, size: size_t, room: c_int, stream: *mut FILE
    ) -> *mut c_char, stream, false, r => line(r), core::ptr::null_mut();
    io::READ => fn __fgets_unlocked_chk c"__fgets_unlocked_chk"(
        to: *mut c_char, size: size_t, room: c_int, stream: *mut FILE
    ) -> *mut c_char, stream, false, r => line(r), core::ptr::null_mut();
    // The program's buffer may move: what came is known by the result alone.
    io::READ => fn getline c"getline"(line: *mut *mut c_char, room: *mut size_t, stream: *mut FILE) -> ssize_t, stream,
        false, r => r as i64, -1;
    io::READ => fn getdelim c"getdelim"(
        line: *mut *mut c_char, room: *mut size_t, end: c_int, stream: *mut FILE
    ) -> ssize_t, stream, false, r => r as i64, -1;
    io::READ => fn __getdelim c"__getdelim"(
        line: *mut *mut c_char, room: *mut size_t, end: c_int, stream: *mut FILE
    ) -> ssize_t, stream, false, r => r as i64, -1;

    io::READ => fn fgetc c"fgetc"(stream: *mut FILE) -> c_int, stream, holds(stream, 1),
        r => one(r), EOF;
    io::READ => fn getc c"getc"(stream: *mut FILE) -> c_int, stream, holds(stream, 1), r => one(r), EOF;
    io::READ => fn getc_unlocked c"getc_unlocked"(stream: *mut FILE) -> c_int, stream,
        holds(stream, 1), r => one(r), EOF;
    // What the inline forms call when the buffer is empty, or full.
    io::READ => fn __uflow c"__uflow"(stream: *mut FILE) -> c_int, stream, false, r => one(r), EOF;
    io::WRITE => fn __overflow c"__overflow"(stream: *mut FILE, byte: c_int) -> c_int, stream, false,
        r => one(r), EOF;

    io::WRITE => fn fputs c"fputs"(text: *const c_char, stream: *mut FILE) -> c_int, stream, false,
        r => put(r, text), EOF;
    io::WRITE => fn fputs_unlocked c"fputs_unlocked"(text: *const c_char, stream: *mut FILE) -> c_int, stream, false,
        r => put(r, text), EOF;
}

/// One byte or the end.
fn one(r: c_int) -> i64 {
    if r < 0 { -1 } else { 1 }
}

/// Bytes that wait in a stream's buffer to be written.
fn waiting(stream: *mut FILE) -> usize {
    type Fpending = unsafe extern "C" fn(*mut FILE) -> size_t;
    let Some(real) = next!(c"__fpending" as Fpending) else { return 0 };
    // SAFETY: the program's stream.
    unsafe { real(stream) }
}

type OnStream = unsafe extern "C" fn(*mut FILE) -> c_int;

fn flush(real: OnStream, stream: *mut FILE) -> c_int {
    if !slow_io::is_enabled() {
        // SAFETY: passed on.
        return unsafe { real(stream) };
    }
    // Null stands for all streams: no one file can be told then.
    let (fd, bytes) = if stream.is_null() { (-1, 0) } else { (descriptor(stream), waiting(stream)) };
    let call = Call::begin(io::WRITE, fd);
    // SAFETY: passed on.
    let r = unsafe { real(stream) };
    call.end(if r < 0 { -1 } else { bytes as i64 }, false);
    r
}

/// `fflush(3)`, timed
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fflush(stream: *mut FILE) -> c_int {
    next!(c"fflush" as OnStream).map_or_else(|| fail(libc::ENOSYS), |real| flush(real, stream))
}

/// `fflush_unlocked(3)`, timed
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fflush_unlocked(stream: *mut FILE) -> c_int {
    next!(c"fflush_unlocked" as OnStream).map_or_else(|| fail(libc::ENOSYS), |real| flush(real, stream))
}

/// `fclose(3)`, timed if something is left to write: the path is asked for before the descriptor goes.
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    let Some(real) = next!(c"fclose" as OnStream) else { return fail(libc::ENOSYS) };
    if !slow_io::is_enabled() {
        // SAFETY: passed on.
        return unsafe { real(stream) };
    }
    let bytes = waiting(stream);
    if bytes == 0 {
        // SAFETY: passed on.
        return unsafe { real(stream) };
    }
    let fd = descriptor(stream);
    let path: Path = slow_io::descriptor_path(fd);
    let call = Call::begin(io::WRITE, fd);
    // SAFETY: passed on.
    let r = unsafe { real(stream) };
    call.end_closed(if r < 0 { -1 } else { bytes as i64 }, &path);
    r
}

/// `puts(3)`, timed
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn puts(text: *const c_char) -> c_int {
    type Puts = unsafe extern "C" fn(*const c_char) -> c_int;
    let Some(real) = next!(c"puts" as Puts) else { return EOF };
    if !slow_io::is_enabled() {
        // SAFETY: passed on.
        return unsafe { real(text) };
    }
    // The stream may have been given another descriptor, which nothing portable tells.
    let call = Call::begin(io::WRITE, libc::STDOUT_FILENO);
    // SAFETY: passed on.
    let r = unsafe { real(text) };
    call.end_with(|| (put(r, text) + i64::from(r >= 0), false));
    r
}
