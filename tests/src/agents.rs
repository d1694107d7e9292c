//! Helpers for the tests of `flightline agent`: the requests that the stub service received, and the contents
//! of recordings.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;

use crate::controlled::LIMIT;
use crate::recording::Recording;
use crate::stub_service::{Said, Stub};

/// The CPU time of a phase of each of the program's three threads in ms, which is also its number of samples
/// at 1 kHz.
pub const MS: u32 = 200;
/// The phases of the test program.
const PHASES: [&str; 3] = ["before", "during", "after"];
/// Run length in seconds, longer than any test: a run that ends earlier was ended.
pub const LONG: u64 = 3600;

/// Progress of a run.
#[track_caller]
pub fn progress(stub: &Stub, run: &str, state: &str) -> Value {
    stub.until(LIMIT, &format!("{run} {state}"), |said| match said {
        Said::Progress(of, progress) if of == run => {
            assert_eq!(progress["state"], state, "{progress}");
            Some(progress.clone())
        }
        Said::Recording(of, ..) if of == run => panic!("{run} was recorded before it was {state}"),
        _ => None,
    })
}

/// The results of a run.
pub struct Recorded {
    /// Read by our own reader.
    pub recording: Recording,
    /// How the process ended, if the end of the process ended the recording.
    pub ended: String,
    /// The received bytes.
    pub bytes: Vec<u8>,
}

/// Waits for a run's recording.
#[track_caller]
pub fn recorded(stub: &Stub, run: &str) -> Recorded {
    let (ended, bytes) = stub.until(LIMIT, &format!("the recording of {run}"), |said| match said {
        Said::Recording(of, _, ended, bytes) if of == run => Some((ended.clone(), bytes.clone())),
        Said::Progress(of, progress) if of == run && progress["state"] == "failed" => {
            panic!("{run}: {progress}")
        }
        _ => None,
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jfr");
    fs::write(&path, &bytes).unwrap();
    let recording = Recording::read(&path).unwrap();
    assert!(recording.warnings.is_empty(), "{:?}", recording.warnings);
    Recorded { recording, ended, bytes }
}

/// The recorded time by the headers of its chunks, in ns.
pub fn lasted(recording: &[u8]) -> u64 {
    let (mut at, mut sum) = (0, 0);
    while at < recording.len() {
        let word = |offset: usize| {
            let bytes = recording[at + offset..][..8].try_into().unwrap();
            u64::from_be_bytes(bytes)
        };
        sum += word(40);
        at += usize::try_from(word(8)).unwrap();
    }
    sum
}

/// The samples by phase of the program.
pub fn phases(recording: &Recording) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for sample in &recording.samples {
        let frames = &recording.stacks[sample.stack].frames;
        if let Some(phase) = frames
            .iter()
            .find_map(|frame| PHASES.into_iter().find(|phase| frame.method == format!("{phase}_work")))
        {
            *counts.entry(phase.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Asserts that the recording contains this phase completely, and no other phase.
#[track_caller]
pub fn only(recording: &Recording, phase: &str) {
    let seen = phases(recording);
    let right = f64::from(3 * MS);
    assert!(seen.len() == 1 && seen.contains_key(phase), "{seen:?}");
    let n = seen[phase] as f64;
    // A busy machine takes samples late, or not at all: lost samples count as recorded.
    let lost = recording.losses.iter().map(|loss| loss.cpu_ns as f64 / 1e6).sum::<f64>();
    // With timers, the kernel's tick costs samples. Up to two samples of a thread are missing at the ends.
    let tolerance = 0.08 * right + 12.0;
    let is_right = n <= right + tolerance && n + lost >= right - tolerance;
    assert!(is_right, "{n} samples of 1 ms and {lost} ms lost, expected {right}: {:?}", recording.losses);
}

/// The description of the process when it joined.
#[track_caller]
pub fn hello(stub: &Stub) -> Value {
    stub.until(LIMIT, "hello", |said| match said {
        Said::Hello(hello) => Some(hello.clone()),
        _ => None,
    })
}

/// How the process ended.
#[track_caller]
pub fn gone(stub: &Stub) -> String {
    stub.until(LIMIT, "the end", |said| match said {
        Said::Gone(message) => Some(message.clone()),
        _ => None,
    })
}

/// Returns whether the agent offers a mode, and the reason if it does not.
pub fn capability(hello: &Value, mode: &str) -> (bool, String) {
    let modes = hello["modes"].as_array().unwrap();
    let can = modes.iter().find(|can| can["mode"] == mode).unwrap();
    (can["available"] == true, can["reason"].as_str().unwrap_or_default().to_owned())
}

/// The descriptions of all agents that joined.
pub fn hellos(stub: &Stub) -> Vec<Value> {
    let hello = |said: Said| match said {
        Said::Hello(hello) => Some(hello),
        _ => None,
    };
    stub.said().into_iter().filter_map(hello).collect()
}

/// Makes `perf_event_open` fail in the command and in its children, as in a container without that right.
pub fn without_perf(command: &mut Command) {
    without_call(command, libc::SYS_perf_event_open);
}

/// Makes a system call fail with EACCES in the command and in its children.
pub fn without_call(command: &mut Command, call: libc::c_long) {
    let word = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let number = u32::try_from(call).unwrap();
    let errno = libc::SECCOMP_RET_ERRNO | libc::EACCES as u32;
    let mut filter = [
        word(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..word(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number) },
        word(libc::BPF_RET | libc::BPF_K, errno),
        word(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let restrict = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: system calls with numbers, and a program that lives in the closure.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        };
        if refused { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(restrict) };
}
