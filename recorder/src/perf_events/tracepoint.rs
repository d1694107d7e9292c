//! Tracepoints: their number is in a file that usually root alone may read.

use std::{fs, io, path::Path};

use super::{Meaning, names};

const ROOTS: [&str; 2] = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];

/// The tracepoint `group:event`.
pub fn find(group: &str, event: &str) -> Result<Meaning, String> {
    let plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    };
    if !plain(group) || !plain(event) {
        return Err("no such event; tracepoints are named group:event, as sched:sched_switch".into());
    }
    let mut mounted = false;
    for root in ROOTS {
        match fs::read_to_string(Path::new(root).join(group).join(event).join("id")) {
            Ok(text) => {
                let id = text.trim().parse().map_err(|_| "the kernel does not tell its number".to_owned())?;
                return Ok(Meaning::new(names::TRACEPOINT, id, 1).in_kernel());
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(format!("only root may read {root}; run as root, or let your group read it"));
            }
            Err(_) => mounted |= Path::new(root).is_dir(),
        }
    }
    Err(if mounted {
        "no such tracepoint; `ls /sys/kernel/tracing/events` shows their groups".into()
    } else {
        "the tracing file system is not mounted; as root: mount -t tracefs nodev /sys/kernel/tracing".into()
    })
}
