//! Programs that never repeat a stack: the recorder's memory stays within its limits. Entries that it evicts
//! neither leave unresolved references nor change a constant's value. Longer: `.ci/long soak`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use flightline_tests::recording::Recording;
use flightline_tests::run::{beside, spawn, status_kb, turn, wait};
use flightline_tests::victim;
use jfr_format::event::Value;
use jfr_format::read::{Input, Item};
use tempfile::TempDir;

/// No result depends on this time.
const LIMIT: Duration = Duration::from_secs(300);

/// The recorded test program `endless`.
struct Endless {
    recorder: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: TempDir,
}

impl Endless {
    #[track_caller]
    fn recorded(options: &[&str]) -> Endless {
        let folder = TempDir::with_prefix("flightline-test-").unwrap();
        let (program, module) = (victim::c("endless", victim::OPTIMISED), victim::modules(1).remove(0));
        let mut command = Command::new(victim::flightline());
        command.arg("record").args(options).arg("-o").arg(folder.path().join("run.jfr")).arg("--");
        command.arg(program).arg(folder.path()).arg(module);
        let mut recorder =
            spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()));
        let (input, output) = (recorder.stdin.take(), BufReader::new(recorder.stdout.take().unwrap()));
        let mut endless = Endless { recorder, input, output, folder };
        assert!(endless.line().starts_with("ready "));
        endless
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the program ended");
        line
    }

    /// Lets the program work, and returns the recorder's peak resident memory during that time in kB.
    #[track_caller]
    fn tell(&mut self, what: &str) -> u64 {
        // The peak is reset to the memory that is resident now.
        std::fs::write(format!("/proc/{}/clear_refs", self.recorder.id()), "5").unwrap();
        self.input.as_mut().unwrap().write_all(format!("{what}\n").as_bytes()).unwrap();
        assert_eq!(self.line(), "done\n");
        status_kb(self.recorder.id(), "VmHWM").unwrap()
    }

    /// Lets the program end; returns the recording.
    #[track_caller]
    fn end(mut self) -> (PathBuf, TempDir) {
        drop(self.input.take());
        assert!(wait(&mut self.recorder, LIMIT, "flightline record").success());
        (self.folder.path().join("run.jfr"), self.folder)
    }
}

/// A hash of a constant's value with all of its references.
fn meaning(value: Value<'_>, hash: &mut DefaultHasher) {
    match value {
        Value::Reference(reference) => match Value::Reference(reference).record().unwrap() {
            Some(record) => {
                for field in record.iter() {
                    meaning(field.unwrap().1, hash);
                }
            }
            None => Value::Reference(reference).text().unwrap().hash(hash),
        },
        Value::Array(values) => values.iter().for_each(|value| meaning(value.unwrap(), hash)),
        Value::Struct(record) => {
            for field in record.iter() {
                meaning(field.unwrap().1, hash);
            }
        }
        other => format!("{other:?}").hash(hash),
    }
}

