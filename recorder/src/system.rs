//! What the system says of itself and of processes' CPU time.

use std::{collections::HashMap, fs};

use nix::unistd::{SysconfVar, sysconf};

/// Kernel name, release, version and machine.
pub fn os_version() -> String {
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

/// Reads `/proc/cpuinfo`.
pub fn cpu() -> Cpu {
    parse_cpuinfo(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
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

/// CPU time in clock ticks of the machine: busy and all.
fn machine() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let numbers: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
    let all: u64 = numbers.iter().sum();
    // user nice system idle iowait irq softirq steal
    let idle = numbers.get(3)? + numbers.get(4)?;
    Some((all - idle, all))
}

/// User and system time of a process in clock ticks.
fn process(pid: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the fields after it are numbers, state first.
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Share of the machine's CPU time since the last look.
#[derive(Default)]
pub struct Load {
    machine: Option<(u64, u64)>,
    processes: HashMap<u32, (u64, u64)>,
    at_ns: u64,
}

impl Load {
    /// User and system share of these processes, and the whole machine's; `None` on the first call.
    pub fn look(&mut self, pids: impl Iterator<Item = u32>, now_ns: u64) -> Option<(f32, f32, f32)> {
        let now = machine()?;
        let processes: HashMap<u32, (u64, u64)> = pids.filter_map(|p| Some((p, process(p)?))).collect();
        let before = self.machine.replace(now);
        let old = std::mem::replace(&mut self.processes, processes);
        let elapsed = now_ns.saturating_sub(std::mem::replace(&mut self.at_ns, now_ns));
        let (busy, all) = before?;
        let (mut user, mut system) = (0, 0);
        for (pid, (u, s)) in &self.processes {
            let (u0, s0) = old.get(pid).copied().unwrap_or_default();
            user += u.saturating_sub(u0);
            system += s.saturating_sub(s0);
        }
        let cpus = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100).max(1) as f64;
        let ticks = elapsed as f64 / 1e9 * per_second * cpus;
        let share = |n: u64, of: f64| if of > 0.0 { (n as f64 / of).clamp(0.0, 1.0) as f32 } else { 0.0 };
        let machine_share = share(now.0.saturating_sub(busy), now.1.saturating_sub(all) as f64);
        Some((share(user, ticks), share(system, ticks), machine_share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sockets() {
        let text = "processor\t: 0\nmodel name\t: X\nphysical id\t: 0\ncore id\t: 0\n\nprocessor\t: 1\nmodel name\t: X\n\
                    physical id\t: 0\ncore id\t: 0\n\nprocessor\t: 2\nphysical id\t: 1\ncore id\t: 0\n";
        assert_eq!(parse_cpuinfo(text), Cpu { model: "X".into(), sockets: 2, cores: 2, threads: 3 });
        assert_eq!(parse_cpuinfo("processor : 0\n").cores, 1);
    }

    #[test]
    fn own_load() {
        let mut load = Load::default();
        let pid = std::process::id();
        assert_eq!(load.look([pid].into_iter(), 0), None);
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 150 {
            std::hint::black_box(0);
        }
        let (user, system, machine) = load.look([pid, u32::MAX].into_iter(), 150_000_000).unwrap();
        assert!(user + system > 0.0 && machine > 0.0, "{user} {system} {machine}");
        assert!(os_version().contains("Linux"));
    }
}
