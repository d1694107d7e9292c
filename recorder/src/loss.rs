//! The totals of recorded and lost events, for the closing line.

use std::fmt;

use flightline_in_signal::layout::{
    engine, event_kind,
    event_kind::NAMES as NAMES_OF_EVENTS,
    loss::{CAUSES, NAMES},
    unrecorded as reason, walk_end,
};

use crate::{process::Process, process::thread::Thread, recording::Recording, settings::OffCpuSettings};

/// Totals of a recording.
#[derive(Debug, Default, Clone)]
pub struct Report {
    /// CPU time and its samples.
    pub cpu: CpuTotals,
    /// Stacks of CPU samples and of other events.
    pub stacks: StackTotals,
    /// Events, bytes and chunks written.
    pub output: OutputTotals,
    /// Events by tracepoints.
    pub tracepoints: TracepointTotals,
    /// Events of engines other than CPU time, by kind: recorded, lost.
    pub kinds: [(u64, u64); event_kind::KINDS],
    /// Processes recorded.
    pub processes: u64,
    /// Threads recorded.
    pub threads: u64,
    /// Processes that were not recorded because the limit on processes was reached.
    pub refused: u64,
    /// Threads that got no slot in the shared memory.
    pub no_slot: u64,
    /// Messages that have not been printed yet.
    pub notices: Vec<String>,
    /// The engine in use, and the errno with which the kernel refused a better one.
    pub engine: Option<(u32, i32)>,
    /// CPU time of this process, ns.
    pub own_cpu_ns: u64,
    pub(crate) flushes_done: u64,
}

/// CPU time and its samples.
#[derive(Debug, Default, Clone)]
pub struct CpuTotals {
    /// CPU time was not sampled.
    pub off: bool,
    /// Samples taken by the recorded programs. A sample of two periods becomes two events; one of less than
    /// half a period may become none.
    pub samples: u64,
    /// Those of `samples` that a timer triggered.
    pub by_timer: u64,
    /// CPU time of all threads, ns.
    pub cpu_ns: u64,
    /// CPU time that the samples represent, ns.
    pub sampled_ns: u64,
    /// Lost samples and CPU time, by cause.
    pub lost: [(u64, u64); CAUSES],
}

/// Stacks of CPU samples and of other events.
#[derive(Debug, Default, Clone)]
pub struct StackTotals {
    /// Number of stacks walked.
    pub walked: u64,
    /// Number of stacks that did not reach their root.
    pub cut: u64,
    /// Number of stacks of `cut` that end where their copy ends: those of programs recorded from outside.
    pub cut_copies: u64,
    /// Bytes of each stack that are copied from outside; 0 if nothing is recorded from outside.
    pub copied_bytes: u32,
}

/// Events, bytes and chunks written to all outputs.
#[derive(Debug, Default, Clone)]
pub struct OutputTotals {
    /// CPU time events written (`jdk.ExecutionSample`), as counted by readers.
    pub events: u64,
    /// Events of recorded samples that could not be written because the output failed.
    pub unwritten: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Chunks written.
    pub chunks: u64,
    /// Why outputs failed: the first failures.
    pub failures: Vec<String>,
    /// True if an output failed for another reason than a reader that disconnected.
    pub broken: bool,
}

/// Events by tracepoints.
#[derive(Debug, Default, Clone)]
pub struct TracepointTotals {
    /// Off-CPU intervals: recorded, lost; `None` if they were not requested.
    pub off_cpu: Option<(u64, u64)>,
    /// Slow system calls, block I/O requests and memory growth: recorded, lost; `None` if they were not
    /// requested.
    pub kernel_io: Option<(u64, u64)>,
    /// The events that were requested.
    pub settings: Option<OffCpuSettings>,
}

/// The largest part of a stack that is copied with a sample from outside, in bytes: with the longest chain, a record still fits into 64 KiB.
pub(crate) const LARGEST_COPY: u32 = 62 << 10;

/// Limit of reported failures, because each of many short processes may have one.
const MANY_FAILURES: usize = 64;

