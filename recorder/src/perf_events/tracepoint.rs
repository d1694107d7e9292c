//! Tracepoints: their IDs and record formats are in files that usually only root may read.

use std::{
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::{Meaning, names};

/// Usual mount points of the tracing file system.
pub(super) const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A tracepoint as this kernel describes it.
#[derive(Debug)]
pub struct Tracepoint {
    /// Its ID, for `perf_event_attr.config`.
    pub id: u64,
    /// The text of its `format` file.
    format: String,
}

impl Tracepoint {
    /// Returns offset and size in bytes of a field of its records.
    ///
    /// # Errors
    /// There is no field with this name.
    pub fn field(&self, name: &str) -> Result<(usize, usize), String> {
        self.fields()
            .find(|(found, ..)| *found == name)
            .map(|(_, offset, size)| (offset, size))
            .ok_or_else(|| format!("this kernel's tracepoint {} has no field {name}", self.id))
    }

    /// Parses lines such as `field:char prev_comm[16]; offset:8; size:16; signed:0;`, with tabs between.
    fn fields(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        self.format.lines().filter_map(|line| {
            let (declared, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
            let name = declared.split_whitespace().next_back()?.split('[').next()?;
            let number = |key: &str| {
                let (_, rest) = rest.split_once(key)?;
                rest.split(';').next()?.trim().parse().ok()
            };
            Some((name.trim_start_matches('*'), number("offset:")?, number("size:")?))
        })
    }

    /// Returns the names of flags in its print format, in order: `{ 0x00000001, "S" }`.
    pub fn flags(&self) -> Vec<(u64, String)> {
        let Some(text) = self.format.lines().find_map(|line| line.strip_prefix("print fmt:")) else {
            return Vec::new();
        };
        let pairs = text.split('{').skip(1).filter_map(|part| {
            let (number, name) = part.split('}').next()?.split_once(',')?;
            let number = number.trim();
            let number = match number.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            Some((number, name.trim().trim_matches('"').to_owned()))
        });
        pairs.collect()
    }

    /// Returns a made-up tracepoint for tests.
    #[cfg(test)]
    pub fn from_format(id: u64, format: &str) -> Tracepoint {
        Tracepoint { id, format: format.to_owned() }
    }
}

/// Returns the meaning of the tracepoint `group:event`.
pub fn find(group: &str, event: &str) -> Result<Meaning, String> {
    let plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    };
    if !plain(group) || !plain(event) {
        return Err(
            "unknown event; the name of a tracepoint is GROUP:EVENT, such as sched:sched_switch".into()
        );
    }
    let id = number(&with_folder(group, event, |folder| fs::read_to_string(folder.join("id")))?)?;
    Ok(Meaning::new(names::TRACEPOINT, id, 1).in_kernel())
}

/// Returns the tracepoint `group:event` with the format of its records.
///
/// # Errors
/// The reason why the format is not available, and the remedy.
pub fn describe(group: &str, event: &str) -> Result<Tracepoint, String> {
    let read = |folder: &Path| {
        Ok((fs::read_to_string(folder.join("id"))?, fs::read_to_string(folder.join("format"))?))
    };
    let (id, format) = with_folder(group, event, read)?;
    Ok(Tracepoint { id: number(&id)?, format })
}

/// Parses the text of an `id` file.
pub(super) fn number(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| "the kernel does not report the number of the tracepoint".to_owned())
}

/// Calls `read` with the folder of an event.
fn with_folder<T>(group: &str, event: &str, read: impl Fn(&Path) -> io::Result<T>) -> Result<T, String> {
    let mut mounted = false;
    for root in ROOTS {
        let events = Path::new(root).join("events");
        match read(&events.join(group).join(event)) {
            Ok(found) => return Ok(found),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(format!(
                    "only root can read {root}/events; run flightline as root, or give your group read permission"
                ));
            }
            Err(_) => mounted |= events.is_dir(),
        }
    }
    if mounted {
        return Err("unknown tracepoint; `ls /sys/kernel/tracing/events` lists the groups".into());
    }
    if let Ok(own) = detached(MountAttrFlags::MOUNT_ATTR_RDONLY) {
        let root = PathBuf::from(format!("/proc/self/fd/{}/events", own.as_raw_fd()));
        return read(&root.join(group).join(event)).map_err(|_| {
            "unknown tracepoint; to see the tracepoints, run `mount -t tracefs nodev /sys/kernel/tracing` as root".into()
        });
    }
    Err("the tracing file system is not mounted; run `mount -t tracefs nodev /sys/kernel/tracing` as root"
        .into())
}

/// Mounts the tracing file system outside of the file tree. The mount ends with its descriptor. Needs CAP_SYS_ADMIN.
pub(super) fn detached(flags: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 372\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\n\
        print fmt: \"prev_state=%s\", __print_flags(REC->prev_state & 1, \"|\", { 0x00000001, \"S\" }, { 2, \"D\" }) : \"R\"\n";

    #[test]
    fn tracepoint_fields_and_flags_are_parsed() {
        let point = Tracepoint::from_format(372, SWITCH);
        assert_eq!(point.field("common_type"), Ok((0, 2)));
        assert_eq!(point.field("prev_comm"), Ok((8, 16)));
        assert_eq!(point.field("prev_state"), Ok((32, 8)));
        assert!(point.field("next_pid").is_err());
        assert_eq!(point.flags(), [(1, "S".to_owned()), (2, "D".to_owned())]);
        assert!(Tracepoint::from_format(1, "field:;offset:x;").flags().is_empty());
    }

    #[test]
    fn tracepoint_names_cannot_escape_their_folder() {
        for (group, event) in [("..", "x"), ("a/b", "x"), ("sched", ""), ("sched", "../x")] {
            assert!(find(group, event).is_err());
        }
    }
}
