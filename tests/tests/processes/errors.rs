//! Errors print one clear line, with the right exit code, and lose no recorded data.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_tests::agents::without_perf;
use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::{Finished, beside, run};
use flightline_tests::{skip, victim};

const LIMIT: Duration = Duration::from_secs(60);

/// Asserts that standard error is one message of Flightline that contains `words`, without loader noise,
/// panic or debug output.
#[track_caller]
fn expect_message(finished: &Finished, code: i32, words: &[&str]) {
    let text = &finished.stderr;
    assert_eq!(finished.code(), code, "{text}");
    // `record` shares standard error with the program, so its messages have a prefix; the offline commands
    // use clap's format.
    let ours = |l: &&str| ["flightline: ", "error: ", "warning: "].iter().any(|p| l.starts_with(p));
    let lines: Vec<&str> = text.lines().filter(ours).collect();
    assert!(!lines.is_empty(), "no line of ours:\n{text}");
    let all = lines.join("\n").to_lowercase();
    for word in words {
        assert!(all.contains(&word.to_lowercase()), "{word:?} is not in the message:\n{text}");
    }
    for noise in ["ERROR: ld.so", "cannot be preloaded", "panicked", "Os {", "RUST_BACKTRACE"] {
        assert!(!text.contains(noise), "{noise:?} in:\n{text}");
    }
}

fn record(program: impl AsRef<Path>, args: &[&str]) -> (Finished, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(victim::flightline());
    command
        .args(["record", "-o"])
        .arg(folder.path().join("run.jfr"))
        .arg("--")
        .arg(program.as_ref())
        .args(args);
    let finished = run(command.current_dir(folder.path()).stdin(Stdio::null()), LIMIT);
    (finished, folder)
}

/// A minimal ELF executable header of the given class and machine, sufficient for checks before running.
fn foreign_program(folder: &Path, class: u8, machine: u16) -> PathBuf {
    let mut elf = vec![0u8; 256];
    elf[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
    elf[16..18].copy_from_slice(&2u16.to_le_bytes());
    elf[18..20].copy_from_slice(&machine.to_le_bytes());
    elf[20..24].copy_from_slice(&1u32.to_le_bytes());
    let path = folder.join(format!("foreign-{machine}"));
    fs::write(&path, elf).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn missing_program_exits_with_127() {
    let _place = beside();
    let (finished, _) = record("no-such-program-anywhere", &[]);
    expect_message(&finished, 127, &["no-such-program-anywhere", "not found"]);
}

#[test]
fn closing_line_names_files_that_exist() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let closing = |options: &[&str]| {
        let mut command = Command::new(victim::flightline());
        command.arg("record").args(options).args([
            "--",
            "sh",
            "-c",
            "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done",
        ]);
        command.env("TMPDIR", folder.path()).current_dir(folder.path()).stdin(Stdio::null());
        let finished = run(&mut command, LIMIT);
        assert_eq!(finished.code(), 0, "{}", finished.stderr);
        let mut there: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        there.sort();
        there.iter().for_each(|name| fs::remove_file(folder.path().join(name)).unwrap());
        (finished.stderr.lines().last().unwrap_or_default().to_owned(), there)
    };
    let (line, there) = closing(&["--flame", "a.html"]);
    assert!(line.ends_with("flame graph in a.html") && !line.contains(".jfr"), "{line}");
    assert_eq!(there, ["a.html"]);
    let (line, there) = closing(&["--flame", "a.svg", "-o", "a.jfr"]);
    assert!(line.ends_with(" in a.jfr, flame graph in a.svg"), "{line}");
    assert_eq!(there, ["a.jfr", "a.svg"]);
    let (line, there) = closing(&["-o", "a.jfr"]);
    assert!(line.ends_with(" in a.jfr"), "{line}");
    assert_eq!(there, ["a.jfr"]);
}

#[test]
fn non_executable_program_exits_with_126() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.txt");
    fs::write(&path, "text").unwrap();
    let (finished, _) = record(&path, &[]);
    expect_message(&finished, 126, &["plain.txt"]);
    let (finished, _) = record(folder.path(), &[]);
    expect_message(&finished, 126, &[&folder.path().to_string_lossy()]);
}