impl OutputTotals {
    fn add(&mut self, recording: &Recording) {
        let counters = recording.counters();
        self.events += counters.events;
        self.unwritten += counters.unwritten;
        self.bytes += recording.bytes();
        self.chunks += counters.chunks;
        let failure = recording.failure().filter(|_| self.failures.len() < MANY_FAILURES);
        self.failures.extend(failure.map(str::to_owned));
        self.broken |= recording.broken();
    }
}

impl Report {
    pub(crate) fn engine(&mut self, said: (u32, i32)) {
        // A process that has not chosen an engine yet, or never will, reports none.
        if said.0 != engine::AUTO || self.engine.is_none() {
            self.engine = Some(said);
        }
    }

    pub(crate) fn add(&mut self, process: &Process) {
        self.no_slot = self.no_slot.saturating_add(process.file.no_slot());
        for (sum, (count, lost)) in self.kinds.iter_mut().zip(process.state.engines.counts()) {
            sum.0 = sum.0.saturating_add(count);
            sum.1 = sum.1.saturating_add(lost);
        }
        for thread in &process.state.threads.list {
            self.add_thread(thread);
        }
    }

    pub(crate) fn add_thread(&mut self, thread: &Thread) {
        if thread.moved || thread.left_out() {
            return;
        }
        let ledger = &thread.ledger;
        // Saturating, because a program can write any number here.
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        self.threads += 1;
        let Report { cpu, stacks, .. } = self;
        add(&mut cpu.samples, ledger.samples);
        add(&mut cpu.sampled_ns, ledger.sampled_ns);
        add(&mut stacks.walked, ledger.samples.saturating_add(thread.stacks.other));
        add(&mut stacks.cut, thread.stacks.cut.iter().sum());
        add(&mut stacks.cut_copies, thread.stacks.cut[usize::from(walk_end::COPY_END)]);
        add(&mut cpu.by_timer, thread.stacks.by_timer);
        add(&mut cpu.cpu_ns, ledger.known_ns());
        for (sum, (samples, ns)) in cpu.lost.iter_mut().zip(ledger.lost.iter().zip(&ledger.lost_ns)) {
            add(&mut sum.0, *samples);
            add(&mut sum.1, *ns);
        }
    }

    pub(crate) fn add_recording(&mut self, recording: &Recording) {
        self.output.add(recording);
    }

    /// Returns the engine and, if it is not the best one, the reason.
    pub fn engine_text(&self) -> String {
        let Some((code, errno)) = self.engine else { return "no engine".into() };
        let name = engine_name(code);
        match errno {
            0 if code == engine::PERF && self.cpu.by_timer > 0 => {
                format!("{name}, timer for {} samples of threads that wait often", self.cpu.by_timer)
            }
            0 => name.to_owned(),
            e => format!("{name} (perf_event_open refused: {})", nix::errno::Errno::from_raw(e).desc()),
        }
    }
}

/// Sampled from outside by perf events of the drain (in addition to the codes of [`engine`], which programs use).
pub const OUTSIDE: u32 = 32;
/// Like [`OUTSIDE`], without time in the kernel.
pub const OUTSIDE_USER: u32 = 33;

/// Returns the name of an engine, as used on the command line.
pub fn engine_name(code: u32) -> &'static str {
    match code {
        engine::PERF => "perf",
        engine::PERF_USER => "perf-user with timer",
        engine::TIMER => "timer",
        engine::ITIMER => "itimer",
        engine::NONE => "none",
        OUTSIDE => "perf from outside",
        OUTSIDE_USER => "perf from outside without stacks of the kernel",
        _ => "auto",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { cpu, stacks, output, .. } = self;
        if cpu.off {
            return self.kinds_text(f, "");
        }
        // Print the number of events, as every reader counts them. Add the number of samples if a coarse
        // timer makes it differ.
        write!(f, "{}", count(output.events, "sample"))?;
        if output.events.abs_diff(cpu.samples) > (cpu.samples / 50).max(3) {
            write!(f, " ({} stacks sampled)", cpu.samples)?;
        }
        write!(f, ", {} CPU time", seconds(cpu.cpu_ns))?;
        let lost: Vec<String> = cpu
            .lost
            .iter()
            .zip(NAMES)
            .filter(|((_, ns), _)| *ns >= 500_000)
            .map(|((_, ns), name)| format!("{} {name}", seconds(*ns)))
            .collect();
        match lost.is_empty() {
            // Losses of other events are printed with their counts.
            true if self.loses_events() => write!(f, ", no CPU time lost")?,
            true => write!(f, ", nothing lost")?,
            false => write!(f, ", lost: {}", lost.join(", "))?,
        }
        let share = if stacks.walked == 0 { 0.0 } else { 100.0 * stacks.cut as f64 / stacks.walked as f64 };
        if output.unwritten > 0 {
            write!(f, ", {} events not written", output.unwritten)?;
        }
        if self.refused > 0 {
            write!(f, ", {} programs not recorded", self.refused)?;
        }
        write!(f, ", {share:.2} % of stacks cut, engine {}", self.engine_text())?;
        self.kinds_text(f, ", ")
    }
}

