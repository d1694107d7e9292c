//! The linked library: a program that records itself, with the helper process or a thread of its own as the
//! writer.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use flightline_tests::record::Record;
use flightline_tests::recording::{Recording, Stack};
use flightline_tests::run::{beside, run};
use flightline_tests::victim;

fn in_spell(stack: &Stack) -> bool {
    stack.frames.iter().any(|frame| frame.method.contains("spell"))
}

/// All three threads of the example are sampled in their functions, and most samples are there.
fn records_itself(helper: &str) {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("self.jfr");
    let mut program = Command::new(victim::example("record_self"));
    program.arg(&output).env("FLIGHTLINE_BIN", helper).env("PATH", "/usr/bin:/bin");
    let finished = run(&mut program, Duration::from_secs(120)).expect_success("record_self");
    assert!(finished.stdout_text().contains("written: "), "{}", finished.stdout_text());
    let recording = Recording::read(&output).unwrap();
    let working: BTreeSet<u64> =
        recording.samples.iter().filter(|s| in_spell(&recording.stacks[s.stack])).map(|s| s.tid).collect();
    assert_eq!(working.len(), 3, "threads seen in spell: {working:?}");
    let share = recording.share(in_spell);
    assert!(share > 0.8, "{share} of the samples are in spell");
}

#[test]
fn self_recording_is_written_by_helper_process() {
    records_itself(victim::flightline().to_str().unwrap());
}

#[test]
fn self_recording_is_written_by_thread() {
    records_itself("/nonexistent/flightline");
}

/// Two recorders in one process would receive each other's signals: the second one reports that and does
/// nothing.
#[test]
fn second_recorder_in_process_is_rejected() {
    let _place = beside();
    let record = Record::new();
    let inner = record.folder().join("inner.jfr");
    let program = victim::example("record_self");
    let recorded = record.run(program, &[inner.to_str().unwrap()]);
    let stderr = &recorded.finished.stderr;
    assert_eq!(recorded.finished.code(), 1, "{stderr}");
    assert!(stderr.contains("record_self: cannot record this process: "), "{stderr}");
    assert!(!inner.exists());
}
