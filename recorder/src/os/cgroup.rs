//! The control group of a process (version 1 and 2): its limits and its usage.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// No limit; the JDK's value.
pub const UNLIMITED: i64 = -1;
/// Not available; the JDK's value.
pub const UNSUPPORTED: i64 = -2;

/// The locations of the files of a process's control group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// One directory per controller; `None` where it is not mounted.
    V1 {
        /// `cpu`.
        cpu: Option<PathBuf>,
        /// `cpuacct`.
        cpuacct: Option<PathBuf>,
        /// `memory`.
        memory: Option<PathBuf>,
        /// `blkio`.
        blkio: Option<PathBuf>,
        /// `cpuset`.
        cpuset: Option<PathBuf>,
    },
    /// One directory for all controllers.
    V2(PathBuf),
}

/// `jdk.ContainerConfiguration`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// "cgroupv1" or "cgroupv2".
    pub kind: &'static str,
    /// µs.
    pub period_us: i64,
    /// µs per period.
    pub quota_us: i64,
    /// Relative weight.
    pub shares: i64,
    /// Processors that may be used.
    pub cpus: i64,
    /// Bytes.
    pub memory_soft: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub memory_and_swap: i64,
}

/// The usage of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Total, user, system, ns.
    pub cpu_ns: [i64; 3],
    /// Elapsed periods, throttled periods, throttled time in ns.
    pub throttled: [i64; 3],
    /// Times the limit was hit, bytes, bytes with swap.
    pub memory: [i64; 3],
    /// Requests, bytes.
    pub io: [i64; 2],
}

