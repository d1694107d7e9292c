//! The Java reader (`consumer/java`) on JDK 17 and 25: files of all producers agree with the JDK field by
//! field; our streams are read live.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use flightline_tests::canonical;
use flightline_tests::java_reader::{JavaReader, Lines};
use flightline_tests::run::{beside, collect, run, signal_group, spawn, wait};
use flightline_tests::victim::{self, flightline};
use flightline_tests::{foreign, run::Finished};

const LIMIT: Duration = Duration::from_secs(300);

fn fixtures(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(folder);
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name)
}

/// A stream of several chunks, each of many segments, made by the writer itself.
fn stream(folder: &Path) -> PathBuf {
    let path = folder.join("stream.jfr");
    let mut demo = foreign::write_demo();
    demo.arg(folder.join("patched.jfr")).arg(&path).args(["8000", "49152"]);
    run(&mut demo, LIMIT).expect_success("write_demo");
    path
}

/// Recordings for which the JDK returns wrong values: constants outside the chain, without an offset to it,
/// or of the previous chunk.
const JDK_WRONG: [&str; 6] = [
    "12_delta0_unchained.jfr",
    "23_huge_size_meta68_cp0_state0.jfr",
    "24_size_ok_cp0_meta68_state0.jfr",
    "28_size_maxlong_cp_first_state0.jfr",
    "41_two_chunks_id_clash_same_mid.jfr",
    "42_two_chunks_id_clash_diff_mid.jfr",
];

/// The output of `Compare` for a file: it agrees with the JDK, event for event, as far as the JDK reads.
struct Compared {
    name: String,
    agreed: u64,
    jdk: String,
    more: u64,
    ours: String,
}

fn compared(finished: &Finished) -> Vec<Compared> {
    let text = finished.stdout_text();
    assert!(!text.is_empty(), "{}", finished.stderr);
    let lines = text.lines().filter(|line| !line.starts_with("  "));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let [name, agreed, jdk, more, ours] = cells[..] else { panic!("{line}") };
            let number = |text: &str| text.parse().expect("a number");
            Compared {
                name: name.to_owned(),
                agreed: number(agreed),
                jdk: jdk.to_owned(),
                more: number(more),
                ours: ours.to_owned(),
            }
        })
        .collect()
}

#[test]
fn every_fixture_field_matches_jdk() {
    let _place = beside();
    let Some(java) = JavaReader::ready() else { return };
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let (wrong, right): (Vec<_>, Vec<_>) = fixtures("cases")
        .into_iter()
        .chain(fixtures("recordings"))
        .partition(|path| JDK_WRONG.contains(&&*name(path)));
    assert_eq!(wrong.len(), JDK_WRONG.len());
    // The newest JDK; `.ci/long agree` compares with the others as well.
    let skipped = if flightline_tests::long() { 0 } else { java.releases().len() - 1 };
    for release in java.releases().into_iter().skip(skipped) {
        let done = run(java.test(release, "Compare").args(&right), LIMIT);
        assert_eq!(done.code(), 0, "JDK {release}:\n{}{}", done.stdout_text(), done.stderr);
        let all = compared(&done);
        assert_eq!(all.len(), 2 * right.len(), "each as a file and as a stream");
        let whole = all.iter().filter(|file| file.jdk == "ok" && file.more == 0).count();
        assert!(whole > 2 * right.len() * 3 / 4, "JDK {release} read {whole} of {}", all.len());
        for file in &all {
            let name = file.name.split(' ').next().unwrap();
            // The JDK refuses or stops, or reads the second chunk with the first one's types.
            assert!(file.agreed + file.more > 0, "{}", file.name);
            let known = file.jdk != "ok"
                || name.starts_with("79_")
                || name.starts_with("21_")
                || name.starts_with("29_");
            assert!(file.more == 0 || known, "JDK {release}, {}: {} more", file.name, file.more);
        }
        // A file and the same bytes as a stream.
        for pair in all.chunks(2) {
            assert_eq!(pair[0].agreed + pair[0].more, pair[1].agreed + pair[1].more, "{}", pair[0].name);
            assert_eq!(pair[0].ours, pair[1].ours, "{}", pair[0].name);
        }
        let done = run(java.test(release, "Compare").args(&wrong), LIMIT);
        for file in compared(&done) {
            assert!(file.agreed < file.agreed + file.more, "JDK {release} is right about {} now", file.name);
        }
    }
}

/// Compares with our own decoder, also for recordings that no JDK reads correctly.
#[test]
fn fixture_samples_match_rust_decoder() {
    let _place = beside();
    let Some(java) = JavaReader::ready() else { return };
    let all: Vec<PathBuf> = fixtures("cases").into_iter().chain(fixtures("recordings")).collect();
    let done = run(java.test(25, "Lines").arg("next").args(&all), LIMIT).expect_success("Lines");
    let seen = Lines::all(&done.stdout_text());
    assert_eq!(seen.len(), all.len());
    for (path, lines) in all.iter().zip(seen) {
        let ours = canonical::of_stream(File::open(path).unwrap()).unwrap();
        assert!(lines.ended, "{}", path.display());
        lines.expect_samples(&ours, &path.display().to_string());
    }
}

