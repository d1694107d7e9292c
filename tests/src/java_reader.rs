//! Builds the Java reader of `consumer/java` once, and runs its test programs on the installed JDKs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::canonical::Contents;
use crate::run::run;
use crate::{foreign, victim};

/// The reader and its test programs.
#[derive(Debug)]
pub struct JavaReader {
    homes: Vec<(u32, PathBuf)>,
}

impl JavaReader {
    /// Builds it for Java 11. Prints SKIPPED and returns `None` if JDK 17 or 25 is missing.
    ///
    /// # Panics
    ///
    /// If it does not compile.
    #[track_caller]
    pub fn ready() -> Option<JavaReader> {
        let homes = vec![(17, foreign::jdk(17)?), (25, foreign::jdk(25)?)];
        static BUILT: OnceLock<()> = OnceLock::new();
        BUILT.get_or_init(|| {
            let mut build =
                Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../consumer/java/build.sh"));
            build.arg("tests").env("CARGO_TARGET_DIR", victim::target_dir()).env("JAVA_HOME", &homes[0].1);
            run(build.stdin(Stdio::null()), Duration::from_secs(300))
                .expect_success("consumer/java/build.sh");
        });
        Some(JavaReader { homes })
    }

    /// Feature releases of the JDKs.
    pub fn releases(&self) -> Vec<u32> {
        self.homes.iter().map(|home| home.0).collect()
    }

    /// Returns a command for a program of the reader's tests or examples, on that release, with a heap of 512
    /// MB.
    ///
    /// # Panics
    ///
    /// If that release is missing.
    pub fn program(&self, release: u32, class: &str) -> Command {
        let home = &self.homes.iter().find(|home| home.0 == release).expect("a release").1;
        let java = victim::target_dir().join("java");
        let mut command = Command::new(home.join("bin/java"));
        let path =
            format!("{}:{}", java.join("flightline-reader.jar").display(), java.join("tests").display());
        command.args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &path, class]);
        command.stdin(Stdio::null());
        command
    }

    /// A program in the reader's package.
    pub fn test(&self, release: u32, class: &str) -> Command {
        self.program(release, &format!("dev.flightline.reader.{class}"))
    }
}

/// The output of the program `Lines`.
#[derive(Debug, Default)]
pub struct Lines {
    /// Canonical lines, sorted by bytes.
    pub samples: Vec<String>,
    /// The reader saw the end of the stream.
    pub ended: bool,
    /// The reader's message about damage; empty if there is none.
    pub damage: String,
    /// The losses that the producer reported.
    pub lost: Vec<String>,
}

impl Lines {
    /// Parses the output for each stream.
    ///
    /// # Panics
    ///
    /// If the output has another form, because the program failed.
    pub fn all(text: &str) -> Vec<Lines> {
        let mut part = String::new();
        let mut all = Vec::new();
        for line in text.lines() {
            part = part + line + "\n";
            if line.starts_with("# of ") {
                all.push(Lines::parse(&part));
                part.clear();
            }
        }
        assert_eq!(part, "");
        all
    }

    /// Parses the output.
    ///
    /// # Panics
    ///
    /// If the output has another form, because the program failed.
    pub fn parse(text: &str) -> Lines {
        let mut lines = Lines::default();
        for line in text.lines() {
            match line.strip_prefix("# ") {
                None => lines.samples.push(line.to_owned()),
                Some("ended true") => lines.ended = true,
                Some(told) if told.starts_with("damage true ") => lines.damage = told.to_owned(),
                Some(told) if told.starts_with("lost ") => lines.lost.push(told.to_owned()),
                Some(told) if told.starts_with("of ") => {}
                Some(told) => assert!(told.starts_with("damage false"), "{told}"),
            }
        }
        lines.samples.sort_unstable();
        lines
    }

    /// Panics unless our own decoder has the same result, without errors.
    #[track_caller]
    pub fn expect(&self, ours: &Contents, what: &str) {
        assert!(self.ended, "{what}: no end");
        assert_eq!(self.damage, "", "{what}");
        self.expect_samples(ours, what);
    }

    /// Panics at the first sample that differs from our own decoder's.
    #[track_caller]
    pub fn expect_samples(&self, ours: &Contents, what: &str) {
        let ours = ours.sorted();
        for (java, ours) in self.samples.iter().zip(&ours) {
            assert_eq!(java, ours, "{what}");
        }
        assert_eq!(self.samples.len(), ours.len(), "{what}: samples");
    }
}
