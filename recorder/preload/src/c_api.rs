//! The functions of `flightline.h`.

use core::ffi::c_int;

/// 1 while this process is recorded by this object.
#[unsafe(no_mangle)]
pub extern "C" fn flightline_active() -> c_int {
    c_int::from(flightline_capture::is_active())
}