/// J19: waiting, polling and subscribing give the same events, each once, also to several subscribers.
#[test]
fn blocking_polling_and_flow_return_same_events() {
    let _place = beside();
    let Some(java) = JavaReader::ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = stream(folder.path());
    let ours = canonical::of_file(&path).unwrap();
    assert_eq!(ours.samples.len(), 8000);
    // Each event reports one sample.
    let lost = format!("lost ring full: {} events", ours.types["flightline.SampleLoss"]);
    let bytes = std::fs::read(&path).unwrap();
    for release in java.releases() {
        for way in ["next", "reuse", "poll", "flow", "shared"] {
            let mut command = java.test(release, "Lines");
            let mut child = spawn(
                command.args([way, "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()),
            );
            let (out, err) = (collect(child.stdout.take().unwrap()), collect(child.stderr.take().unwrap()));
            let mut input = child.stdin.take().unwrap();
            // In pieces that end at any offset.
            for piece in bytes.chunks(7919) {
                input.write_all(piece).unwrap();
            }
            drop(input);
            wait(&mut child, LIMIT, way);
            let text = String::from_utf8(out.join().unwrap()).unwrap();
            assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&err.join().unwrap()));
            let lines = Lines::parse(&text);
            lines.expect(&ours, &format!("JDK {release}, {way}"));
            assert!(lines.lost.iter().any(|told| told.starts_with(&lost)), "{lost}: {:?}", lines.lost);
        }
    }
}

