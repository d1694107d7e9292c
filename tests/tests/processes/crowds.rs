//! More processes than the recorder can handle: those above the limit are reported, not recorded, and run
//! undisturbed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::{run, turn};
use flightline_tests::{skip, victim};

const LIMIT: Duration = Duration::from_secs(120);

/// The recorder is stopped while processes start and end. Then it continues, and space is freed.
const PROGRAM: &str = "kill -STOP $PPID
i=0; while [ $i -lt 60 ]; do awk 'BEGIN { exit 7 }'; [ $? = 7 ] || exit 1; i=$((i + 1)); done
used=$(du -sm /dev/shm | cut -f1)
kill -CONT $PPID
echo $used MB
while [ $(ls /dev/shm/flightline-*/*.proc | wc -l) -gt 3 ]; do sleep 0.2; done; sleep 3
exec awk 'BEGIN { for (i = 0; i < 6000000; i++) s += i; exit 3 }'";

#[test]
fn processes_beyond_limit_are_reported_and_not_recorded() {
    // SAFETY: no arguments.
    let unshare = if unsafe { libc::geteuid() } == 0 { "-m" } else { "-rm" };
    let small = "mount -t tmpfs -o size=64m none /dev/shm";
    if !run(Command::new("unshare").args([unshare, "sh", "-c", small]), LIMIT).status.success() {
        return skip::skip("file systems may not be mounted here: a recorder that cannot keep up");
    }
    let _turn = turn();
    let record = Record::new().rate(1000);
    let inner = record.command(Path::new("sh"), &["-c", PROGRAM]);
    let mut outer = Command::new("unshare");
    outer.args([unshare, "sh", "-c", &format!("{small} && exec \"$0\" \"$@\"")]);
    outer.arg(victim::flightline()).args(inner.get_args()).current_dir(record.folder());
    let finished = run(&mut outer, LIMIT);
    assert_eq!(finished.code(), 3, "{}", finished.stderr);
    let out = finished.stdout_text();
    let used: u64 = out.split_whitespace().next().unwrap().parse().unwrap();
    // Three quarters of the file system are reserved for processes.
    assert!((8..=56).contains(&used), "{used} MB of 64 used");
    assert!(finished.stderr.contains("some programs are not recorded"), "{}", finished.stderr);
    assert!(finished.stderr.contains(" programs not recorded, "), "{}", finished.stderr);
    let recording = Recording::read(&record.path()).unwrap();
    let last =
        recording.samples.iter().filter(|s| recording.names.get(&s.tid).is_some_and(|n| n.contains("awk")));
    assert!(last.count() >= 50, "what begins when there is room again is recorded: {:?}", recording.names);
}