#[test]
fn static_program_is_rejected_for_alloc_engine() {
    let _place = beside();
    let program = victim::c("ticking", &["-O2", "-static"]);
    let mut command = Command::new(victim::flightline());
    let folder = tempfile::tempdir().unwrap();
    // Without CPU time there is nothing to record from outside.
    command.args(["record", "-e", "alloc", "-o"]).arg(folder.path().join("run.jfr")).arg("--");
    let finished = run(command.arg(program).arg("50").stdin(Stdio::null()), LIMIT);
    expect_message(&finished, 126, &["static", "perf"]);
}

#[test]
fn foreign_architecture_program_is_rejected() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    // EM_386 in ELF32, EM_PPC64, and the other one of x86_64 and aarch64.
    let other = if cfg!(target_arch = "x86_64") { (2, 183, "aarch64") } else { (2, 62, "x86_64") };
    for (class, machine, name) in [(1, 3, "i386"), (2, 21, "ppc64"), other] {
        let (finished, _) = record(foreign_program(folder.path(), class, machine), &[]);
        expect_message(&finished, 126, &["foreign-", name]);
    }
}

/// Root records such programs from outside (`outside.rs`); other users get an error before the start.
#[test]
fn setuid_program_is_rejected_for_other_users() {
    let _place = beside();
    // SAFETY: geteuid has no effects.
    if unsafe { libc::geteuid() } == 0 {
        return skip::other_user("refusal of a set-user-id program");
    }
    let su = ["/usr/bin/su", "/bin/su", "/usr/bin/passwd"].into_iter().find(|p| Path::new(p).exists());
    let Some(su) = su else { return skip::skip("no set-user-id program here") };
    let (finished, _) = record(su, &["--help"]);
    expect_message(&finished, 126, &["set-user-id"]);
}

/// A child that cannot be recorded (not even from outside, which gives CPU time only) runs as usual and is
/// reported.
#[test]
fn static_child_runs_and_is_reported_as_unrecorded() {
    let _place = beside();
    let child = victim::c("ticking", &["-O2", "-static"]);
    let spawner = victim::c("spawner", victim::OPTIMISED);
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(victim::flightline());
    command.args(["record", "-e", "alloc", "-o"]).arg(folder.path().join("run.jfr")).arg("--");
    command.arg(spawner).arg(&child).arg("50").current_dir(folder.path()).stdin(Stdio::null());
    let finished = run(&mut command, LIMIT);
    assert_eq!(finished.stdout_text().lines().count(), 10, "the child's own output");
    expect_message(&finished, 23, &["static", &child.file_name().unwrap().to_string_lossy()]);
    Recording::read(&folder.path().join("run.jfr")).unwrap();
}

#[test]
fn exit_status_and_signals_are_passed_through() {
    let _place = beside();
    for (script, code) in [("exit 0", 0), ("exit 42", 42), ("kill -TERM $$", 143), ("kill -SEGV $$", 139)] {
        let (finished, folder) = record("/bin/sh", &["-c", script]);
        assert_eq!(finished.code(), code, "{script}: {}", finished.stderr);
        Recording::read(&folder.path().join("run.jfr")).unwrap_or_else(|e| panic!("{script}: {e}"));
    }
}

#[test]
fn unwritable_output_fails_before_program_starts() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    for path in
        [folder.path().join("no/such/folder/run.jfr"), folder.path().to_path_buf(), "/proc/run.jfr".into()]
    {
        let marker = folder.path().join("ran");
        let mut command = Command::new(victim::flightline());
        command.args(["record", "-o"]).arg(&path).arg("--").arg("touch").arg(&marker);
        let finished = run(command.stdin(Stdio::null()), LIMIT);
        expect_message(&finished, 1, &[&path.to_string_lossy()]);
        assert!(!marker.exists(), "the program ran although its recording could not be written");
    }
}