/// Samples arrive during the stream, and all of them are there at its end.
#[test]
fn live_recorder_pipe_delivers_all_samples() {
    let Some(java) = JavaReader::ready() else { return };
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    for release in java.releases() {
        let mut command = Command::new(flightline());
        command.args(["record", "--rate", "1000", "-o", "-", "--"]);
        command.arg(victim::c("ticking", victim::OPTIMISED)).arg("10000000");
        command.env("TRUTH_FILE", folder.path().join("truth.tsv"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut recorder = spawn(&mut command);
        let told = collect(recorder.stderr.take().unwrap());
        let mut lines = java.test(release, "Lines");
        let mut reader = spawn(
            lines.args(["next", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()),
        );
        let errors = collect(reader.stderr.take().unwrap());
        let (mut from, mut to) = (recorder.stdout.take().unwrap(), reader.stdin.take().unwrap());
        // The pipe's data goes to the reader and is stored as well.
        let copied = thread::spawn(move || {
            let (mut all, mut piece) = (Vec::new(), vec![0; 1 << 16]);
            while let Ok(n @ 1..) = from.read(&mut piece) {
                all.extend_from_slice(&piece[..n]);
                to.write_all(&piece[..n]).unwrap();
            }
            all
        });
        let mut out = BufReader::new(reader.stdout.take().unwrap());
        let mut text = String::new();
        // The program ends only after these were printed, so they arrived live.
        for _ in 0..500 {
            assert!(out.read_line(&mut text).unwrap() > 0, "it ended: {text}");
        }
        signal_group(recorder.id(), libc::SIGINT);
        wait(&mut recorder, LIMIT, "the recorder");
        let told = String::from_utf8_lossy(&told.join().unwrap()).into_owned();
        let rest = collect(out);
        wait(&mut reader, LIMIT, "the reader");
        let errors = String::from_utf8_lossy(&errors.join().unwrap()).into_owned();
        text += &String::from_utf8(rest.join().unwrap()).unwrap();
        let bytes = copied.join().unwrap();
        let ours = canonical::of_stream(&bytes[..]).unwrap();
        assert!(ours.types["flightline.Segment"] > 0, "{told}");
        let lines = Lines::parse(&text);
        assert_eq!(errors, "");
        lines.expect(&ours, &format!("JDK {release}"));
        assert!(lines.samples.iter().all(|line| !line.contains('?')), "unresolved");
    }
}

/// Over a Unix socket (JVMs before Java 16 fail), and over TCP.
#[test]
fn unix_and_tcp_sockets_deliver_all_samples() {
    let _place = beside();
    let Some(java) = JavaReader::ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = stream(folder.path());
    let ours = canonical::of_file(&path).unwrap();
    for release in java.releases() {
        for way in ["next", "poll"] {
            let socket = folder.path().join(format!("{release}-{way}"));
            let door = UnixListener::bind(&socket).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let sender = thread::spawn(move || {
                let (mut client, _) = door.accept().unwrap();
                client.write_all(&bytes).unwrap();
            });
            let mut lines = java.test(release, "Lines");
            let done =
                run(lines.arg(way).arg(format!("unix:{}", socket.display())), LIMIT).expect_success("Lines");
            sender.join().unwrap();
            Lines::parse(&done.stdout_text()).expect(&ours, &format!("JDK {release}, {way}"));
        }
        // Over TCP it sends the token first.
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp:{}", door.local_addr().unwrap());
        let bytes = std::fs::read(&path).unwrap();
        let sender = thread::spawn(move || {
            let (mut client, _) = door.accept().unwrap();
            let mut said = [0; 12];
            client.read_exact(&mut said).unwrap();
            assert_eq!(&said, b"open sesame\n");
            client.write_all(&bytes).unwrap();
        });
        let mut lines = java.test(release, "Lines");
        lines.args(["next", &address]).env("FLIGHTLINE_TOKEN", "open sesame");
        let done = run(&mut lines, LIMIT).expect_success("Lines");
        sender.join().unwrap();
        Lines::parse(&done.stdout_text()).expect(&ours, &format!("JDK {release}, tcp"));
    }
}

/// J15: a Java program states the values of `System.nanoTime()` between which it worked, and all of its
/// samples are between them.
#[test]
fn sample_times_match_system_nano_time() {
    let Some(java) = JavaReader::ready() else { return };
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    for release in java.releases() {
        let recording = folder.path().join(format!("{release}.jfr"));
        let program = java.test(release, "Brackets");
        let mut command = Command::new(flightline());
        command.args(["record", "--rate", "500", "-o", "-", "--"]).arg(program.get_program());
        // Compiled code, in which the JVM does not stop threads, gets no samples of other threads.
        command.args(program.get_args()).arg("2000");
        let done = run(command.stdin(Stdio::null()), LIMIT).expect_success("recording Brackets");
        std::fs::write(&recording, &done.stdout).unwrap();
        let turns: Vec<(bool, i64, i64)> = done
            .stderr
            .lines()
            .filter_map(|line| {
                let (kind, times) = line.split_once(' ')?;
                let (begin, end) = times.split_once(' ')?;
                matches!(kind, "work" | "pause")
                    .then(|| (kind == "work", begin.parse().unwrap(), end.parse().unwrap()))
            })
            .collect();
        assert!(turns.len() > 10, "{}", done.stderr);
        let mut command = java.test(release, "NanoTimes");
        let times = run(command.arg(&recording), LIMIT).expect_success("NanoTimes").stdout_text();
        // The thread that runs main(): samples from its first scheduling on.
        let times: Vec<i64> = times.lines().map(|line| line.parse().unwrap()).collect();
        let (first, last) = (turns[0].1, turns.last().unwrap().2);
        let inside: Vec<i64> = times.iter().copied().filter(|t| (first..=last).contains(t)).collect();
        let working =
            inside.iter().filter(|t| turns.iter().any(|turn| turn.0 && (turn.1..=turn.2).contains(t)));
        let working = working.count();
        assert!(
            inside.len() > 30,
            "JDK {release}: {} of {} samples in the brackets",
            inside.len(),
            times.len()
        );
        // Going to sleep and waking take a little CPU time, too.
        assert!(
            working * 10 >= inside.len() * 9,
            "JDK {release}: {working} of {} while it worked",
            inside.len()
        );
    }
}

/// J22: the reader skips unknown fields and types. J6: it reports damage, and all other data is unchanged.
#[test]
fn unknown_fields_and_types_are_skipped() {
    let _place = beside();
    let Some(java) = JavaReader::ready() else { return };
    for name in [
        "78_frame_extra_field",
        "78b_method_extra_field",
        "78c_es_extra_field_end",
        "61_event_extra_bytes",
        "60_unknown_event_type",
    ] {
        let path = fixture(&format!("cases/{name}.jfr"));
        let ours = canonical::of_file(&path).unwrap();
        let done = run(java.test(17, "Lines").arg("next").arg(&path), LIMIT).expect_success("Lines");
        let lines = Lines::parse(&done.stdout_text());
        assert!(!lines.samples.is_empty(), "{name}");
        lines.expect_samples(&ours, name);
    }
}

#[test]
fn damaged_streams_yield_intact_events() {
    let _place = beside();
    let Some(java) = JavaReader::ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = stream(folder.path());
    let done = run(java.test(25, "Damaged").arg("120").arg(path), LIMIT).expect_success("Damaged");
    println!("{}", done.stdout_text());
}

#[test]
fn hostile_input_is_read_in_bounded_memory() {
    let _place = beside();
    let Some(java) = JavaReader::ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = stream(folder.path());
    let small = ["flightline", "ap-native-cpu", "ap-native-fifo"]
        .map(|name| fixture(&format!("recordings/{name}.jfr")));
    for (rounds, files) in
        [("40", fixtures("cases")), ("60", small.to_vec()), ("3", fixtures("recordings")), ("40", vec![path])]
    {
        let done =
            run(java.test(17, "Mutations").arg(rounds).args(&files), LIMIT).expect_success("Mutations");
        println!("{}", done.stdout_text());
    }
}
