//! Buffered streams: the C library reads and writes for them by internal calls that cannot be interposed. A
//! call that the buffer can satisfy does not read the clock.

use core::ffi::{c_char, c_int, c_void};

use flightline_capture::engines::slow_io::{self, Call, Path};
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

/// Returns the bytes that can be read from a stream's buffer. glibc cannot move the two pointers, because
/// programs have their offsets compiled in. For other C libraries the number is unknown.
///
/// # Safety
/// `stream` is an open stream.
#[inline]
unsafe fn buffered(stream: *mut FILE) -> usize {
    #[cfg(target_env = "gnu")]
    {
        let words = stream.cast::<usize>();
        // SAFETY: the caller guarantees an open stream; these are the second and the third word of every
        // glibc stream.
        let (at, end) = unsafe { (words.add(1).read_volatile(), words.add(2).read_volatile()) };
        end.saturating_sub(at)
    }
    #[cfg(not(target_env = "gnu"))]
    {
        let _ = stream;
        0
    }
}

/// `stream! { OPERATION => fn NAME c"NAME"(ARGUMENTS) -> RESULT, stream, quick, r => bytes }`: `quick` is
/// true if the call makes no system call; `bytes` is the number of bytes for the result `r`.
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
                // SAFETY: the program's own call, forwarded to the C library's function.
                return unsafe { real($($arg),*) };
            }
            let call = Call::begin($operation, descriptor($stream));
            // SAFETY: the program's own call, forwarded to the C library's function.
            let $r = unsafe { real($($arg),*) };
            call.end_with(|| {
                let bytes = $bytes;
                (bytes, $operation == io::READ && ended($stream, bytes))
            });
            $r
        }
    )* };
}

/// Returns true if a stream is at its end.
fn ended(stream: *mut FILE, bytes: i64) -> bool {
    type Feof = unsafe extern "C" fn(*mut FILE) -> c_int;
    if bytes > 0 {
        return false;
    }
    // Without its lock, because this thread's caller may or may not hold it.
    match next!(c"feof_unlocked" as Feof) {
        // SAFETY: the program's stream.
        Some(real) => unsafe { real(stream) != 0 },
        None => false,
    }
}

fn product(size: size_t, count: size_t) -> i64 {
    size.saturating_mul(count).min(i64::MAX as usize) as i64
}

/// Returns the length of a line that was read; -1 if there is none.
///
/// # Safety
/// `line` is null or a C string.
unsafe fn length(line: *const c_char) -> i64 {
    // SAFETY: the caller guarantees a C string; null was ruled out.
    if line.is_null() { -1 } else { unsafe { core::ffi::CStr::from_ptr(line) }.count_bytes() as i64 }
}

/// Returns true if a stream's buffer contains that many bytes to read.
#[inline]
fn holds(stream: *mut FILE, bytes: i64) -> bool {
    // SAFETY: a stream that the program reads from.
    unsafe { buffered(stream) as i64 >= bytes }
}

/// Returns the length of the line that a call returned.
fn line(result: *const c_char) -> i64 {
    // SAFETY: null or a C string that the C library has just written.
    unsafe { length(result) }
}

/// Returns the length of a text that was written, -1 after a failure.
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
    // The program's buffer may move, so only the result gives the number of bytes.
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
    // The inline forms call these functions when the buffer is empty or full.
    io::READ => fn __uflow c"__uflow"(stream: *mut FILE) -> c_int, stream, false, r => one(r), EOF;
    io::WRITE => fn __overflow c"__overflow"(stream: *mut FILE, byte: c_int) -> c_int, stream, false,
        r => one(r), EOF;

    io::WRITE => fn fputs c"fputs"(text: *const c_char, stream: *mut FILE) -> c_int, stream, false,
        r => put(r, text), EOF;
    io::WRITE => fn fputs_unlocked c"fputs_unlocked"(text: *const c_char, stream: *mut FILE) -> c_int, stream, false,
        r => put(r, text), EOF;
}

/// Returns 1 for a byte, -1 for the end or an error.
fn one(r: c_int) -> i64 {
    if r < 0 { -1 } else { 1 }
}

/// Returns the number of bytes in a stream's buffer that are not written yet.
fn waiting(stream: *mut FILE) -> usize {
    type Fpending = unsafe extern "C" fn(*mut FILE) -> size_t;
    let Some(real) = next!(c"__fpending" as Fpending) else { return 0 };
    // SAFETY: the program's stream.
    unsafe { real(stream) }
}

type OnStream = unsafe extern "C" fn(*mut FILE) -> c_int;

fn flush(real: OnStream, stream: *mut FILE) -> c_int {
    if !slow_io::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(stream) };
    }
    // Null means all streams, so no single file can be recorded.
    let (fd, bytes) = if stream.is_null() { (-1, 0) } else { (descriptor(stream), waiting(stream)) };
    let call = Call::begin(io::WRITE, fd);
    // SAFETY: the program's own call, forwarded to the C library's function.
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

/// `fclose(3)`, timed if unwritten bytes are left. The path is read before the descriptor is closed.
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    let Some(real) = next!(c"fclose" as OnStream) else { return fail(libc::ENOSYS) };
    if !slow_io::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(stream) };
    }
    let bytes = waiting(stream);
    if bytes == 0 {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(stream) };
    }
    let fd = descriptor(stream);
    let path: Path = slow_io::descriptor_path(fd);
    let call = Call::begin(io::WRITE, fd);
    // SAFETY: the program's own call, forwarded to the C library's function.
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
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(text) };
    }
    // The stream may have been given another descriptor, which cannot be found out portably.
    let call = Call::begin(io::WRITE, libc::STDOUT_FILENO);
    // SAFETY: the program's own call, forwarded to the C library's function.
    let r = unsafe { real(text) };
    call.end_with(|| (put(r, text) + i64::from(r >= 0), false));
    r
}
