//! Facts about the recorded program, its JVM and its host.

use std::collections::BTreeSet;

use jfr_format::event::{EventRef, StructRef};
use serde_json::{Value, json};

use crate::amount;
use crate::fields::{self, number};
use crate::redact;

const JVM: &str = "jdk.JVMInformation";
const OS: &str = "jdk.OSInformation";
const CPU: &str = "jdk.CPUInformation";
const GC: &str = "jdk.GCConfiguration";
const HEAP: &str = "jdk.GCHeapConfiguration";
/// async-profiler writes no configuration of the heap.
const HEAP_SUMMARY: &str = "jdk.GCHeapSummary";
const ENVIRONMENT: &str = "jdk.InitialEnvironmentVariable";
const PROPERTY: &str = "jdk.InitialSystemProperty";

/// Environment variables with the name of the host, in order of preference. In containers it is the pod's
/// name.
const HOST_VARIABLES: [&str; 3] = ["HOSTNAME", "COMPUTERNAME", "HOST"];
/// Garbage collectors by the option that selects them.
const COLLECTORS: [(&str, &str); 7] = [
    ("UseSerialGC", "Serial"),
    ("UseParallelGC", "Parallel"),
    ("UseG1GC", "G1"),
    ("UseZGC", "ZGC"),
    ("UseShenandoahGC", "Shenandoah"),
    ("UseConcMarkSweepGC", "CMS"),
    ("UseEpsilonGC", "Epsilon"),
];
/// Maximum number of characters; longer text is cut.
const MAX_TEXT: usize = 1 << 14;
/// Maximum number of process ids that are counted.
const MAX_PROCESSES: usize = 1 << 12;

/// Facts about the recorded program, its JVM and its host. The first event of each kind counts. Secrets in text
/// are replaced as `flightline scrub --redact` does ([`redact::secrets`]).
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Name of the program, or of the JVM.
    vm_name: Option<String>,
    vm_version: Option<String>,
    vm_arguments: Option<String>,
    /// The main class or JAR file with the application's arguments; without a JVM, the program's arguments.
    arguments: Option<String>,
    pids: BTreeSet<i64>,
    first_pid: Option<i64>,
    /// For the young and the old generation.
    collectors: Option<(String, String)>,
    /// Minimum, initial and maximum size in bytes.
    heap: Option<[u64; 3]>,
    /// Reserved memory of the heap in bytes.
    heap_reserved: Option<u64>,
    system: Option<String>,
    processor: Option<String>,
    /// Index into [`HOST_VARIABLES`], and the name.
    host: Option<(usize, String)>,
    /// The property `java.vm.version`.
    version_property: Option<String>,
}

impl Facts {
    /// Returns true if events of this type have facts.
    pub(super) fn knows(name: &str) -> bool {
        matches!(name, JVM | OS | CPU | GC | HEAP | HEAP_SUMMARY | ENVIRONMENT | PROPERTY)
    }

    /// Returns true if fields of the type's events are constants.
    pub(super) fn needs_constants(name: &str) -> bool {
        name == GC
    }

    /// Adds an event. Fields that cannot be decoded are left out.
    pub(super) fn take(&mut self, event: &EventRef<'_>) {
        let fields = event.fields();
        match &*event.class().name {
            JVM => self.jvm(&fields),
            OS => first(&mut self.system, text(&fields, "osVersion").map(|text| system(&text))),
            CPU => first(&mut self.processor, text(&fields, "cpu").and_then(|t| line(&t))),
            GC if self.collectors.is_none() => {
                let young = text(&fields, "youngCollector").unwrap_or_default();
                let old = text(&fields, "oldCollector").unwrap_or_default();
                self.collectors = Some((young, old)).filter(|(y, o)| !y.is_empty() || !o.is_empty());
            }
            HEAP if self.heap.is_none() => {
                let size = |name| number(&fields, name).unwrap_or(0) as u64;
                let sizes = ["minSize", "initialSize", "maxSize"].map(size);
                self.heap = Some(sizes).filter(|[_, _, max]| *max > 0);
            }
            HEAP_SUMMARY if self.heap_reserved.is_none() => {
                let space = fields.field("heapSpace").ok().flatten();
                let space = space.and_then(|value| value.record().ok().flatten());
                let reserved = space.and_then(|space| number(&space, "reservedSize")).unwrap_or(0) as u64;
                self.heap_reserved = Some(reserved).filter(|&bytes| bytes > 0);
            }
            ENVIRONMENT => self.variable(&fields),
            PROPERTY if text(&fields, "key").as_deref() == Some("java.vm.version") => {
                first(&mut self.version_property, text(&fields, "value"));
            }
            _ => {}
        }
    }