impl Group {
    /// Returns the group of `pid`; `None` for the root group, which has neither limits nor counters.
    pub fn for_process(pid: u32) -> Option<Group> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        Group::locate(&groups, &mounts)
    }

    fn locate(groups: &str, mounts: &str) -> Option<Group> {
        let mut unified = None;
        let mut found: [Option<(PathBuf, bool)>; 5] = Default::default();
        const CONTROLLERS: [&str; 5] = ["cpu", "cpuacct", "memory", "blkio", "cpuset"];
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            if controllers.is_empty() {
                unified = directory(mounts, None, path).map(|dir| (dir, path != "/"));
            }
            for controller in controllers.split(',') {
                if let Some(at) = CONTROLLERS.iter().position(|c| *c == controller) {
                    found[at] = directory(mounts, Some(controller), path).map(|dir| (dir, path != "/"));
                }
            }
        }
        if found.iter().flatten().any(|(_, inside)| *inside) {
            let [cpu, cpuacct, memory, blkio, cpuset] = found.map(|f| f.map(|(dir, _)| dir));
            return Some(Group::V1 { cpu, cpuacct, memory, blkio, cpuset });
        }
        // In its own namespace, a group is named "/"; but only the real root has no limits.
        unified
            .filter(|(dir, inside)| *inside || dir.join("memory.max").exists())
            .map(|(dir, _)| Group::V2(dir))
    }

    /// Returns its limits.
    pub fn configuration(&self) -> Configuration {
        let cpus = |dir: Option<&PathBuf>, name: &str| {
            dir.and_then(|d| fs::read_to_string(d.join(name)).ok()).and_then(|t| count_cpus(&t))
        };
        let host = crate::os::system::processors() as i64;
        let (mut config, quota_cpus) = match self {
            Group::V2(dir) => {
                let text = fs::read_to_string(dir.join("cpu.max")).unwrap_or_default();
                let mut words = text.split_whitespace();
                let quota_us = limit(words.next());
                let period_us = words.next().and_then(|w| w.parse().ok()).unwrap_or(UNSUPPORTED);
                let memory = limit(read(dir, "memory.max").as_deref());
                let swap = limit(read(dir, "memory.swap.max").as_deref());
                let both =
                    if memory >= 0 && swap >= 0 { memory.saturating_add(swap) } else { memory.min(swap) };
                let config = Configuration {
                    kind: "cgroupv2",
                    period_us,
                    quota_us,
                    shares: number(dir, "cpu.weight").map_or(UNSUPPORTED, weight_to_shares),
                    cpus: cpus(Some(dir), "cpuset.cpus.effective").unwrap_or(host),
                    memory_soft: limit(read(dir, "memory.low").as_deref()),
                    memory,
                    memory_and_swap: both,
                };
                (config, quota_us.checked_div(period_us))
            }
            Group::V1 { cpu, memory, cpuset, .. } => {
                let of = |dir: &Option<PathBuf>, name| dir.as_ref().and_then(|d| number(d, name));
                let bytes = |name| of(memory, name).map_or(UNSUPPORTED, no_limit);
                let period_us = of(cpu, "cpu.cfs_period_us").unwrap_or(UNSUPPORTED);
                let quota_us = of(cpu, "cpu.cfs_quota_us").unwrap_or(UNSUPPORTED);
                let config = Configuration {
                    kind: "cgroupv1",
                    period_us,
                    quota_us,
                    shares: of(cpu, "cpu.shares").unwrap_or(UNSUPPORTED),
                    cpus: cpus(cpuset.as_ref(), "cpuset.effective_cpus").unwrap_or(host),
                    memory_soft: bytes("memory.soft_limit_in_bytes"),
                    memory: bytes("memory.limit_in_bytes"),
                    memory_and_swap: bytes("memory.memsw.limit_in_bytes"),
                };
                (config, quota_us.checked_div(period_us))
            }
        };
        // A quota of one and a half processors keeps two of them busy.
        if config.quota_us > 0 && config.period_us > 0 {
            let whole = quota_cpus.unwrap_or(0) + i64::from(config.quota_us % config.period_us != 0);
            config.cpus = config.cpus.min(whole.max(1));
        }
        config
    }

    /// Returns its usage so far.
    pub fn usage(&self) -> Usage {
        match self {
            Group::V2(dir) => {
                let cpu = fs::read_to_string(dir.join("cpu.stat")).unwrap_or_default();
                let us = |key| keyed(&cpu, key).map_or(UNSUPPORTED, |n| n.saturating_mul(1000));
                let memory = number(dir, "memory.current").unwrap_or(UNSUPPORTED);
                let swap = number(dir, "memory.swap.current");
                let events = fs::read_to_string(dir.join("memory.events")).unwrap_or_default();
                let io = fs::read_to_string(dir.join("io.stat"));
                Usage {
                    cpu_ns: [us("usage_usec"), us("user_usec"), us("system_usec")],
                    throttled: [
                        keyed(&cpu, "nr_periods").unwrap_or(UNSUPPORTED),
                        keyed(&cpu, "nr_throttled").unwrap_or(UNSUPPORTED),
                        us("throttled_usec"),
                    ],
                    memory: [
                        keyed(&events, "max").unwrap_or(UNSUPPORTED),
                        memory,
                        swap.map_or(memory, |swap| memory.saturating_add(swap)),
                    ],
                    io: io.map_or([UNSUPPORTED; 2], |io| {
                        [sum_after(&io, &["rios=", "wios="]), sum_after(&io, &["rbytes=", "wbytes="])]
                    }),
                }
            }
            Group::V1 { cpu, cpuacct, memory, blkio, .. } => {
                let text = |dir: &Option<PathBuf>, name: &str| {
                    dir.as_ref().and_then(|d| fs::read_to_string(d.join(name)).ok()).unwrap_or_default()
                };
                let of = |dir: &Option<PathBuf>, name| {
                    dir.as_ref().and_then(|d| number(d, name)).unwrap_or(UNSUPPORTED)
                };
                let split = text(cpuacct, "cpuacct.stat");
                // In ticks of 1/100 s, regardless of the kernel's own tick.
                let ticks = |key| keyed(&split, key).map_or(UNSUPPORTED, |n| n.saturating_mul(10_000_000));
                let stat = text(cpu, "cpu.stat");
                let of_stat = |key| keyed(&stat, key).unwrap_or(UNSUPPORTED);
                let total = |name| keyed(&text(blkio, name), "Total").unwrap_or(UNSUPPORTED);
                Usage {
                    cpu_ns: [of(cpuacct, "cpuacct.usage"), ticks("user"), ticks("system")],
                    throttled: [of_stat("nr_periods"), of_stat("nr_throttled"), of_stat("throttled_time")],
                    memory: [
                        of(memory, "memory.failcnt"),
                        of(memory, "memory.usage_in_bytes"),
                        of(memory, "memory.memsw.usage_in_bytes"),
                    ],
                    io: [total("blkio.throttle.io_serviced"), total("blkio.throttle.io_service_bytes")],
                }
            }
        }
    }
}

