//! Information about the machine and about processes: versions, processors, CPU time, memory.

use std::{collections::HashMap, fs, sync::OnceLock};

use nix::unistd::{SysconfVar, sysconf};

/// Returns the kernel's name, release, version, and the machine type.
pub fn os_version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(read_os_version)
}

fn read_os_version() -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = release.lines().find_map(|l| l.strip_prefix("PRETTY_NAME=")).unwrap_or("").trim_matches('"');
    format!(
        "{} {} {} {} {}",
        read("ostype").trim(),
        read("osrelease").trim(),
        read("version").trim(),
        std::env::consts::ARCH,
        pretty
    )
    .trim_end()
    .to_owned()
}

/// Returns the resident memory of a process, bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096);
    pages.saturating_mul(u64::try_from(page).unwrap_or(4096))
}

/// The processors.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Model name.
    pub model: String,
    /// Physical packages.
    pub sockets: i32,
    /// Physical cores.
    pub cores: i32,
    /// Logical processors.
    pub threads: i32,
}

/// Returns the processors, from `/proc/cpuinfo`.
pub fn cpu() -> &'static Cpu {
    static CPU: OnceLock<Cpu> = OnceLock::new();
    CPU.get_or_init(|| parse_cpuinfo(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()))
}

fn parse_cpuinfo(text: &str) -> Cpu {
    let mut cpu = Cpu::default();
    let (mut sockets, mut cores) = (HashMap::new(), HashMap::new());
    let mut socket = "";
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key.trim() {
            "processor" => cpu.threads += 1,
            "model name" if cpu.model.is_empty() => value.clone_into(&mut cpu.model),
            "CPU part" if cpu.model.is_empty() => {
                cpu.model = format!("{} part {value}", std::env::consts::ARCH)
            }
            "physical id" => {
                socket = value;
                sockets.insert(value, ());
            }
            "core id" => {
                cores.insert((socket, value), ());
            }
            _ => {}
        }
    }
    cpu.sockets = sockets.len().max(1) as i32;
    cpu.cores = if cores.is_empty() { cpu.threads } else { cores.len() as i32 };
    cpu
}

/// Values from `/proc/stat`: busy and total CPU time in clock ticks, and context switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    busy: u64,
    all: u64,
    switches: u64,
}

impl Machine {
    /// Returns the busy share of all processors since `old`.
    pub fn busy_since(&self, old: Machine) -> f32 {
        let (busy, all) = (self.busy.saturating_sub(old.busy), self.all.saturating_sub(old.all));
        if all == 0 { 0.0 } else { (busy as f64 / all as f64).clamp(0.0, 1.0) as f32 }
    }

    /// Returns the number of context switches since `old`.
    pub fn switches_since(&self, old: Machine) -> u64 {
        self.switches.saturating_sub(old.switches)
    }
}

/// Reads the current values.
pub fn machine() -> Option<Machine> {
    parse_machine(&fs::read_to_string("/proc/stat").ok()?)
}

fn parse_machine(text: &str) -> Option<Machine> {
    let numbers: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
    let all: u64 = numbers.iter().sum();
    // Fields: user nice system idle iowait irq softirq steal.
    let idle = numbers.get(3)? + numbers.get(4)?;
    let switches = text.lines().find_map(|l| l.strip_prefix("ctxt ")?.trim().parse().ok()).unwrap_or(0);
    Some(Machine { busy: all - idle, all, switches })
}

/// Values of a process from `/proc/PID/stat` and `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStat {
    /// User and system time in clock ticks.
    ticks: [u64; 2],
    /// Number of threads.
    pub threads: i32,
    /// Page faults without I/O since its start.
    pub minor_faults: u64,
    /// Page faults with I/O since its start.
    pub major_faults: u64,
    /// Resident memory, bytes.
    pub resident: u64,
    /// Peak of resident memory, bytes.
    pub resident_peak: u64,
}

impl ProcessStat {
    /// Returns user and system time since `old`, seconds.
    pub fn used_since(&self, old: ProcessStat) -> [f64; 2] {
        [0, 1].map(|i| self.ticks[i].saturating_sub(old.ticks[i]) as f64 / ticks_per_second())
    }
}

/// Reads the values of a process.
pub fn process(pid: u32) -> Option<ProcessStat> {
    let mut stat = parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kb = |key: &str| status.lines().find_map(|l| parse_kb(l, key)).unwrap_or(0);
    stat.resident = kb("VmRSS:");
    stat.resident_peak = kb("VmHWM:").max(stat.resident);
    Some(stat)
}

/// Returns user and system time of a thread in clock ticks.
pub fn thread(pid: u32, tid: u32) -> Option<[u64; 2]> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    parse_stat(&stat).map(|stat| stat.ticks)
}