#[test]
fn failed_recording_leaves_no_empty_picture() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("flame.html");
    let mut command = Command::new(victim::flightline());
    command.args(["record", "--flame"]).arg(&picture).args(["--", "/no/such/program"]);
    let finished = run(command.stdin(Stdio::null()), LIMIT);
    expect_message(&finished, 127, &["/no/such/program"]);
    assert!(!picture.exists());
}

/// Disk full while recording: the program runs to its own exit status, and the file contains the data up to
/// then and is readable.
#[test]
fn full_disk_retains_earlier_data_and_program_status() {
    let _place = beside();
    let program = victim::c("ticking", victim::OPTIMISED);
    let record = Record::new().rate(10_000);
    let full = record.folder().join("full");
    fs::create_dir(&full).unwrap();
    // A file system of 160 kB, seen by these processes only.
    // SAFETY: geteuid has no effects.
    let unshare = if unsafe { libc::geteuid() } == 0 { "-m" } else { "-rm" };
    let mount = "mount -t tmpfs -o size=160k none full";
    if !run(Command::new("unshare").args([unshare, "sh", "-c", mount]).current_dir(record.folder()), LIMIT)
        .status
        .success()
    {
        return skip::skip("no private file system can be mounted here: full disk");
    }
    let script = format!(
        r#"{mount} && "$0" record --rate 10000 -o full/run.jfr -- "$1" 1500; s=$?; cp full/run.jfr run.jfr; exit $s"#
    );
    let mut command = Command::new("unshare");
    command.args([unshare, "sh", "-c", &script]).arg(victim::flightline()).arg(program);
    command.current_dir(record.folder()).env("TRUTH_FILE", record.truth_path()).stdin(Stdio::null());
    let finished = run(&mut command, LIMIT);
    assert_eq!(finished.stdout_text().lines().count(), 10, "the program ran on: {}", finished.stderr);
    expect_message(&finished, 23, &["full/run.jfr", "no space left"]);
    let size = fs::metadata(record.path()).unwrap().len();
    assert!((60_000..=170_000).contains(&size), "{size} bytes");
    let recording = Recording::read(&record.path()).unwrap_or_else(|e| panic!("{e}\n{}", finished.stderr));
    assert!(
        recording.samples.len() > 2000,
        "only {} samples fitted into {size} bytes",
        recording.samples.len()
    );
    if let Some(foreign) = Recording::read_by_jdk(&record.path()) {
        assert_eq!(foreign.samples.len(), recording.samples.len());
    }
}

#[test]
fn full_device_is_reported_and_program_continues() {
    let _place = beside();
    let program = victim::c("ticking", victim::OPTIMISED);
    let record = Record::new().output("/dev/full");
    let recorded = record.run(program, &["200"]);
    assert_eq!(recorded.finished.stdout_text().lines().count(), 10, "the program ran on");
    expect_message(&recorded.finished, 23, &["/dev/full", "no space left"]);
    // The success of a program does not hide the failure of its recording.
    let recorded = Record::new().output("/dev/full").run("/bin/true", &[]);
    expect_message(&recorded.finished, 1, &["/dev/full", "no space left"]);
}

/// A reader that closes the pipe: no SIGPIPE, no hang, the program's own status.
#[test]
fn closed_pipe_does_not_stop_program() {
    let _place = beside();
    let program = victim::c("ticking", victim::OPTIMISED);
    let record = Record::new().rate(5000).output("-");
    let mut command = record.command(&program, &["1500"]);
    let mut drain = flightline_tests::run::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let stderr = flightline_tests::run::collect(drain.stderr.take().unwrap());
    let mut pipe = drain.stdout.take().unwrap();
    let mut some = [0u8; 1000];
    std::io::Read::read_exact(&mut pipe, &mut some).unwrap();
    assert_eq!(&some[..4], b"FLR\0");
    drop(pipe);
    let status = flightline_tests::run::wait(&mut drain, LIMIT, "flightline without a reader");
    let text = String::from_utf8_lossy(&stderr.join().unwrap()).into_owned();
    assert_eq!(status.code(), Some(23), "{text}");
    assert_eq!(text.lines().filter(|l| l.starts_with("tick ")).count(), 10, "{text}");
}