/// Returns the directory of a group below the mount of its controller (of the unified hierarchy without
/// `controller`).
fn directory(mounts: &str, controller: Option<&str>, path: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        // 36 35 98:0 /root /mount options … - type source options
        let (front, back) = line.split_once(" - ")?;
        let mut back = back.split(' ');
        let (kind, options) = (back.next()?, back.nth(1)?);
        let fits = match controller {
            None => kind == "cgroup2",
            Some(controller) => kind == "cgroup" && options.split(',').any(|o| o == controller),
        };
        let mut front = front.split(' ').skip(3);
        let (root, mount) = (front.next()?, front.next()?);
        if !fits {
            return None;
        }
        // A container sees its own group as the root of the mount.
        let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
        let dir = Path::new(mount).join(below.trim_start_matches('/'));
        Some(if dir.exists() { dir } else { PathBuf::from(mount) })
    })
}

fn read(dir: &Path, name: &str) -> Option<String> {
    fs::read_to_string(dir.join(name)).ok().map(|text| text.trim().to_owned())
}

fn number(dir: &Path, name: &str) -> Option<i64> {
    read(dir, name)?.parse().ok()
}

/// Parses a number or "max".
fn limit(text: Option<&str>) -> i64 {
    match text {
        Some("max") => UNLIMITED,
        Some(text) => text.parse().unwrap_or(UNSUPPORTED),
        None => UNSUPPORTED,
    }
}

/// Version 1 expresses "no limit" as a number near the maximum, rounded to pages.
fn no_limit(bytes: i64) -> i64 {
    if bytes >= i64::MAX - 65535 { UNLIMITED } else { bytes }
}

/// Converts a weight of version 2 (1 to 10,000) to shares of version 1 (2 to 262,144), with the kernel's
/// linear formula.
fn weight_to_shares(weight: i64) -> i64 {
    2 + (weight.clamp(1, 10_000) - 1) * 262_142 / 9_999
}

/// Returns the number after a word, in lines `word number`.
fn keyed(text: &str, key: &str) -> Option<i64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Returns the sum of all numbers after these words.
fn sum_after(text: &str, words: &[&str]) -> i64 {
    let number = |word: &str| words.iter().find_map(|w| word.strip_prefix(w)?.parse::<i64>().ok());
    text.split_whitespace().filter_map(number).fold(0, i64::saturating_add)
}

/// Counts the processors of a list: `0-3,7` → 5.
fn count_cpus(list: &str) -> Option<i64> {
    let mut count = 0;
    for range in list.trim().split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (i64, i64) = (from.parse().ok()?, to.parse().ok()?);
        count += to.checked_sub(from)?.checked_add(1).filter(|n| *n > 0)?;
    }
    Some(count)
}

