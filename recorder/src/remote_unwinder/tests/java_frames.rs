//! Compares two walks of the same Java threads: by registers and unwind tables (`RemoteUnwinder`), and from the
//! frames that the JVM stores (`JavaWalker`).

use std::time::{Duration, Instant};

use flightline_in_signal::layout::java_frame::{self, Word};

use super::super::stacks::{Stack, Stacks};
use super::java_walker::{JavaCode, JavaEnd, JavaWalker};
use crate::names::hotspot::live_tests::{Jvm, compile, java_homes};
use crate::names::hotspot::memory::ReadMemory;
use crate::{names::images::Images, session::Session, settings::Settings};

/// Returns the program counter and the stack pointer of a thread that waits in a system call.
fn place(pid: u32, tid: u32) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let [_, .., sp, pc] = text.split_whitespace().collect::<Vec<_>>()[..] else { return None };
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    Some((number(pc)?, number(sp)?))
}

/// Returns the Java frames of a thread that the JVM stores.
fn stored_frames(jvm: &Jvm, walker: &mut JavaWalker, tid: u32) -> Vec<JavaCode> {
    let (mut next, mut frames) = (walker.last_java_frame(&jvm.memory, tid), Vec::new());
    while let Some(start) = next {
        let end = walker.walk(&jvm.memory, start, 1000, &mut frames);
        let JavaEnd::Native { previous, .. } = end else { panic!("{end:x?}") };
        next = previous;
    }
    frames
}

/// Returns the program counters and methods of the Java frames in a stack.
fn walked_frames(stack: &Stack, code_start: u64) -> Vec<[u64; 2]> {
    let words = stack.frames.iter().zip(stack.frames.iter().skip(1).chain([&0]));
    let frame = |(word, next): (&u64, &u64)| match (java_frame::decode(*word), java_frame::decode(*next)) {
        (Word::Code { offset, .. }, _) => Some([code_start + offset, 0]),
        (Word::Method(method), Word::Bytecode(bytecode)) => Some([method, bytecode]),
        _ => None,
    };
    words.filter_map(frame).collect()
}

#[test]
fn java_frames_by_registers_are_those_that_the_jvm_stores() {
    let homes = java_homes();
    let Some(classes) = compile(&homes) else { return };
    let mut session = Session::create(&Settings::default()).unwrap();
    for (release, home) in &homes {
        for options in [&["-Xbatch"][..], &["-Xint"]] {
            let jvm = Jvm::start(home, classes.path(), options);
            let pid = jvm.memory.pid;
            let code_start = jvm.memory.u64(jvm.layout.code_cache.low_bound).unwrap();
            let mut walker = JavaWalker::new(&jvm.memory, jvm.layout).unwrap();
            let (mut images, mut stacks) = (Images::new(), Stacks::default());
            stacks.read_maps(pid, &mut images);
            let (mut threads, mut frames) = (0, 0);
            for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
                let tid = task.file_name().to_str().unwrap().parse().unwrap();
                let stored = stored_frames(&jvm, &mut walker, tid);
                let Some(place) = place(pid, tid).filter(|_| !stored.is_empty()) else { continue };
                let deadline = Instant::now() + Duration::from_secs(60);
                let stack = loop {
                    let stack = stacks.walk_asleep(pid, place, 512, &mut images, session.rows().words());
                    if images.outstanding() == 0 || Instant::now() > deadline {
                        break stack;
                    }
                    images.take_loaded(session.rows(), Duration::from_millis(100));
                };
                let expected: Vec<[u64; 2]> = stored
                    .iter()
                    .map(|frame| match *frame {
                        JavaCode::Compiled { pc, .. } | JavaCode::Stub { pc } => [pc, 0],
                        JavaCode::Interpreted { method, bcp } => [method, bcp],
                    })
                    .collect();
                let name = std::fs::read_to_string(task.path().join("comm")).unwrap();
                let found = walked_frames(&stack, code_start);
                assert_eq!(found, expected, "{release} {options:?} {name} {stack:x?}");
                assert_eq!(stack.truncated, None, "{release} {options:?} {name} {stack:x?}");
                threads += 1;
                frames += found.len();
            }
            assert!(
                threads >= 6 && frames >= 50,
                "{release} {options:?}: {threads} threads, {frames} frames"
            );
        }
    }
}