/// With `-o -` the recording alone is on stdout; the program's own output goes to stderr.
#[test]
fn output_dash_writes_only_recording_to_stdout() {
    let _place = beside();
    let program = victim::c("ticking", victim::OPTIMISED);
    let record = Record::new().output("-");
    let finished = run(&mut record.command(&program, &["400"]), LIMIT);
    assert_eq!(finished.code(), 23, "{}", finished.stderr);
    assert_eq!(finished.stderr.lines().filter(|l| l.starts_with("tick ")).count(), 10);
    assert_eq!(&finished.stdout[..4], b"FLR\0");
    let path = record.path();
    fs::write(&path, &finished.stdout).unwrap();
    let recording = Recording::read(&path).unwrap();
    assert!(recording.samples.len() > 600, "{}", recording.samples.len());
    if let Some(foreign) = Recording::read_by_jdk(&path) {
        assert_eq!(foreign.samples.len(), recording.samples.len());
    }
}

#[test]
fn recordings_are_readable_only_by_owner() {
    let _place = beside();
    let (finished, folder) = record("/bin/true", &[]);
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    let mode = fs::metadata(folder.path().join("run.jfr")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// An invalid recording: file, offset and the bytes read there; status 1.
#[test]
fn invalid_recordings_are_reported_with_offset() {
    let _place = beside();
    let (finished, folder) = record(victim::c("ticking", victim::OPTIMISED), &["100"]);
    assert_eq!(finished.code(), 23);
    let good = fs::read(folder.path().join("run.jfr")).unwrap();
    let mut no_magic = good.clone();
    no_magic[0] = b'X';
    let mut bad_version = good.clone();
    bad_version[4..6].copy_from_slice(&[0, 9]);
    let mut bad_size = good.clone();
    bad_size[8..16].copy_from_slice(&(1u64 << 62).to_be_bytes());
    let cases = [
        ("empty.jfr", Vec::new()),
        ("short.jfr", good[..40].to_vec()),
        ("magic.jfr", no_magic),
        ("version.jfr", bad_version),
        ("size.jfr", bad_size),
        ("text.jfr", b"this is not a recording at all, it is text\n".to_vec()),
    ];
    for (name, bytes) in cases {
        fs::write(folder.path().join(name), bytes).unwrap();
        for command in ["summary", "print"] {
            let mut reader = Command::new(victim::flightline());
            let finished = run(reader.arg(command).arg(name).current_dir(folder.path()), LIMIT);
            expect_message(&finished, 1, &[name]);
            let place =
                ["offset", "is empty", "does not start with"].iter().any(|w| finished.stderr.contains(w));
            assert!(place, "no place in:\n{}", finished.stderr);
        }
    }
    let mut reader = Command::new(victim::flightline());
    let finished = run(reader.args(["summary", "missing.jfr"]).current_dir(folder.path()), LIMIT);
    expect_message(&finished, 1, &["missing.jfr", "no such file"]);
}

#[test]
fn usage_errors_exit_with_status_2() {
    let _place = beside();
    for args in [
        &["record"][..],
        &["record", "--rate", "0", "--", "true"],
        &["no-such-command"],
        &["record", "--rate", "x"],
    ] {
        let mut command = Command::new(victim::flightline());
        let finished = run(command.args(args).stdin(Stdio::null()), LIMIT);
        assert_eq!(finished.code(), 2, "{args:?}: {}", finished.stderr);
        assert!(!finished.stderr.is_empty());
    }
}

/// A recording that cannot be drawn afterwards is refused before the program starts, and no page is written.
#[test]
fn refused_engine_fails_before_program_starts() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(victim::flightline());
    command.args(["record", "--engine", "perf", "-o", "run.jfr", "--", "touch", "started"]);
    without_perf(command.current_dir(folder.path()));
    let finished = run(&mut command, LIMIT);
    expect_message(&finished, 1, &["engine", "perf_event_paranoid", "seccomp", "--engine auto"]);
    assert!(!folder.path().join("started").exists() && !folder.path().join("run.jfr").exists());
}

#[test]
fn image_extensions_are_rejected_as_record_output() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    for (name, remedy) in [("x.svg", "--flame x.svg"), ("x.HTML", "--flame x.HTML"), ("x.folded", "fold")] {
        let mut command = Command::new(victim::flightline());
        command.args(["record", "-o", name, "--", "touch", "started"]).current_dir(folder.path());
        expect_message(&run(&mut command, LIMIT), 2, &[name, remedy]);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// If a session directory has no space for a program, the next directory is used.
#[test]
fn full_shared_memory_falls_back_to_next_directory() {
    let _place = beside();
    // SAFETY: no preconditions.
    let unshare = if unsafe { libc::geteuid() } == 0 { "-m" } else { "-rm" };
    let folder = tempfile::tempdir().unwrap();
    for size in ["4k", "64k", "128k"] {
        let script = format!(
            "mount -t tmpfs -o size={size} none /dev/shm && exec \"$0\" record -F 1000 -o run.jfr -- \
             perl -e 'for (1 .. 3000000) {{ $x++ }}'"
        );
        let mut command = Command::new("unshare");
        command.args([unshare, "sh", "-c", &script]).arg(victim::flightline());
        command.env("TMPDIR", folder.path()).current_dir(folder.path()).stdin(Stdio::null());
        let finished = run(&mut command, LIMIT);
        assert_eq!(finished.code(), 0, "{size}: {}", finished.stderr);
        let samples = Recording::read(&folder.path().join("run.jfr")).unwrap().samples.len();
        assert!(samples > 10, "{size}: {samples}: {}", finished.stderr);
    }
}

#[test]
fn flame_option_is_rejected_for_streams_and_patterns() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    run(Command::new("mkfifo").arg(at("fifo")), LIMIT).expect_success("mkfifo");
    let socket = format!("unix:{}", at("socket").display());
    for output in [at("run-%p.jfr").as_os_str(), at("fifo").as_os_str(), socket.as_ref(), "-".as_ref()] {
        let mut command = Command::new(victim::flightline());
        command.arg("record").arg("--flame").arg(at("page.html")).arg("-o").arg(output);
        let refused = run(command.arg("--").arg("touch").arg(at("ran")), LIMIT);
        assert_eq!(
            (refused.code(), refused.stderr.lines().count()),
            (2, 1),
            "{output:?}: {}",
            refused.stderr
        );
        assert!(!at("ran").exists() && !at("page.html").exists(), "{output:?}");
    }
}

/// The recording of `--flame` is in a private folder, which is removed. The program's name may look like an
/// option.
#[test]
fn flame_without_output_leaves_only_page() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let (programs, scratch) = (folder.path().join("programs"), folder.path().join("scratch"));
    fs::create_dir(&programs).unwrap();
    fs::create_dir(&scratch).unwrap();
    fs::copy("/bin/sh", programs.join("--output")).unwrap();
    let page = folder.path().join("page.html");
    let mut command = Command::new(victim::flightline());
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    command.args(["record", "-F", "1000", "--flame"]).arg(&page).args(["--", "--output", "-c", script]);
    let finished = run(command.env("PATH", &programs).env("TMPDIR", &scratch), LIMIT);
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    assert!(fs::read_to_string(&page).unwrap().contains("--output"), "{}", finished.stderr);
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
}