/// Returns true if this process is in a control group, and so probably those that it records.
pub fn in_container() -> bool {
    static IN_CONTAINER: OnceLock<bool> = OnceLock::new();
    *IN_CONTAINER.get_or_init(|| Group::for_process(std::process::id()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn cgroup_v2_files_are_read() {
        let dir = folder(&[
            ("cpu.max", "150000 100000\n"),
            ("cpu.weight", "100\n"),
            ("memory.max", "1073741824\n"),
            ("memory.low", "0\n"),
            ("memory.swap.max", "max\n"),
            ("memory.current", "5000\n"),
            ("memory.swap.current", "70\n"),
            ("memory.events", "low 0\nhigh 0\nmax 12\noom 0\n"),
            (
                "cpu.stat",
                "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnr_periods 5\nnr_throttled 2\nthrottled_usec 7\n",
            ),
            (
                "io.stat",
                "8:0 rbytes=100 wbytes=20 rios=3 wios=4 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2 rios=1 wios=1\n",
            ),
            ("cpuset.cpus.effective", "0-3,8\n"),
        ]);
        let group = Group::V2(dir.path().to_owned());
        assert_eq!(
            group.configuration(),
            Configuration {
                kind: "cgroupv2",
                period_us: 100_000,
                quota_us: 150_000,
                shares: 2597,
                cpus: 2,
                memory_soft: 0,
                memory: 1 << 30,
                memory_and_swap: UNLIMITED,
            }
        );
        assert_eq!(
            group.usage(),
            Usage {
                cpu_ns: [30_000, 20_000, 10_000],
                throttled: [5, 2, 7000],
                memory: [12, 5000, 5070],
                io: [9, 123],
            }
        );
    }

    #[test]
    fn cgroup_v1_files_are_read() {
        let dir = folder(&[
            ("cpu.cfs_quota_us", "-1\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpu.shares", "1024\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.soft_limit_in_bytes", "4096\n"),
            ("memory.usage_in_bytes", "77\n"),
            ("memory.failcnt", "3\n"),
            ("cpuacct.usage", "123456\n"),
            ("cpuacct.stat", "user 7\nsystem 2\n"),
            ("cpu.stat", "nr_periods 4\nnr_throttled 1\nthrottled_time 99\n"),
            ("blkio.throttle.io_serviced", "8:0 Read 3\n8:0 Write 4\n8:0 Total 7\nTotal 7\n"),
        ]);
        let here = Some(dir.path().to_owned());
        let group = Group::V1 {
            cpu: here.clone(),
            cpuacct: here.clone(),
            memory: here.clone(),
            blkio: here,
            cpuset: None,
        };
        let config = group.configuration();
        assert_eq!(
            (config.quota_us, config.shares, config.memory, config.memory_soft),
            (-1, 1024, UNLIMITED, 4096)
        );
        assert_eq!(config.memory_and_swap, UNSUPPORTED);
        assert!(config.cpus >= 1);
        assert_eq!(
            group.usage(),
            Usage {
                cpu_ns: [123_456, 70_000_000, 20_000_000],
                throttled: [4, 1, 99],
                memory: [3, 77, UNSUPPORTED],
                io: [7, UNSUPPORTED],
            }
        );
    }

    #[test]
    fn groups_are_found_below_their_mounts() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().to_str().unwrap();
        fs::create_dir_all(dir.path().join("m/svc/x")).unwrap();
        fs::create_dir_all(dir.path().join("u/svc")).unwrap();
        let mounts = format!(
            "35 31 0:32 / {at}/m rw,relatime - cgroup cgroup rw,memory\n41 31 0:38 / {at}/u rw - cgroup2 cgroup2 rw\n"
        );
        let Some(Group::V1 { memory, cpu, .. }) = Group::locate("4:memory:/svc/x\n0::/\n", &mounts) else {
            panic!("version 1");
        };
        assert_eq!((memory, cpu), (Some(dir.path().join("m/svc/x")), None));
        assert_eq!(
            Group::locate("4:memory:/\n0::/svc\n", &mounts),
            Some(Group::V2(dir.path().join("u/svc")))
        );
        assert_eq!(Group::locate("4:memory:/\n0::/\n", &mounts), None, "nothing limits it");
        // A container that sees its group as the root of the mount.
        let mounts = format!("35 31 0:32 /docker/1 {at}/m rw - cgroup cgroup rw,memory\n");
        let Some(Group::V1 { memory, .. }) = Group::locate("4:memory:/docker/1\n", &mounts) else {
            panic!("in a container");
        };
        assert_eq!(memory, Some(dir.path().join("m")));
        assert_eq!(Group::locate("nonsense\n:::\n4:memory", "x - cgroup\n - - -\n"), None);
    }

    #[test]
    fn processor_lists_are_counted() {
        assert_eq!(count_cpus("0-3,8\n"), Some(5));
        for bad in ["", "3-1", "a-b", "0-"] {
            assert_eq!(count_cpus(bad), None, "{bad}");
        }
        assert_eq!((weight_to_shares(1), weight_to_shares(10_000)), (2, 262_144));
    }
}