impl Report {
    /// Returns the options that help if many of the kernel's records are lost.
    pub fn advice(&self) -> Option<&'static str> {
        self.tracepoints.advice()
    }

    /// Returns advice if more than a tenth of the stacks are cut because only a part of them was copied.
    pub fn advice_on_stacks(&self) -> Option<String> {
        self.stacks.advice()
    }

    /// Returns true if other events than samples of CPU time are lost.
    fn loses_events(&self) -> bool {
        let mut counts =
            self.kinds.iter().copied().chain(self.tracepoints.off_cpu).chain(self.tracepoints.kernel_io);
        counts.any(|(_, lost)| lost > 0)
    }

    fn kinds_text(&self, f: &mut fmt::Formatter<'_>, before: &str) -> fmt::Result {
        let text: Vec<String> = NAMES_OF_EVENTS
            .iter()
            .zip(self.kinds)
            .filter(|(_, (count, lost))| count + lost > 0)
            .map(|(name, (count, lost))| match lost {
                0 => format!("{count} {name}"),
                lost => format!("{count} {name} ({lost} lost)"),
            })
            .collect();
        let one = text.len() == 1 && self.kinds.iter().any(|(count, lost)| *count == 1 && *lost == 0);
        let events = match text.is_empty() {
            true => "",
            false if one => " event",
            false => " events",
        };
        let off_cpu = |count| if count == 1 { "time off CPU".to_owned() } else { "times off CPU".to_owned() };
        let traced = [
            self.tracepoints.off_cpu.map(|counts| (counts, off_cpu(counts.0))),
            self.tracepoints.kernel_io.map(|counts| (counts, self.tracepoints.kernel_io_name(counts.0))),
        ];
        let traced = traced.into_iter().flatten().map(|(counts, name)| match counts {
            (count, 0) => format!("{count} {name}"),
            (count, lost) => format!("{count} {name} ({lost} lost)"),
        });
        let list = format!("{}{events}", text.join(", "));
        let text: Vec<String> = [list].into_iter().filter(|list| !list.is_empty()).chain(traced).collect();
        match text.is_empty() {
            true if before.is_empty() => f.write_str("no events"),
            true => Ok(()),
            false => write!(f, "{before}{}", text.join(", ")),
        }
    }
}

impl StackTotals {
    /// Returns advice if more than a tenth of the stacks are cut because only a part of them was copied.
    fn advice(&self) -> Option<String> {
        if self.copied_bytes == 0 || self.cut_copies <= self.walked / 10 {
            return None;
        }
        let lower_rate =
            if self.copied_bytes < LARGEST_COPY { "; a lower rate (-F) copies larger parts" } else { "" };
        Some(format!(
            "{:.0} % of stacks are cut because they are longer than the copied part of {} KiB. \
             `flightline record -- PROGRAM` records whole stacks (not of static programs){lower_rate}; \
             programs built with optimisation or with frame pointers need smaller parts \
             (-fno-omit-frame-pointer, in Rust -C force-frame-pointers=yes)",
            100.0 * self.cut_copies as f64 / self.walked as f64,
            self.copied_bytes >> 10,
        ))
    }
}

