//! Uprobes defined in the kernel by name. Their events are tracepoints, which the threads of another process
//! may inherit.
//!
//! An event of the `uprobe` PMU must not be inherited by another process. For each new thread, the kernel
//! reads the path of the file again, in the memory of the process that starts the thread. The address is
//! ours, so the start fails. One such event per thread is no alternative: each makes every call slower, and
//! closing one takes the kernel a tenth of a second.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    time::Duration,
};

use flightline_in_signal::layout::{EventSpec, event_flags};
use rustix::mount::MountAttrFlags;

use super::{names, tracepoint};
use crate::{error, os::clock::monotonic_ns};

/// The group of our definitions in `uprobe_events`.
const GROUP: &str = "flightline";
/// The file in the tracing file system that defines uprobes.
const CONTROL: &str = "uprobe_events";
/// Limit of the list of definitions that is searched for those of killed recorders, bytes.
const MAX_LIST_BYTES: u64 = 1 << 20;
/// How often the removal of a definition is tried, and the time between. The kernel refuses it until all inherited events are closed.
const REMOVALS: u32 = 100;
const REMOVAL_INTERVAL: Duration = Duration::from_millis(10);

/// A uprobe in the kernel's list of dynamic events. It is removed on drop; its events must be closed by then.
pub struct UprobeDefinition {
    name: String,
    control: File,
}

impl UprobeDefinition {
    /// Defines the uprobe `spec`. Returns the definition and the tracepoint that replaces `spec`.
    ///
    /// # Errors
    /// The reason why the kernel does not accept it, and the remedy.
    pub fn new(spec: &EventSpec) -> Result<(UprobeDefinition, EventSpec), String> {
        let (root, _mount) = writable_root()?;
        let refused =
            |error: io::Error| format!("the kernel cannot define the uprobe: {}", error::plain(&error));
        let mut control = open_control(&root).map_err(refused)?;
        remove_abandoned(&root, &mut control);
        let path = spec.path.split(|byte| *byte == 0).next().unwrap_or_default();
        let file = File::open(OsStr::from_bytes(path)).map_err(refused)?;
        let name = format!("p{}_{}", std::process::id(), monotonic_ns());
        let kind = if spec.config == 0 { 'p' } else { 'r' };
        // The kernel splits the line at spaces and other characters, which a path may contain.
        let line = format!("{kind}:{GROUP}/{name} /proc/self/fd/{}:{:#x}\n", file.as_raw_fd(), spec.config2);
        control.write_all(line.as_bytes()).map_err(refused)?;
        let definition = UprobeDefinition { name, control };
        let id = root.join("events").join(GROUP).join(&definition.name).join("id");
        let id = tracepoint::number(&fs::read_to_string(id).map_err(refused)?)?;
        let spec = EventSpec {
            kind: names::TRACEPOINT,
            flags: spec.flags & !event_flags::PATH,
            config: id,
            config1: 0,
            config2: 0,
            ..*spec
        };
        Ok((definition, spec))
    }
}

impl Drop for UprobeDefinition {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            match remove(&mut self.control, &self.name) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(REMOVAL_INTERVAL)
                }
                // The next recorder tries again.
                Ok(()) | Err(_) => return,
            }
        }
    }
}

fn remove(control: &mut File, name: &str) -> io::Result<()> {
    control.write_all(format!("-:{GROUP}/{name}\n").as_bytes())
}

/// Returns the folder of the tracing file system, and the descriptor that keeps it mounted.
fn writable_root() -> Result<(PathBuf, Option<std::os::fd::OwnedFd>), String> {
    let mounted = tracepoint::ROOTS.iter().map(Path::new).find(|root| open_control(root).is_ok());
    if let Some(root) = mounted {
        return Ok((root.to_owned(), None));
    }
    let own = tracepoint::detached(MountAttrFlags::empty()).map_err(|error| {
        format!(
            "{}: a uprobe of a running process needs to write {}/{CONTROL}; run as root, or mount tracefs there",
            error::plain(&error),
            tracepoint::ROOTS[0]
        )
    })?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", own.as_raw_fd())), Some(own)))
}

/// Opens the list of definitions to append to it. Opening it to overwrite would remove the definitions of
/// other programs.
fn open_control(root: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(root.join(CONTROL))
}

/// Removes definitions whose recorder was killed. The kernel refuses to remove one that is in use.
fn remove_abandoned(root: &Path, control: &mut File) {
    let mut list = Vec::new();
    let read =
        File::open(root.join(CONTROL)).and_then(|file| file.take(MAX_LIST_BYTES).read_to_end(&mut list));
    if read.is_err() {
        return;
    }
    for name in String::from_utf8_lossy(&list).lines().filter_map(abandoned) {
        // Another recorder may have removed it in the meantime.
        let _ = remove(control, name);
    }
}

/// Returns the name in a line of the list, if it is ours and its recorder no longer runs.
fn abandoned(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(':')?;
    let name = rest.strip_prefix(GROUP)?.strip_prefix('/')?.split(' ').next()?;
    let (pid, _) = name.strip_prefix('p')?.split_once('_')?;
    let pid: u32 = pid.parse().ok()?;
    (!Path::new(&format!("/proc/{pid}")).exists()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_abandoned_when_their_recorder_has_ended() {
        let own = format!("p:flightline/p{}_1 /proc/self/fd/9:0x10", std::process::id());
        let table = [
            ("p:flightline/p4194999_17 /lib/x.so:0x10", Some("p4194999_17")),
            ("r:flightline/p4194999_18 /lib/x.so:0x10", Some("p4194999_18")),
            (own.as_str(), None),
            ("p:probe/p4194999_17 /lib/x.so:0x10", None),
            ("p:flightline/x4194999_17 /lib/x.so:0x10", None),
            ("p:flightline/p4194999 /lib/x.so:0x10", None),
            ("flightline", None),
            ("", None),
        ];
        for (line, expected) in table {
            assert_eq!(abandoned(line), expected, "{line}");
        }
    }
}