    fn jvm(&mut self, fields: &StructRef<'_>) {
        if let Some(pid) = number(fields, "pid").filter(|&pid| pid > 0) {
            self.first_pid.get_or_insert(pid);
            if self.pids.len() < MAX_PROCESSES {
                self.pids.insert(pid);
            }
        }
        // All values must be of the first process; an argument of another one would be misleading.
        if self.vm_name.is_none() {
            self.vm_name = text(fields, "jvmName");
            self.vm_version = text(fields, "jvmVersion");
            self.vm_arguments = text(fields, "jvmArguments").map(without_secrets);
            self.arguments = text(fields, "javaArguments").map(without_secrets);
        }
    }

    fn variable(&mut self, fields: &StructRef<'_>) {
        let Some(key) = text(fields, "key") else { return };
        let Some(rank) = HOST_VARIABLES.iter().position(|name| *name == key) else { return };
        if self.host.as_ref().is_none_or(|(known, _)| rank < *known)
            && let Some(value) = text(fields, "value")
        {
            self.host = Some((rank, value));
        }
    }

    /// Adds the facts of a later part of the recording.
    pub(super) fn merge(&mut self, later: Self) {
        let own = self.vm_name.is_some();
        if !own {
            self.vm_name = later.vm_name;
            self.vm_version = later.vm_version;
            self.vm_arguments = later.vm_arguments;
            self.arguments = later.arguments;
        }
        self.first_pid = self.first_pid.or(later.first_pid);
        let room = MAX_PROCESSES.saturating_sub(self.pids.len());
        self.pids.extend(later.pids.into_iter().take(room));
        self.collectors = self.collectors.take().or(later.collectors);
        self.heap = self.heap.or(later.heap);
        self.heap_reserved = self.heap_reserved.or(later.heap_reserved);
        first(&mut self.system, later.system);
        first(&mut self.processor, later.processor);
        first(&mut self.version_property, later.version_property);
        self.host = self.host.take().or(later.host);
    }

    fn is_jvm(&self) -> bool {
        self.vm_version.is_some() || self.vm_name.as_deref().is_some_and(|name| name.contains(" VM"))
    }

    /// Returns the main class or JAR file of a JVM, or the program's path.
    pub(super) fn program(&self) -> Option<String> {
        if !self.is_jvm() {
            return self.vm_name.clone();
        }
        let command = self.arguments.as_deref()?;
        command.split_whitespace().next().map(str::to_owned)
    }

