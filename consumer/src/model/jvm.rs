//! The Java virtual machine that was recorded.

/// A Java virtual machine, as `jdk.JVMInformation` states it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jvm {
    /// The main class, or the file name of the JAR; empty if it is not recorded.
    pub main: String,
    /// The process id; 0 if it is not recorded.
    pub pid: i64,
    /// Product and version, e.g. `OpenJDK 25.0.3+9-LTS`.
    pub version: String,
}

/// Longest text in bytes.
const LONGEST: usize = 200;

impl Jvm {
    /// Builds it from the fields of the event.
    pub(crate) fn new(name: &str, version: &str, arguments: &str, pid: i64) -> Self {
        if version.is_empty() {
            // Other programs have no JVM version, and their file as the name.
            return Self { main: cut(file_name(name)), pid: pid.max(0), version: String::new() };
        }
        // HotSpot: `OpenJDK 64-Bit Server VM (25.0.3+9-LTS) for linux-amd64 JRE (…), built on …`; async-profiler: `17.0.15+6`.
        let number =
            version.strip_prefix(name).map_or(version, |rest| rest.trim_start().trim_start_matches('('));
        let number = number.split([')', ' ', ',']).next().unwrap_or_default();
        let product = name.split(" 64-Bit").next().unwrap_or(name).trim_end_matches(" VM");
        let version = [product, number].into_iter().filter(|of| !of.is_empty()).collect::<Vec<_>>().join(" ");
        let main = arguments.split_whitespace().next().unwrap_or_default();
        Self { main: cut(file_name(main)), pid: pid.max(0), version: cut(&version) }
    }

    /// `name (pid)`, as far as it is known.
    pub fn program(&self) -> String {
        match (&*self.main, self.pid) {
            (main, 0) => main.to_owned(),
            ("", pid) => format!("java ({pid})"),
            (main, pid) => format!("{main} ({pid})"),
        }
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// The text on one line, at most [`LONGEST`] bytes of it.
pub(crate) fn cut(text: &str) -> String {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jvm_program_name_and_version_are_derived() {
        let of = |name: &str, version: &str, arguments: &str, pid| {
            let jvm = Jvm::new(name, version, arguments, pid);
            (jvm.program(), jvm.version)
        };
        let pair = |program: &str, version: &str| (program.to_owned(), version.to_owned());
        let hotspot = "OpenJDK 64-Bit Server VM";
        let long =
            "OpenJDK 64-Bit Server VM (25.0.3+9-LTS) for linux-amd64 JRE (25.0.3+9-LTS), built on 2026-04-21";
        assert_eq!(
            of(hotspot, long, "Work 1.5 jdk25.jfr", 18948),
            pair("Work (18948)", "OpenJDK 25.0.3+9-LTS")
        );
        let debian = "17.0.15+6-Debian-1deb12u1";
        assert_eq!(
            of(hotspot, debian, "/opt/app.jar -v", 7),
            pair("app.jar (7)", "OpenJDK 17.0.15+6-Debian-1deb12u1")
        );
        assert_eq!(of("JVM", "9", "lib/app.jar --port 1", 0), pair("app.jar", "JVM 9"));
        assert_eq!(of("/usr/bin/burn", "", "0.5", 5), pair("burn (5)", ""));
        assert_eq!(
            of("Eclipse OpenJ9 VM", "openj9-0.46", "", 9),
            pair("java (9)", "Eclipse OpenJ9 openj9-0.46")
        );
        assert_eq!(of("", "", "", -4), pair("", ""));
        assert_eq!(cut(&format!("{}ä\n", "x".repeat(199))), "x".repeat(199));
        assert_eq!(cut("a\nb"), "a b");
    }
}