fn parse_stat(text: &str) -> Option<ProcessStat> {
    // The name in parentheses may contain any character; the fields after it are numbers, except the state,
    // which comes first.
    let fields: Vec<u64> =
        text.get(text.rfind(')')? + 1..)?.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect();
    let field = |number: usize| fields.get(number - 3).copied();
    Some(ProcessStat {
        ticks: [field(14)?, field(15)?],
        threads: field(20)? as i32,
        minor_faults: field(10)?,
        major_faults: field(12)?,
        ..ProcessStat::default()
    })
}

/// `Key:   123 kB` → bytes.
fn parse_kb(line: &str, key: &str) -> Option<u64> {
    let number = line.strip_prefix(key)?.trim().strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

/// Memory of the machine, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Total memory.
    pub total: u64,
    /// Unused memory.
    pub free: u64,
    /// Swap space.
    pub swap_total: u64,
    /// Free swap space.
    pub swap_free: u64,
}

/// Returns the machine's memory, from `/proc/meminfo`.
pub fn memory() -> Option<Memory> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |key: &str| text.lines().find_map(|l| parse_kb(l, key));
    Some(Memory {
        total: bytes("MemTotal:")?,
        free: bytes("MemFree:")?,
        swap_total: bytes("SwapTotal:").unwrap_or(0),
        swap_free: bytes("SwapFree:").unwrap_or(0),
    })
}

/// Returns name, received bytes and sent bytes of each interface in a `/proc/net/dev`.
pub fn interfaces(text: &str) -> impl Iterator<Item = (&str, u64, u64)> {
    text.lines().filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        let mut numbers = numbers.split_whitespace();
        let received = numbers.next()?.parse().ok()?;
        let sent = numbers.nth(7)?.parse().ok()?;
        Some((name.trim(), received, sent))
    })
}

/// Returns the number of processors available to this process at the first call, which reads files.
pub fn processors() -> usize {
    static COUNT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Returns the number of online processors, including those on which this process may not run.
pub fn processors_online() -> u64 {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten().unwrap_or(1);
    u64::try_from(online).unwrap_or(1).max(1)
}

/// Returns the clock ticks of `/proc` per second.
pub fn ticks_per_second() -> f64 {
    sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_cores_and_threads_are_counted() {
        let text = "processor\t: 0\nmodel name\t: X\nphysical id\t: 0\ncore id\t: 0\n\nprocessor\t: 1\nmodel name\t: X\n\
                    physical id\t: 0\ncore id\t: 0\n\nprocessor\t: 2\nphysical id\t: 1\ncore id\t: 0\n";
        assert_eq!(parse_cpuinfo(text), Cpu { model: "X".into(), sockets: 2, cores: 2, threads: 3 });
        assert_eq!(parse_cpuinfo("processor : 0\n").cores, 1);
    }

    #[test]
    fn proc_lines_are_parsed() {
        let text = "cpu  10 1 9 70 5 1 2 2 0 0\ncpu0 1 2 3\nintr 5 5\nctxt 4242\n";
        let old = parse_machine("cpu 0 0 0 0 0 0 0 0\nctxt 42").unwrap();
        let new = parse_machine(text).unwrap();
        assert_eq!((new.busy_since(old), new.switches_since(old)), (0.25, 4200));
        assert_eq!(new.busy_since(new), 0.0);
        let stat = "7 (a) b) R 1 7 7 0 -1 64 100 0 3 0 250 50 0 0 20 0 12 0 99 1 2";
        let stat = parse_stat(stat).unwrap();
        assert_eq!((stat.ticks, stat.threads, stat.minor_faults, stat.major_faults), ([250, 50], 12, 100, 3));
        assert_eq!(parse_stat("7 (cut) R 1 2"), None);
        assert_eq!(parse_kb("VmRSS:\t    12 kB", "VmRSS:"), Some(12288));
        let text = "Inter-|\n face |bytes\n  eth0: 100 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n lo:5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n";
        assert_eq!(interfaces(text).collect::<Vec<_>>(), [("eth0", 100, 7), ("lo", 5, 5)]);
    }

    #[test]
    fn own_process_statistics_are_read() {
        let start = std::time::Instant::now();
        let before = process(std::process::id()).unwrap();
        while process(std::process::id()).unwrap().used_since(before).iter().sum::<f64>() < 0.02 {
            assert!(start.elapsed().as_secs() < 60, "our CPU time does not show");
            std::hint::black_box((0..100_000u64).map(std::hint::black_box).sum::<u64>());
        }
        assert!(before.resident > 100_000 && before.resident_peak >= before.resident && before.threads > 0);
        assert!(memory().unwrap().total > memory().unwrap().free && machine().is_some());
        assert!(os_version().contains("Linux"));
    }
}