impl TracepointTotals {
    /// Returns the options that help if many of the kernel's records are lost.
    fn advice(&self) -> Option<&'static str> {
        let much = |counts: Option<(u64, u64)>| counts.is_some_and(|(count, lost)| lost > count / 10);
        if !much(self.off_cpu) && !much(self.kernel_io) {
            return None;
        }
        Some(match self.settings.as_ref().is_some_and(|traced| traced.all) {
            true => {
                "over 10 % of the kernel's records were lost; `flightline summary` lists the causes. Try \
                 a higher --off-cpu-rate, a larger ring (--off-cpu-ring 64M), stacks by frame pointers \
                 (--off-cpu-stack 0), or single programs (-p)"
            }
            false => {
                "over 10 % of the kernel's records were lost; `flightline summary` lists the causes. Try \
                 a higher --off-cpu-rate, a larger ring (--off-cpu-ring 64M), or stacks by frame \
                 pointers (--off-cpu-stack 0)"
            }
        })
    }

    /// Returns the noun for `count` calls, requests and growths, depending on which of them were requested.
    fn kernel_io_name(&self, count: u64) -> String {
        let requested = |is_on: fn(&OffCpuSettings) -> bool| self.settings.as_ref().is_none_or(is_on);
        let all = [
            (requested(|o| o.calls.is_some()), "call"),
            (requested(|o| o.block.is_some()), "request"),
            (requested(|o| o.growth), "growth of memory"),
        ];
        let names =
            all.into_iter().filter(|(requested, _)| *requested).map(|(_, name)| match (count, name) {
                (1, name) => name.to_owned(),
                (_, "growth of memory") => "growths of memory".to_owned(),
                (_, name) => format!("{name}s"),
            });
        let names: Vec<String> = names.collect();
        match &names[..] {
            [but_last @ .., last] if !but_last.is_empty() => format!("{} and {last}", but_last.join(", ")),
            names => names.concat(),
        }
    }
}

/// `1 sample`, `2 samples`.
fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Formats seconds with as many digits as are significant.
fn seconds(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    if s < 1.0 { format!("{:.1} ms", s * 1e3) } else { format!("{s:.2} s") }
}

