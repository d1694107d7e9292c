//! Recordings of every kind, by every reader of recordings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use flightline_tests::controlled::LIMIT;
use flightline_tests::follower::Follower;
use flightline_tests::foreign::{Followed, Stream};
use flightline_tests::jfr_tool::JfrTool;
use flightline_tests::repository::chunks;
use flightline_tests::run::{beside, collect, run, until, wait};
use flightline_tests::stream::starts;
use flightline_tests::victim::{flightline, target_dir};
use flightline_tests::{canonical, foreign, skip};

use super::made::{self, Made};
use super::table::{self, KINDS, Kind, READERS, Reader, Shown, shown_by};

fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(made::all)
}

/// A file, the name of its kind, and its samples by our own reader: weighted lines, sorted.
struct File {
    kind: &'static str,
    path: PathBuf,
    truth: Vec<String>,
}

/// All files that a test has to show with a reader.
fn files(test: Shown, reader: &Reader) -> Vec<File> {
    let shown = |kind: &&Kind| shown_by(test, kind).iter().any(|one| one.name == reader.name);
    let of = |kind: &'static Kind| made().files[kind.name].iter().map(|path| file(kind.name, path));
    KINDS.iter().filter(shown).flat_map(of).collect()
}

fn file(kind: &'static str, path: &Path) -> File {
    let ours = canonical::of_file(path).unwrap();
    assert!(ours.warnings.is_empty() || kind == table::KILLED_FILE, "{kind}: {:?}", ours.warnings);
    let mut truth = ours.weighted;
    assert!(!truth.is_empty(), "{kind}: no samples in {}", path.display());
    // Pushed folded text has no threads.
    let resolved = kind == table::PUSHED || truth.iter().all(|line| !line.contains('?'));
    assert!(resolved, "{kind}: unresolved references");
    truth.sort_unstable();
    File { kind, path: path.to_owned(), truth }
}

/// The lines that the reader should print: some of them lack thread ids, or are stacks alone.
fn wanted(job: &str, truth: &[String]) -> Vec<String> {
    match job {
        "jmc" | "converter" => {
            let blank = |line: &String| {
                let mut cells: Vec<&str> = line.split('\t').collect();
                cells[2] = "-";
                cells.join("\t")
            };
            let mut lines: Vec<String> = truth.iter().map(blank).collect();
            lines.sort_unstable();
            lines
        }
        "pyroscope" => added_up(truth.iter().map(|line| line.rsplitn(3, '\t'))),
        _ => truth.to_vec(),
    }
}

/// Stacks and their samples, from lines that end with both.
fn added_up<'a>(lines: impl Iterator<Item = impl Iterator<Item = &'a str>>) -> Vec<String> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for mut cells in lines {
        let samples: u64 = cells.next().unwrap().parse().unwrap();
        let frames = cells.next().unwrap().split(';').map(|frame| frame.trim_start_matches('.'));
        *stacks.entry(frames.collect::<Vec<_>>().join(";")).or_default() += samples;
    }
    stacks.into_iter().map(|(stack, samples)| format!("{stack}\t{samples}")).collect()
}

/// The differences between a reader's lines and ours.
fn differences(job: &str, files: &[File]) -> Vec<String> {
    let paths: Vec<&Path> = files.iter().map(|file| file.path.as_path()).collect();
    let mut wrong = Vec::new();
    for (file, has) in files.iter().zip(foreign::each(job, &paths)) {
        let wanted = wanted(job, &file.truth);
        let has = match has {
            Ok(lines) if job == "pyroscope" => added_up(lines.iter().map(|line| line.rsplitn(2, '\t'))),
            Ok(lines) => lines,
            Err(error) => {
                wrong.push(format!("{job}, {}: {error}", file.kind));
                continue;
            }
        };
        if has != wanted {
            let first = wanted.iter().zip(&has).find(|(a, b)| a != b);
            let counts = format!("{} lines for {}", has.len(), wanted.len());
            wrong.push(format!("{job}, {}, {counts}: {first:#?}", file.kind));
        }
    }
    println!("{job}: {} files, {} differ", files.len(), wrong.len());
    wrong
}

