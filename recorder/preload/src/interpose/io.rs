//! Reads, writes and similar calls. The C library's function makes the call, with its cancellation point and
//! `errno`; only the duration is measured here.

use core::ffi::{c_int, c_uint, c_void};

use flightline_capture::engines::slow_io::{self, Call};
use flightline_in_signal::payload::io;
use libc::{iovec, mmsghdr, msghdr, off_t, off64_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use crate::real::{Next, fail, look_up};

/// `timed! { OPERATION: fn NAME c"NAME"(FD, ARGUMENTS) -> RESULT, wanted }`: `wanted` is true if a result of
/// 0 bytes means the end of the file.
macro_rules! timed {
    ($($operation:expr => fn $name:ident $text:literal($fd:ident: c_int $(, $arg:ident: $type:ty)* $(,)?) -> $ret:ty,
        $wanted:expr;)*) => {
        #[allow(non_upper_case_globals, reason = "named as the functions")]
        mod real {
            use crate::real::{Next, look_up};
            look_up! { $(pub static $name: Next = Next::new($text);)* }
        }
        $(
        #[doc = concat!("`", stringify!($name), "`, timed")]
        ///
        /// # Safety
        /// As the function itself.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($fd: c_int $(, $arg: $type)*) -> $ret {
            type Function = unsafe extern "C" fn(c_int $(, $type)*) -> $ret;
            let address = real::$name.address();
            // SAFETY: null or the C library's function of that name, which has this type.
            let function = unsafe { core::mem::transmute::<*mut c_void, Option<Function>>(address) };
            let Some(function) = function else { return fail(libc::ENOSYS) as $ret };
            if !slow_io::is_enabled() {
                // SAFETY: the program's own call, forwarded to the C library's function.
                return unsafe { function($fd $(, $arg)*) };
            }
            let call = Call::begin($operation, $fd);
            // SAFETY: the program's own call, forwarded to the C library's function.
            let r = unsafe { function($fd $(, $arg)*) };
            call.end(r as i64, r == 0 && $wanted);
            r
        }
        )*
    };
}

/// # Safety
/// As `readv(2)`.
unsafe fn room(buffers: *const iovec, count: c_int) -> bool {
    // SAFETY: the kernel has just accepted the same array.
    unsafe { slow_io::any_room(buffers, count) }
}

/// # Safety
/// As `recvmsg(2)`.
unsafe fn message_room(message: *const msghdr) -> bool {
    // SAFETY: the kernel has just accepted the same structure.
    unsafe { room((*message).msg_iov, (*message).msg_iovlen as c_int) }
}

