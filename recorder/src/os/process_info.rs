//! Processes and threads from `/proc`: program, arguments, start time, names, CPU time.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::os::clock;

/// Program, arguments and start of a process.
pub struct ProcessInfo {
    /// The PID.
    pub pid: u32,
    /// Its executable.
    pub exe: PathBuf,
    /// The program's name and its arguments.
    pub arguments: Vec<String>,
    /// Start time, CLOCK_MONOTONIC ns.
    pub start_mono_ns: u64,
}

impl ProcessInfo {
    /// Reads a process from `/proc`; `None` if it is gone.
    pub fn read(pid: u32, now_ns: u64) -> Option<ProcessInfo> {
        let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
        let arguments: Vec<String> = if bytes.is_empty() {
            thread_name(pid, pid).into_iter().collect()
        } else {
            bytes.split(|b| *b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect()
        };
        Some(ProcessInfo {
            pid,
            exe,
            arguments,
            start_mono_ns: started_ns(pid).unwrap_or(now_ns).min(now_ns),
        })
    }

    /// Returns a process of which only the name is known.
    pub fn named(pid: u32, name: &str, now_ns: u64) -> ProcessInfo {
        ProcessInfo {
            pid,
            exe: PathBuf::from(Path::new(name)),
            arguments: vec![name.to_owned()],
            start_mono_ns: now_ns,
        }
    }

    /// Returns its name: the one by which it was started (one file may have several), otherwise that of its
    /// file.
    pub fn called(&self) -> String {
        let file = self.file_name();
        self.arguments.first().and_then(|first| name_in(first, &file)).unwrap_or(file)
    }

    /// Returns the file name of the program, which the program cannot change, unlike its first argument.
    pub fn file_name(&self) -> String {
        self.exe.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Returns the name in a program's first argument. This may be a path, or a title that the program has
/// written there: `nginx: worker process`, `redis-server *:6379`. `file` is the name of its file.
fn name_in(first: &str, file: &str) -> Option<String> {
    let word = |text: &str| text.split([' ', ':']).next().unwrap_or_default().to_owned();
    let last = Path::new(first).file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
    let name = match word(first) {
        _ if last == file => last.into_owned(),
        bare if !bare.is_empty() && !bare.contains('/') => bare,
        _ => word(&last),
    };
    (!name.is_empty()).then_some(name)
}

/// Returns the name by which a process was started if its file has that name too: `redis-server` and
/// `redis-check-rdb` are the same file.
pub(crate) fn alias(pid: u32) -> Option<String> {
    let about = ProcessInfo::read(pid, 0)?;
    let called = about.called();
    let seen = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let beside = about.exe.parent()?.strip_prefix("/").ok()?.join(&called);
    let file = seen(&PathBuf::from(format!("/proc/{pid}/exe")))?;
    (seen(&PathBuf::from(format!("/proc/{pid}/root")).join(beside)) == Some(file)).then_some(called)
}

/// Returns the CPU time of a thread, ns.
pub fn cpu_ns(pid: u32, tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Returns a thread's name.
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned())
}

/// Returns a process's PID in its own PID namespace, if that is another one.
pub fn id_inside(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NStgid:"))?;
    ids.split_whitespace().nth(1)?;
    ids.split_whitespace().last()?.parse().ok()
}

/// Returns CLOCK_MONOTONIC ns of a process's start, which the kernel reports relative to boot.
fn started_ns(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks: u64 = text.get(text.rfind(')')? + 1..)?.split_whitespace().nth(19)?.parse().ok()?;
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten()?.max(1) as u64;
    let boot = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).ok()?;
    let boot_ns = boot.tv_sec() as u64 * 1_000_000_000 + boot.tv_nsec() as u64;
    let suspended = boot_ns.saturating_sub(clock::monotonic_ns());
    Some((ticks * (1_000_000_000 / per_second)).saturating_sub(suspended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_is_read_from_first_argument() {
        for (first, file, name) in [
            ("/usr/bin/xz", "xz", "xz"),
            ("redis-server *:6379", "redis-check-rdb", "redis-server"),
            ("/usr/bin/redis-server *:6379 [cluster]", "redis-check-rdb", "redis-server"),
            ("nginx: master process nginx -p /srv/www -c nginx.conf", "nginx", "nginx"),
            ("postgres: walwriter ", "postgres", "postgres"),
            ("/opt/My App/run", "real", "run"),
            ("/opt/My App", "My App", "My App"),
            ("-bash", "bash", "-bash"),
        ] {
            assert_eq!(name_in(first, file).as_deref(), Some(name), "{first}");
        }
        for nothing in ["", "/", " "] {
            assert_eq!(name_in(nothing, "x"), None, "{nothing:?}");
        }
    }

    #[test]
    fn alias_is_another_name_for_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("one");
        std::fs::copy("/bin/sleep", &file).unwrap();
        std::os::unix::fs::symlink("one", dir.path().join("other")).unwrap();
        let called = |name: &str, title: &str| {
            use std::os::unix::process::CommandExt;
            let mut child =
                std::process::Command::new(dir.path().join(name)).arg0(title).arg("600").spawn().unwrap();
            // Until it executes the file, the child has this process's executable, and for a moment none.
            let of = |what: &str| format!("/proc/{}/{what}", child.id());
            while std::fs::read_link(of("exe")).unwrap() != file
                || std::fs::read(of("cmdline")).unwrap().is_empty()
            {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let called = alias(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            called
        };
        assert_eq!(called("other", "other"), Some("other".into()));
        assert_eq!(called("one", "one"), Some("one".into()));
        assert_eq!(called("one", "worker 7"), None);
    }
}
