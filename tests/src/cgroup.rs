//! Creates control groups with little memory, where that is permitted.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A control group. Dropping the value removes it, once it contains no process.
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// Creates a group with this memory limit in bytes; `None` if this user or kernel cannot.
    pub fn new(bytes: u64) -> Option<Group> {
        // With 2 the machine would panic instead of killing a process.
        if fs::read_to_string("/proc/sys/vm/panic_on_oom").map_or(true, |v| v.trim() == "2") {
            return None;
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("flightline-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let &[_, at, kind, options, ..] = words.as_slice() else { return None };
            let limit = match kind {
                "cgroup" if options.split(',').any(|o| o == "memory") => "memory.limit_in_bytes",
                "cgroup2" => "memory.max",
                _ => return None,
            };
            let group = Group { path: PathBuf::from(at).join(&name) };
            // Fails harmlessly if the controller is already enabled or belongs to cgroup v1.
            let _ = fs::write(PathBuf::from(at).join("cgroup.subtree_control"), "+memory");
            fs::create_dir(&group.path).ok()?;
            fs::write(group.path.join(limit), bytes.to_string()).ok()?;
            // Memory that can be swapped out would not end the process.
            for (file, none) in [("memory.memsw.limit_in_bytes", bytes), ("memory.swap.max", 0)] {
                let _ = fs::write(group.path.join(file), none.to_string());
            }
            Some(group)
        })
    }

    /// The file to which a process writes its id to join.
    pub fn members(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Processes that the kernel has killed here.
    pub fn killed(&self) -> u64 {
        ["memory.oom_control", "memory.events"]
            .iter()
            .filter_map(|file| fs::read_to_string(self.path.join(file)).ok())
            .find_map(|text| text.lines().find_map(|l| l.strip_prefix("oom_kill ")?.trim().parse().ok()))
            .unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just died is a member for a moment.
        for _ in 0..500 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        eprintln!("{} is left", self.path.display());
    }
}