    /// Returns name and version of the JVM.
    pub(super) fn jvm_version(&self) -> Option<String> {
        if !self.is_jvm() {
            return None;
        }
        let version = self.vm_version.as_deref().or(self.version_property.as_deref());
        // `OpenJDK 64-Bit Server VM (17.0.15+6) for linux-amd64 JRE (…), built on …`
        let version = version.map(|text| {
            let inner = text.split_once('(').and_then(|(_, rest)| Some(rest.split_once(')')?.0));
            inner.unwrap_or(text)
        });
        let both = [self.vm_name.as_deref(), version];
        Some(both.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }

    fn pid(&self) -> Option<String> {
        let first = self.first_pid?;
        let more = if self.pids.len() > 1 {
            format!(" (first of {} processes)", self.pids.len())
        } else {
            String::new()
        };
        Some(format!("{first}{more}"))
    }

    fn collector(&self) -> Option<String> {
        if let Some((young, old)) = &self.collectors {
            let name = match (young.as_str(), old.as_str()) {
                ("G1New", _) => "G1",
                ("DefNew", "SerialOld") => "Serial",
                ("ParallelScavenge", _) => "Parallel",
                ("N/A" | "", "Z") | ("Z" | "ZGC Minor", _) => "ZGC",
                (_, "Shenandoah") => "Shenandoah",
                ("ParNew", _) => "CMS",
                _ => "",
            };
            let both = [young.as_str(), old.as_str()];
            let mut parts: Vec<&str> = both.into_iter().filter(|p| !p.is_empty() && *p != "N/A").collect();
            parts.dedup();
            let parts = parts.join(", ");
            return Some(match name {
                "" => parts,
                name if name == parts => parts,
                name => format!("{name} ({parts})"),
            });
        }
        let arguments = self.vm_arguments.as_deref()?;
        let selected = arguments.split_whitespace().filter_map(|argument| argument.strip_prefix("-XX:+"));
        let (_, name) =
            selected.filter_map(|option| COLLECTORS.iter().find(|(flag, _)| *flag == option)).next_back()?;
        Some((*name).to_owned())
    }

    fn heap(&self) -> Option<String> {
        match (self.heap, self.heap_reserved) {
            (Some([min, initial, max]), _) => {
                let [min, initial, max] = [min, initial, max].map(amount::bytes);
                Some(format!("{min} to {max}, initially {initial}"))
            }
            (None, Some(max)) => Some(format!("up to {}", amount::bytes(max))),
            (None, None) => None,
        }
    }

    /// Returns the application's arguments.
    fn application_arguments(&self) -> Option<String> {
        let all = self.arguments.as_deref()?;
        let own = if self.is_jvm() { all.split_once(char::is_whitespace)?.1 } else { all };
        Some(own.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Returns labels and values for people, with the application's arguments if `arguments` is true.
    pub(super) fn lines(&self, arguments: bool) -> Vec<(&'static str, String)> {
        let values = [
            ("Program", self.program()),
            ("Arguments", self.application_arguments().filter(|_| arguments)),
            ("PID", self.pid()),
            ("JVM", self.jvm_version()),
            ("JVM args", self.vm_arguments.clone()),
            ("Collector", self.collector()),
            ("Heap", self.heap()),
            ("Host", self.host.clone().map(|(_, name)| name)),
            ("System", self.system.clone()),
            ("Processor", self.processor.clone()),
        ];
        values.into_iter().filter_map(|(label, value)| Some((label, value?))).collect()
    }

    /// Returns the facts as JSON: sizes in bytes, and null for values that the recording does not have.
    pub(super) fn to_json(&self, arguments: bool) -> Value {
        let heap = self.heap.map(|[min, initial, max]| json!({"min": min, "initial": initial, "max": max}));
        let mut facts = json!({
            "program": self.program(),
            "pid": self.first_pid,
            "processes": self.pids.len(),
            "jvm": self.jvm_version(),
            "jvmArguments": self.vm_arguments.clone().filter(|_| self.is_jvm()),
            "collector": self.collector(),
            "heap": heap.or_else(|| self.heap_reserved.map(|max| json!({"max": max}))),
            "host": self.host.as_ref().map(|(_, name)| name),
            "system": self.system,
            "processor": self.processor,
        });
        if let (true, Some(facts)) = (arguments, facts.as_object_mut()) {
            facts.insert("arguments".into(), json!(self.application_arguments()));
        }
        facts
    }
}

fn first<T>(known: &mut Option<T>, new: Option<T>) {
    if known.is_none() {
        *known = new;
    }
}

/// Returns text without control characters; `None` if it is empty.
fn text(of: &StructRef<'_>, name: &str) -> Option<String> {
    let value = fields::text(of, name)?;
    let text: String =
        value.chars().take(MAX_TEXT).map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn line(text: &str) -> Option<String> {
    text.lines().next().map(str::to_owned)
}

fn without_secrets(text: String) -> String {
    let text = redact::secrets(None, &text, redact::MARK).unwrap_or(text);
    text.replace('\n', " ")
}

/// Extracts the distribution and the kernel from the JDK's text: /etc/os-release, `uname:` and `libc:`.
fn system(text: &str) -> String {
    let pretty = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let kernel = text.lines().find_map(|line| line.strip_prefix("uname:"));
    let parts = [pretty.map(|name| name.trim_matches('"')), kernel.map(str::trim)];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    if parts.is_empty() { line(text).unwrap_or_default() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str, version: &str, vm_arguments: &str, arguments: &str) -> Facts {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Facts {
            vm_name: some(name),
            vm_version: some(version),
            vm_arguments: some(vm_arguments),
            arguments: some(arguments),
            ..Facts::default()
        }
    }

    #[test]
    fn jvm_version_is_short() {
        let vm = "OpenJDK 64-Bit Server VM";
        let long = format!("{vm} (17.0.15+6) for linux-amd64 JRE (17.0.15+6), built on May 1 by x");
        for version in [long.as_str(), "17.0.15+6"] {
            let facts = parsed(vm, version, "", "org.example.Main --port 80");
            assert_eq!(facts.jvm_version().as_deref(), Some("OpenJDK 64-Bit Server VM 17.0.15+6"));
            assert_eq!(facts.program().as_deref(), Some("org.example.Main"));
            assert_eq!(facts.application_arguments().as_deref(), Some("--port 80"));
        }
        let native = parsed("/usr/bin/app", "", "", "-v x");
        assert_eq!((native.program().as_deref(), native.jvm_version()), (Some("/usr/bin/app"), None));
        assert_eq!(native.application_arguments().as_deref(), Some("-v x"));
    }

    #[test]
    fn collector_is_derived_from_events_or_options() {
        let collector = |young: &str, old: &str| {
            let collectors = Some((young.to_owned(), old.to_owned()));
            Facts { collectors, ..Facts::default() }.collector().unwrap()
        };
        assert_eq!(collector("G1New", "G1Old"), "G1 (G1New, G1Old)");
        assert_eq!(collector("N/A", "Z"), "ZGC (Z)");
        assert_eq!(collector("Shenandoah", "Shenandoah"), "Shenandoah");
        let facts = parsed("VM", "17", "-Xmx1g -XX:+UseSerialGC -XX:+UseZGC", "");
        assert_eq!(facts.collector().as_deref(), Some("ZGC"));
        assert_eq!(parsed("VM", "17", "-Xmx1g", "").collector(), None);
    }

    #[test]
    fn system_is_one_line() {
        let jdk =
            "PRETTY_NAME=\"Debian GNU/Linux 12\"\nNAME=\"Debian\"\nuname: Linux 6.1 x86_64\nlibc: glibc";
        assert_eq!(system(jdk), "Debian GNU/Linux 12, Linux 6.1 x86_64");
        assert_eq!(system("Windows 10"), "Windows 10");
    }
}
