//! Validation of run requests: the service is not trusted, so its values are checked and passed as plain
//! arguments.
//!
//! Values that the recorder's own parser would reject are rejected here.

use flightline_recorder::settings::Settings;
use flightline_service::wire::Mode;

/// Maximum duration of a run, s.
const LONGEST: u64 = 24 * 60 * 60;
/// Maximum length of an interval, engine or id.
const LONGEST_WORD: usize = 64;
/// Maximum number of additional engines.
const MOST_ENGINES: usize = 16;

/// A run request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRequest {
    /// The run's id.
    pub run: String,
    /// Mode.
    pub mode: Mode,
    /// Duration in seconds.
    pub duration: u64,
    /// Sampling interval.
    pub interval: Option<String>,
    /// Additional engines.
    pub engines: Vec<String>,
}

/// Returns true if the text can be part of a request path.
pub fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=LONGEST_WORD).contains(&text.len()) && text.bytes().all(plain)
}

impl RunRequest {
    /// Returns the events as for `record -e`.
    pub fn events(&self) -> Vec<String> {
        let (first, second) = match self.mode {
            Mode::Cpu => ("cpu", None),
            Mode::Itimer => ("itimer", None),
            Mode::Wall => ("wall", None),
            Mode::Alloc => ("alloc", None),
            Mode::Live => ("alloc", Some("live")),
            Mode::Lock => ("lock", None),
            Mode::Io => ("io", None),
            Mode::Throw => ("throw", None),
            Mode::OffCpu => return self.engines.clone(),
        };
        let first = match &self.interval {
            Some(interval) => format!("{first}@{interval}"),
            None => first.to_owned(),
        };
        std::iter::once(first).chain(second.map(str::to_owned)).chain(self.engines.iter().cloned()).collect()
    }

    /// Returns the events as options in the form `--event=…`, which cannot be mistaken for others.
    pub fn options(&self) -> Vec<String> {
        self.events().iter().map(|event| format!("--event={event}")).collect()
    }

    /// # Errors
    /// Returns the reason if the recorder would reject the request.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=LONGEST).contains(&self.duration) {
            return Err(format!("The duration of a run must be between 1 and {LONGEST} seconds."));
        }
        if self.engines.len() > MOST_ENGINES {
            return Err(format!("At most {MOST_ENGINES} engines can be recorded at the same time."));
        }
        if self.mode == Mode::OffCpu && self.interval.is_some() {
            return Err("OFF_CPU has no interval: it records every off-CPU interval.".into());
        }
        for word in self.interval.iter().chain(&self.engines) {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@.-_:/=".contains(&byte);
            let good = (1..=LONGEST_WORD).contains(&word.len()) && word.bytes().all(plain);
            if !good || word.starts_with('-') {
                return Err("Give an interval such as 10ms or 512k, and an engine such as alloc@512k.".into());
            }
        }
        if self.interval.as_ref().is_some_and(|interval| interval.contains('@')) {
            return Err("Give an interval such as 10ms or 512k.".into());
        }
        // The recorder's own parser decides.
        let mut settings = Settings::default().without_engines();
        for event in self.events() {
            settings.add(&event).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(mode: Mode, interval: Option<&str>, engines: &[&str]) -> RunRequest {
        let engines = engines.iter().map(|engine| (*engine).to_owned()).collect();
        RunRequest { run: "r".into(), mode, duration: 1, interval: interval.map(str::to_owned), engines }
    }

    #[test]
    fn modes_map_to_engines() {
        let table = [
            (work(Mode::Cpu, None, &[]), &["cpu"][..]),
            (work(Mode::Cpu, Some("10ms"), &["alloc@1m"]), &["cpu@10ms", "alloc@1m"]),
            (work(Mode::Itimer, Some("99hz"), &[]), &["itimer@99hz"]),
            (work(Mode::Live, Some("64k"), &[]), &["alloc@64k", "live"]),
            (work(Mode::OffCpu, None, &[]), &[]),
        ];
        for (work, events) in table {
            assert_eq!(work.events(), events);
            work.check().unwrap();
        }
        for mode in Mode::ALL {
            work(mode, None, &[]).check().unwrap();
        }
    }

    #[test]
    fn untrusted_values_are_never_parsed_as_options() {
        let long = "x".repeat(1 << 20);
        let hostile = [
            "",
            "-o/etc/passwd",
            "--output=/etc/passwd",
            "10ms;id",
            "$(id)",
            "`id`",
            "10ms --flame x",
            "10ms,alloc",
            "10ms\n",
            "10ms\0",
            "ä",
            "%p",
            &long,
        ];
        for word in hostile {
            assert!(work(Mode::Wall, Some(word), &[]).check().is_err(), "{word:.40}");
            assert!(work(Mode::Wall, None, &[word]).check().is_err(), "{word:.40}");
        }
        assert!(work(Mode::Cpu, Some("1@1ms"), &[]).check().is_err());
        assert!(work(Mode::OffCpu, Some("1ms"), &[]).check().is_err());
        assert!(work(Mode::Cpu, None, &["alloc"; 17]).check().is_err());
        for duration in [0, LONGEST + 1, u64::MAX] {
            assert!(RunRequest { duration, ..work(Mode::Cpu, None, &[]) }.check().is_err());
        }
        // Even without the check it would remain an option value.
        assert_eq!(work(Mode::Wall, Some("-o/x"), &["-h"]).options(), ["--event=wall@-o/x", "--event=-h"]);
    }

    #[test]
    fn run_ids_have_only_path_safe_characters() {
        assert!(is_id("1700000000000-0a1b2c"));
        for bad in ["", "a/b", "..", "a?b", "a%2f", "a b", "\0", &"x".repeat(65)] {
            assert!(!is_id(bad), "{bad:?}");
        }
    }
}