/// Runs all readers of a test, each in a thread.
fn ask(test: Shown) {
    let _place = beside();
    let wrong: Vec<String> = thread::scope(|scope| {
        let asked: Vec<_> = READERS
            .iter()
            .flat_map(|reader| reader.jobs.iter().map(move |job| (reader, *job)))
            .map(|(reader, job)| {
                scope.spawn(move || match files(test, reader) {
                    files if files.is_empty() => Vec::new(),
                    files => differences(job, &files),
                })
            })
            .collect();
        asked.into_iter().flat_map(|asked| asked.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// JMC merges two chunks that start at the same time.
#[test]
fn chunks_have_distinct_start_times() {
    let _place = beside();
    let mut several = 0;
    for (kind, files) in &made().files {
        for file in files.iter().filter(|_| *kind != table::KILLED_FILE) {
            let starts = starts(&std::fs::read(file).unwrap());
            assert_eq!(starts.iter().collect::<BTreeSet<_>>().len(), starts.len(), "{kind}: {starts:?}");
            several += usize::from(starts.len() > 1);
        }
    }
    assert!(several > 2, "{several} files of several chunks");
}

#[test]
fn every_recording_reader_sees_every_sample() {
    if foreign::ready() {
        ask(table::EVERY_READER);
    }
}

#[test]
fn jafar_sees_every_sample() {
    if std::env::var_os("FLIGHTLINE_JAFAR").is_none() {
        return skip::on_no_registry("jafar: no folder with its jars is named by FLIGHTLINE_JAFAR");
    }
    if foreign::ready() {
        ask(table::ON_NO_REGISTRY);
    }
}

#[test]
fn jfr_tool_counts_same_samples() {
    let _place = beside();
    for (release, reader) in [(17, "jfr 17"), (25, "jfr 25")] {
        let Some(home) = foreign::jdk(release) else { return };
        let reader = READERS.iter().find(|one| one.name == reader).unwrap();
        let mut tool = JfrTool::start(&home);
        for file in files(table::TOOLS, reader) {
            let told = tool.run(&["summary", file.path.to_str().unwrap()]).expect_success("jfr summary");
            let text = told.stdout_text();
            let counts = text.lines().filter_map(|line| {
                let mut words = line.split_whitespace();
                let sample = matches!(words.next(), Some("jdk.ExecutionSample" | "profiler.WallClockSample"));
                sample.then(|| words.next()?.parse::<usize>().ok())?
            });
            assert_eq!(counts.sum::<usize>(), file.truth.len(), "jfr {release}, {}: {text}", file.kind);
            if file.kind == table::PUSHED {
                // The JDK reads a recording whose methods have no names.
                let print = ["print", "--stack-depth", "64", file.path.to_str().unwrap()];
                let text = tool.run(&print).expect_success("jfr print").stdout_text();
                assert!(text.contains("unknown.main()"), "jfr {release}: {text}");
            }
        }
    }
}

/// The events of a live stream, up to its end or its limit.
fn seen(mut child: Child) -> Stream {
    let (out, errors) = (collect(child.stdout.take().unwrap()), collect(child.stderr.take().unwrap()));
    wait(&mut child, LIMIT, "EventStream");
    let stream = Stream::parse(&String::from_utf8(out.join().unwrap()).unwrap());
    let errors = String::from_utf8_lossy(&errors.join().unwrap()).into_owned();
    assert!(!errors.contains("stream error"), "{errors}");
    stream
}

#[test]
fn jdk_stream_from_killed_recorder_has_all_samples_and_stays_open() {
    if !foreign::ready() {
        return;
    }
    let _place = beside();
    let path = &made().files[table::KILLED_FILE][0];
    let truth = canonical::of_file(path).unwrap().sorted();
    let streams =
        ["jdk17", "jdk25"].map(|jdk| foreign::follow(jdk, Followed::File(path), Duration::from_secs(5)));
    for stream in streams.map(seen) {
        assert!(!stream.closed, "it ended");
        assert_eq!(stream.sorted(), truth);
    }
}

#[test]
fn jdk_follows_repository_while_it_is_written() {
    if !foreign::ready() {
        return;
    }
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let mut victim = made::in_repository(folder.path());
    let pid = victim.pid;
    let all = || chunks(folder.path()).remove(&pid).unwrap_or_default();
    let first = until(LIMIT, "a chunk", || all().first()?.parent().map(Path::to_owned));
    let followers = ["jdk17", "jdk25"].map(|jdk| {
        let limit = Duration::from_secs(20);
        Follower::new(jdk.into(), foreign::follow(jdk, Followed::Repository(&first), limit))
    });
    made::phases(&mut victim, folder.path());
    // The program still runs, and they have its first events.
    for follower in &followers {
        follower.until("a sample", |line| line.contains("before_work"));
    }
    victim.end(0);
    let files = all();
    let mut truth: Vec<String> =
        files.iter().flat_map(|file| canonical::of_file(file).unwrap().samples).collect();
    truth.sort_unstable();
    for follower in followers {
        let (_, lines, errors) = follower.end();
        let stream = Stream::parse(&lines.join("\n"));
        assert_eq!(stream.sorted(), truth, "{files:?}: {errors}");
    }
}

/// Folded text, by weight.
fn folded(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().map(|line| line.rsplit_once(' ').expect("a weight"));
    let mut stacks = BTreeMap::new();
    for (stack, weight) in lines {
        *stacks.entry(stack.to_owned()).or_default() += weight.parse::<u64>().unwrap();
    }
    stacks
}

#[test]
fn jfrconv_reads_folded_stacks() {
    let (Some(home), true) = (foreign::jdk(17), foreign::ready()) else { return };
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut fold = Command::new(flightline());
    fold.arg("fold").arg(&made().files["file"][0]).arg("-o").arg(at("a.collapsed"));
    run(&mut fold, LIMIT).expect_success("fold");
    // Its page drops the names of frames in brackets, and treats a stack without a root as the end of the
    // text.
    let text = std::fs::read_to_string(at("a.collapsed")).unwrap();
    let whole: Vec<&str> = text.lines().filter(|line| !line.starts_with("[truncated]")).collect();
    std::fs::write(at("a.collapsed"), whole.join("\n") + "\n").unwrap();
    let jars =
        std::fs::read_dir(target_dir().join("readers/lib")).unwrap().map(|entry| entry.unwrap().path());
    let jar = jars.into_iter().find(|jar| jar.to_string_lossy().contains("jfr-converter")).unwrap();
    // Its page of them, and that page read again.
    for (from, to) in [("a.collapsed", "a.html"), ("a.html", "b.collapsed")] {
        let mut convert = Command::new(home.join("bin/java"));
        convert.arg("-jar").arg(&jar).arg(at(from)).arg(at(to)).stdin(Stdio::null());
        run(&mut convert, LIMIT).expect_success("jfrconv");
    }
    let [before, after] =
        ["a.collapsed", "b.collapsed"].map(|name| std::fs::read_to_string(at(name)).unwrap());
    // It marks the kind of a frame.
    let unmarked: String =
        after.split("_[").map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect();
    assert_eq!(folded(&unmarked), folded(&before));
    assert!(folded(&before).values().sum::<u64>() > 100);
}
