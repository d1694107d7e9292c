//! Locates traced functions in this process: their file is identified by device and inode, its address by the
//! log of modules.

use core::sync::atomic::Ordering::{Relaxed, Release};

use flightline_in_signal::layout::{MAX_TRACES, SharedCell, TraceSpec};

use crate::os::{self, Text};
use crate::session::Attached;
use crate::{modules, sandbox};

/// Searches the loaded modules for the files of traced functions. The breakpoints are set when threads are
/// armed.
pub fn find(attached: &Attached) {
    let fixed = &attached.state.fixed;
    let header = attached.header();
    let count = (fixed.trace_count as usize).min(MAX_TRACES);
    let places = attached.state.private.traces.entry.iter().zip(&header.engine.trace_errno);
    for (spec, (entry, errno)) in fixed.traces.iter().zip(places).take(count) {
        if sandbox::filtered() {
            errno.store(libc::EPERM, Relaxed);
            continue;
        }
        errno.store(libc::ENOENT, Relaxed);
        let module = modules::log(attached)
            .iter()
            .map(SharedCell::load)
            .find(|m| is_file(attached.string(m.path), spec));
        if let Some(module) = module {
            errno.store(0, Relaxed);
            entry.store(module.bias.wrapping_add(spec.address), Release);
        }
    }
}

fn is_file(path: &[u8], spec: &TraceSpec) -> bool {
    let mut name = Text::<1024>::new();
    name.put(path);
    let file = name.cstr().and_then(|name| os::open(name, libc::O_PATH, 0));
    file.and_then(|file| os::stat(&file)).is_ok_and(|st| st.st_dev == spec.device && st.st_ino == spec.inode)
}