/// Returns the message that a program could not be recorded.
pub(crate) fn unrecorded(path: &str, why: u32, parent: u32) -> String {
    let (what, instead) = match why {
        reason::STATIC => ("is statically linked", "link it dynamically, or use perf record"),
        reason::SETUID => {
            ("is set-user-id, set-group-id or has file capabilities", "record a copy without them")
        }
        reason::FOREIGN => ("is for another architecture", "record it with a flightline built for it"),
        reason::OTHER_LIBC => ("uses another C library", "record it with a flightline built for it"),
        reason::ENVIRONMENT => (
            "was executed with an environment without LD_PRELOAD",
            "keep LD_PRELOAD and FLIGHTLINE_SESSION, or record as root",
        ),
        reason::OUT_OF_REACH => {
            ("was executed as a user or in a root that cannot read the recorder's library", "record as root")
        }
        reason::TWO_IDS => ("was executed with real and effective ids that differ", "record as root"),
        reason::FILE_LIMIT => {
            ("was executed with a limit of file sizes (ulimit -f)", "raise the limit, or record as root")
        }
        reason::SANITIZER => (
            "needs its sanitizer's library to be loaded first",
            "build it without the sanitizer, or use perf record",
        ),
        reason::GO => ("is a Go program", "use Go's own runtime/pprof"),
        _ => ("cannot be preloaded", "use perf record"),
    };
    format!("{path} {what} and is not recorded (started by process {parent}): {instead}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_line_summarizes_samples_and_losses() {
        let mut report = Report {
            cpu: CpuTotals { samples: 200, cpu_ns: 2_020_000_000, ..CpuTotals::default() },
            output: OutputTotals { events: 199, ..OutputTotals::default() },
            stacks: StackTotals { walked: 200, cut: 1, ..StackTotals::default() },
            ..Report::default()
        };
        report.engine((engine::TIMER, libc::EACCES));
        assert_eq!(
            report.to_string(),
            "199 samples, 2.02 s CPU time, nothing lost, 0.50 % of stacks cut, \
             engine timer (perf_event_open refused: Permission denied)"
        );
        report.tracepoints.off_cpu = Some((1000, 7));
        assert!(report.to_string().contains("2.02 s CPU time, no CPU time lost, 0.50 %"), "{report}");
        assert!(report.to_string().ends_with("1000 times off CPU (7 lost)"), "{report}");
        report.tracepoints.off_cpu = None;
        // Truncated stacks of allocations count against all stacks.
        report.stacks.walked = 1000;
        report.stacks.cut = 250;
        assert!(report.to_string().contains(", 25.00 % of stacks cut"), "{report}");
        report.stacks.walked = 200;
        report.stacks.cut = 1;
        report.cpu.lost[0] = (3, 30_000_000);
        report.cpu.lost[1] = (1, 1_000);
        assert!(report.to_string().contains("lost: 30.0 ms ring full, 0.50 %"));
        assert_eq!(report.advice(), None);
        report.tracepoints.off_cpu = Some((1000, 100));
        assert_eq!(report.advice(), None);
        report.tracepoints.off_cpu = Some((1000, 101));
        assert!(report.advice().is_some_and(|said| said.contains("--off-cpu-ring")));
        report.tracepoints.off_cpu = None;
        report.output.events = 1;
        assert!(report.to_string().starts_with("1 sample (200 stacks sampled)"), "{report}");
        report.output.events = 1990;
        assert!(report.to_string().starts_with("1990 samples (200 stacks sampled), 2.02 s"), "{report}");
    }
    #[test]
    fn tracepoint_events_are_named_after_the_selected_engines() {
        let second = Some(std::time::Duration::from_secs(1));
        let text = |calls, block, growth, count| {
            let settings = OffCpuSettings { calls, block, growth, ..OffCpuSettings::default() };
            let report = Report {
                cpu: CpuTotals { off: true, ..CpuTotals::default() },
                tracepoints: TracepointTotals {
                    off_cpu: None,
                    kernel_io: Some((count, 0)),
                    settings: Some(settings),
                },
                ..Report::default()
            };
            report.to_string()
        };
        assert_eq!(text(None, None, true, 84), "84 growths of memory");
        assert_eq!(text(None, None, true, 1), "1 growth of memory");
        assert_eq!(text(second, second, false, 3), "3 calls and requests");
        assert_eq!(text(second, second, true, 3), "3 calls, requests and growths of memory");
        let mut kinds = Report::default();
        kinds.cpu.off = true;
        let trace = NAMES_OF_EVENTS.iter().position(|name| *name == "trace").unwrap();
        kinds.kinds[trace] = (1, 0);
        assert_eq!(kinds.to_string(), "1 trace event");
        kinds.kinds[trace] = (2, 0);
        assert_eq!(kinds.to_string(), "2 trace events");
    }

    #[test]
    fn truncated_stack_copies_yield_advice() {
        let mut report = Report {
            stacks: StackTotals { walked: 1000, cut: 500, cut_copies: 100, copied_bytes: LARGEST_COPY },
            ..Report::default()
        };
        assert_eq!(report.advice_on_stacks(), None);
        report.stacks.cut_copies = 300;
        let advice = report.advice_on_stacks().unwrap();
        assert!(advice.starts_with("30 % of stacks are cut ") && advice.contains(" 62 KiB. "), "{advice}");
        assert!(advice.contains("`flightline record -- PROGRAM`") && !advice.contains("-F"), "{advice}");
        report.stacks.copied_bytes = 20 << 10;
        assert!(report.advice_on_stacks().is_some_and(|advice| advice.contains("a lower rate (-F)")));
        assert_eq!(Report::default().advice_on_stacks(), None);
    }

    #[test]
    fn advice_omits_options_that_are_in_use() {
        let mut report = Report::default();
        report.tracepoints.off_cpu = Some((1000, 101));
        report.tracepoints.settings = Some(OffCpuSettings::default());
        assert!(report.advice().is_some_and(|said| !said.contains("-p ")));
        report.tracepoints.settings = Some(OffCpuSettings { all: true, ..OffCpuSettings::default() });
        assert!(report.advice().is_some_and(|said| said.contains("single programs (-p)")));
    }
}