timed! {
    io::READ => fn read c"read"(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t, bytes > 0;
    io::READ => fn pread c"pread"(fd: c_int, to: *mut c_void, bytes: size_t, at: off_t) -> ssize_t, bytes > 0;
    io::READ => fn pread64 c"pread64"(fd: c_int, to: *mut c_void, bytes: size_t, at: off64_t) -> ssize_t, bytes > 0;
    // SAFETY: the kernel has just accepted the same array.
    io::READ => fn readv c"readv"(fd: c_int, to: *const iovec, count: c_int) -> ssize_t, unsafe { room(to, count) };
    io::READ => fn preadv c"preadv"(fd: c_int, to: *const iovec, count: c_int, at: off_t) -> ssize_t,
        // SAFETY: the kernel has just accepted the same array.
        unsafe { room(to, count) };
    io::READ => fn preadv64 c"preadv64"(fd: c_int, to: *const iovec, count: c_int, at: off64_t) -> ssize_t,
        // SAFETY: the kernel has just accepted the same array.
        unsafe { room(to, count) };
    io::READ => fn preadv2 c"preadv2"(fd: c_int, to: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t,
        // SAFETY: the kernel has just accepted the same array.
        unsafe { room(to, count) };
    io::READ => fn preadv64v2 c"preadv64v2"(
        fd: c_int, to: *const iovec, count: c_int, at: off64_t, flags: c_int,
    // SAFETY: the kernel has just accepted the same array.
    ) -> ssize_t, unsafe { room(to, count) };

    io::WRITE => fn write c"write"(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t, false;
    io::WRITE => fn pwrite c"pwrite"(fd: c_int, from: *const c_void, bytes: size_t, at: off_t) -> ssize_t, false;
    io::WRITE => fn pwrite64 c"pwrite64"(fd: c_int, from: *const c_void, bytes: size_t, at: off64_t) -> ssize_t, false;
    io::WRITE => fn writev c"writev"(fd: c_int, from: *const iovec, count: c_int) -> ssize_t, false;
    io::WRITE => fn pwritev c"pwritev"(fd: c_int, from: *const iovec, count: c_int, at: off_t) -> ssize_t, false;
    io::WRITE => fn pwritev64 c"pwritev64"(fd: c_int, from: *const iovec, count: c_int, at: off64_t) -> ssize_t, false;
    io::WRITE => fn pwritev2 c"pwritev2"(
        fd: c_int, from: *const iovec, count: c_int, at: off_t, flags: c_int,
    ) -> ssize_t, false;
    io::WRITE => fn pwritev64v2 c"pwritev64v2"(
        fd: c_int, from: *const iovec, count: c_int, at: off64_t, flags: c_int,
    ) -> ssize_t, false;

    io::READ => fn recv c"recv"(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t, bytes > 0;
    io::READ => fn recvfrom c"recvfrom"(
        fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int, peer: *mut sockaddr, len: *mut socklen_t,
    ) -> ssize_t, bytes > 0;
    io::READ => fn recvmsg c"recvmsg"(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t,
        // SAFETY: the kernel has just accepted the same structure.
        unsafe { message_room(message) };
    io::WRITE => fn send c"send"(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> ssize_t, false;
    io::WRITE => fn sendto c"sendto"(
        fd: c_int, from: *const c_void, bytes: size_t, flags: c_int, peer: *const sockaddr, len: socklen_t,
    ) -> ssize_t, false;
    io::WRITE => fn sendmsg c"sendmsg"(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t, false;
    io::WRITE => fn sendfile c"sendfile"(to: c_int, from: c_int, at: *mut off_t, bytes: size_t) -> ssize_t, false;
    io::WRITE => fn sendfile64 c"sendfile64"(to: c_int, from: c_int, at: *mut off64_t, bytes: size_t) -> ssize_t, false;

    io::FORCE => fn fsync c"fsync"(fd: c_int) -> c_int, false;
    io::FORCE_DATA => fn fdatasync c"fdatasync"(fd: c_int) -> c_int, false;
    io::FORCE => fn syncfs c"syncfs"(fd: c_int) -> c_int, false;
    io::ACCEPT => fn accept c"accept"(fd: c_int, peer: *mut sockaddr, len: *mut socklen_t) -> c_int, false;
    io::ACCEPT => fn accept4 c"accept4"(fd: c_int, peer: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int,
        false;

    // Programs built with _FORTIFY_SOURCE call these functions, in which the C library checks the size of the
    // buffer.
    io::READ => fn __read_chk c"__read_chk"(fd: c_int, to: *mut c_void, bytes: size_t, room: size_t) -> ssize_t,
        bytes > 0;
    io::READ => fn __pread_chk c"__pread_chk"(
        fd: c_int, to: *mut c_void, bytes: size_t, at: off_t, room: size_t,
    ) -> ssize_t, bytes > 0;
    io::READ => fn __pread64_chk c"__pread64_chk"(
        fd: c_int, to: *mut c_void, bytes: size_t, at: off64_t, room: size_t,
    ) -> ssize_t, bytes > 0;
    io::READ => fn __recv_chk c"__recv_chk"(
        fd: c_int, to: *mut c_void, bytes: size_t, room: size_t, flags: c_int,
    ) -> ssize_t, bytes > 0;
    io::READ => fn __recvfrom_chk c"__recvfrom_chk"(
        fd: c_int, to: *mut c_void, bytes: size_t, room: size_t, flags: c_int, peer: *mut sockaddr,
        len: *mut socklen_t,
    ) -> ssize_t, bytes > 0;
}

look_up! { static CONNECT: Next = Next::new(c"connect"); }

/// `connect(2)`, timed
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, peer: *const sockaddr, len: socklen_t) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
    let address = CONNECT.address();
    // SAFETY: null or the C library's function of that name, which has this type.
    let real = unsafe { core::mem::transmute::<*mut c_void, Option<Function>>(address) };
    let Some(real) = real else { return fail(libc::ENOSYS) };
    if !slow_io::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(fd, peer, len) };
    }
    let call = Call::begin(io::CONNECT, fd);
    // SAFETY: the program's own call, forwarded to the C library's function.
    let r = unsafe { real(fd, peer, len) };
    // SAFETY: the calling thread's own errno.
    let bad = r < 0 && matches!(unsafe { *libc::__errno_location() }, libc::EFAULT | libc::EINVAL);
    let peer = if peer.is_null() || bad {
        &[]
    } else {
        // SAFETY: the kernel has just read that many bytes there.
        unsafe { core::slice::from_raw_parts(peer.cast::<u8>(), len as usize) }
    };
    call.end_connect(i64::from(r), peer);
    r
}

/// Returns the bytes of `count` messages that were sent or received.
///
/// # Safety
/// The kernel has filled `count` entries.
unsafe fn total(messages: *const mmsghdr, count: c_int) -> i64 {
    let all = (0..count.max(0) as usize).map(|i| {
        // SAFETY: the caller guarantees that the kernel has filled `count` entries.
        i64::from(unsafe { (*messages.add(i)).msg_len })
    });
    if count < 0 { -1 } else { all.sum() }
}

/// `recvmmsg(2)`, timed
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int;
    let Some(real) = crate::real::next!(c"recvmmsg" as Function) else { return fail(libc::ENOSYS) };
    if !slow_io::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(fd, messages, count, flags, timeout) };
    }
    let call = Call::begin(io::READ, fd);
    // SAFETY: the program's own call, forwarded to the C library's function.
    let r = unsafe { real(fd, messages, count, flags, timeout) };
    // SAFETY: filled by the call.
    call.end(unsafe { total(messages, r) }, false);
    r
}

/// `sendmmsg(2)`, timed
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
    let Some(real) = crate::real::next!(c"sendmmsg" as Function) else { return fail(libc::ENOSYS) };
    if !slow_io::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(fd, messages, count, flags) };
    }
    let call = Call::begin(io::WRITE, fd);
    // SAFETY: the program's own call, forwarded to the C library's function.
    let r = unsafe { real(fd, messages, count, flags) };
    // SAFETY: filled by the call.
    call.end(unsafe { total(messages, r) }, false);
    r
}

/// `copy_file_range(2)`, timed; recorded with the file that is written.
///
/// # Safety
/// As the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    bytes: size_t,
    flags: c_uint,
) -> ssize_t {
    type At = *mut off64_t;
    type Function = unsafe extern "C" fn(c_int, At, c_int, At, size_t, c_uint) -> ssize_t;
    let Some(real) = crate::real::next!(c"copy_file_range" as Function) else {
        return fail(libc::ENOSYS) as ssize_t;
    };
    if !slow_io::is_enabled() {
        // SAFETY: the program's own call, forwarded to the C library's function.
        return unsafe { real(from, from_at, to, to_at, bytes, flags) };
    }
    let call = Call::begin(io::WRITE, to);
    // SAFETY: the program's own call, forwarded to the C library's function.
    let r = unsafe { real(from, from_at, to, to_at, bytes, flags) };
    call.end(r as i64, false);
    r
}