/// The values of one recording's constants, by field and key.
#[derive(Default)]
struct Meanings {
    known: HashMap<(&'static str, u64), u64>,
    chunks: usize,
    references: u64,
}

impl Meanings {
    /// Follows the references of all events. Each must have a value, and no value may change. Only every
    /// `one_in`th stack is checked in depth.
    #[track_caller]
    fn read(path: &Path, one_in: u64) -> Meanings {
        let mut all = Meanings::default();
        let mut input = Input::open(path).unwrap();
        let mut looked_at = HashSet::new();
        while let Some(item) = input.next().unwrap() {
            let batch = match item {
                Item::ChunkStart(_) => {
                    all.chunks += 1;
                    looked_at.clear();
                    continue;
                }
                Item::Warning(warning) => panic!("{warning}"),
                Item::Events(batch) => batch,
                Item::ChunkEnd(_) => continue,
            };
            for event in batch.events() {
                for field in ["stackTrace", "sampledThread", "eventThread", "thread"] {
                    let Some(Value::Reference(reference)) = event.field(field).unwrap() else { continue };
                    let key = reference.key();
                    let kind = if field == "stackTrace" { "stack" } else { "thread" };
                    if key == 0 || !looked_at.insert((kind, key)) {
                        continue;
                    }
                    all.references += 1;
                    let record = Value::Reference(reference).record().unwrap();
                    assert!(record.is_some(), "chunk {}: {kind} {key} is not there", all.chunks);
                    if kind == "stack" && !key.is_multiple_of(one_in) {
                        continue;
                    }
                    let mut hash = DefaultHasher::new();
                    meaning(Value::Reference(reference), &mut hash);
                    let said = hash.finish();
                    let before = *all.known.entry((kind, key)).or_insert(said);
                    assert_eq!(before, said, "chunk {}: {kind} {key} means something else", all.chunks);
                }
            }
        }
        all
    }
}

/// Chunks of a recording that is still written.
fn chunks(path: &Path) -> usize {
    Recording::read(path).map_or(0, |recording| recording.chunks)
}

/// Returns true if a recording that is still written has several chunks and enough stacks for the test.
fn is_enough(path: &Path) -> bool {
    Recording::read(path).is_ok_and(|recording| recording.chunks >= 2 && recording.samples.len() > 45_000)
}

#[test]
fn recorder_memory_is_bounded_for_unique_stacks() {
    let turn = turn();
    let mut endless = Endless::recorded(&["--rate", "10000"]);
    let live = endless.folder.path().join("run.jfr");
    let mut peaks: Vec<u64> = Vec::new();
    // On a busy machine the drain loses samples, and the dictionary fills later.
    while peaks.len() < 6 || peaks.len() < 24 && !is_enough(&live) {
        peaks.push(endless.tell("stacks 600"));
    }
    let (path, _folder) = endless.end();
    let _place = turn.measured();
    eprintln!("highest resident kB: {peaks:?}");
    let meanings = Meanings::read(&path, 101);
    // Cached as both addresses and frames, all of them would take 250 MB.
    assert!(peaks.iter().all(|&peak| peak < 180 << 10), "{peaks:?}");
    assert!(meanings.chunks >= 2, "the dictionary is cleared between two chunks");
    assert!(meanings.references > 40_000, "{} stacks", meanings.references);
}

#[test]
fn recorder_memory_is_bounded_for_short_lived_threads() {
    const EACH: u64 = 6_000;
    let _place = beside();
    let mut endless = Endless::recorded(&["--rate", "99"]);
    let live = endless.folder.path().join("run.jfr");
    let mut peaks: Vec<u64> = Vec::new();
    // On a busy machine fewer of them find a slot.
    while peaks.len() < 4 || peaks.len() < 16 && chunks(&live) < 2 {
        peaks.push(endless.tell(&format!("threads {EACH}")));
    }
    let (path, _folder) = endless.end();
    eprintln!("highest resident kB: {peaks:?}");
    let meanings = Meanings::read(&path, 1);
    assert!(meanings.chunks >= 2, "threads are forgotten between two chunks");
    let threads = meanings.known.keys().filter(|(kind, _)| *kind == "thread").count() as u64;
    // Threads that are started while the slots of those before are not free yet are counted as not recorded.
    let recording = Recording::read(&path).unwrap();
    let (started, ended) = (recording.events["jdk.ThreadStart"], recording.events["jdk.ThreadEnd"]);
    assert!(threads >= started && started == ended, "{threads} threads, {started} started, {ended} ended");
    let all = peaks.len() as u64 * EACH;
    assert!(started > all / 8, "{started} of {all}");
    let names: BTreeSet<&str> = recording.names.values().map(String::as_str).collect();
    assert!(names.iter().filter(|name| name.starts_with('t')).count() as u64 > all / 16);
}

#[test]
fn recorder_mappings_are_bounded_for_unique_libraries() {
    let _place = beside();
    let mut endless = Endless::recorded(&["--rate", "1000"]);
    let held = |endless: &Endless| {
        let proc = PathBuf::from(format!("/proc/{}", endless.recorder.id()));
        let maps = std::fs::read_to_string(proc.join("maps")).unwrap();
        let mapped = maps.lines().filter(|line| line.contains("/copy")).count();
        (mapped, proc.join("fd").read_dir().unwrap().count())
    };
    let seen: Vec<(u64, (usize, usize))> =
        (0..6).map(|_| (endless.tell("modules 250"), held(&endless))).collect();
    eprintln!("highest resident kB, copies mapped, descriptors: {seen:?}");
    let (path, _folder) = endless.end();
    let recording = Recording::read(&path).unwrap();
    let named: HashSet<&str> = recording
        .stacks
        .iter()
        .flat_map(|stack| &stack.frames)
        .filter(|frame| frame.method == "module_work_0")
        .map(|frame| frame.class.as_str())
        .collect();
    eprintln!("{} of 1500 libraries are named in stacks", named.len());
    // All are mapped at one address, and the recorder scans every 100 ms at the latest: 30 times in these 3 s
    // of CPU time.
    assert!(named.len() > 20);
    // Each had debug information that was read. How many depends on the machine's load. Only the 512 most
    // recently unloaded of 1500 stay: they may still be in samples.
    let most = 20 + named.len() / 2;
    assert!(seen.iter().all(|(_, (mapped, open))| *mapped < most && *open < 600), "{seen:?}");
}
