use std::collections::BTreeMap;

use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};

use super::super::{Choice, Text, for_each_change, to_folded};
use super::*;

fn fold_chosen(script: &str, choice: &Choice) -> (String, Text) {
    let mut text = to_folded(Box::new(std::io::Cursor::new(script.to_owned())), choice).unwrap();
    let mut out = Vec::new();
    let input = std::mem::replace(&mut text.text, Box::new(&b""[..]));
    crate::folded::write(&crate::folded::read(input).unwrap(), &mut out).unwrap();
    (String::from_utf8(out).unwrap(), text)
}

/// Stacks, one after another, and the notes.
fn fold(script: &str, events: &[&str]) -> (String, Vec<String>) {
    let choice =
        Choice { events: events.iter().map(|event| (*event).to_owned()).collect(), ..Choice::default() };
    let (out, text) = fold_chosen(script, &choice);
    (out.trim_end().replace('\n', " | "), text.notes)
}

const SCRIPT: &str = "\
# perf script of a program
worker 4711/4712 [001] 12.345678:  10101010 cycles:
\tffffffff81000010 do_syscall_64+0x10 ([kernel.kallsyms])
\t          401020 inner(int)+0x20 (/usr/bin/app)
\t          401000 main+0x0 (/usr/bin/app)

worker 4711/4712 [001] 12.355678:  10101010 cycles:
\t          401020 inner(int)+0x20 (/usr/bin/app)
\t          401000 main+0x0 (/usr/bin/app)

";

#[test]
fn weights_are_periods_if_present() {
    let unit = |script: &str| fold_chosen(script, &Choice::default()).1.unit;
    let want = "worker;main;inner 10101010 | worker;main;inner;do_syscall_64_[k] 10101010";
    assert_eq!((fold(SCRIPT, &[]).0.as_str(), unit(SCRIPT).as_deref()), (want, Some("cycles")));
    assert_eq!(unit(&SCRIPT.replace("cycles:", "cpu-clock:pppH:")).as_deref(), Some("ns"));
    let counted = SCRIPT.replace("10101010 ", "");
    assert_eq!((fold(&counted, &[]).0, unit(&counted)), (want.replace("10101010", "1"), None));
}

/// For the scripts that inferno supports, the stacks equal those of stackcollapse-perf.pl.
#[test]
fn stacks_match_inferno() {
    let script = SCRIPT.to_owned()
        + "\
V8 WorkerThread 24636/25607 [000] 94564.109216: 7 cycles:u:
\t7f722d142778 net/http.(*Client).Do+0x12 (/go/bin)
\t7f722d142779 ns::(anonymous namespace)::run(int, char) (/usr/lib/x.so)
\t7f533952bc77 [unknown] (/usr/lib/ld-2.28.so)
\t           0 [unknown] ([unknown])

node 12 6544038.708352: 9 cycles:
\t1234 LazyCompile:*f /x.js:1 (/tmp/perf-12.map)
\t1235 <core::iter::Map<I,F> as core::iter::Iterator>::fold (/bin/rusty)
\tffff std::function<void (int)>::f(int)+0x3 (/bin/cpp)

";
    let mut options = Options::default();
    (options.annotate_kernel, options.annotate_jit, options.nthreads) = (true, true, 1);
    let mut out = Vec::new();
    Folder::from(options).collapse(script.as_bytes(), &mut out).unwrap();
    let sorted = |text: &str| {
        let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
        lines.map(|(stack, weight)| (stack.to_owned(), weight.to_owned())).collect::<BTreeMap<_, _>>()
    };
    // Only the commands differ: inferno removes spaces from them.
    let want = String::from_utf8(out).unwrap().replace("V8_WorkerThread", "V8 WorkerThread");
    let choice = Choice::default();
    assert_eq!(sorted(&fold_chosen(&script, &choice).0), sorted(&want));
}

#[test]
fn events_are_selected_by_name_and_others_reported() {
    let two = "\
prog 1 [000] 1.0: 1000 cycles:
\tffff1 a (/bin/prog)

prog 1 [000] 1.1: 77 instructions:u:
\tffff1 b (/bin/prog)

";
    let note = "shown: cycles (1); -e NAME selects another event: instructions (1)";
    assert_eq!(fold(two, &[]), ("prog;a 1000".into(), vec![note.into()]));
    assert_eq!(fold(two, &["instructions"]), ("prog;b 77".into(), vec![]));
    assert_eq!(fold(two, &["instructions:u"]).0, "prog;b 77");
    let both = fold(two, &["instructions", "cycles"]);
    assert_eq!(both.0, "prog;a 1 | prog;b 1");
    assert!(both.1[0].contains("count different things"), "{both:?}");
    match to_folded(
        Box::new(two.as_bytes()),
        &Choice { events: vec!["nonsense".into()], ..Choice::default() },
    ) {
        Err(Error::NoSuchEvent { asked, present }) => {
            assert_eq!((asked.as_str(), present), ("nonsense", vec!["cycles".into(), "instructions".into()]));
        }
        _ => panic!("an event that is not there"),
    }
    // The cycles of two kinds of processors are one event.
    let hybrid = two.replace("cycles", "cpu_core/cycles/P").replace("instructions:u", "cpu_atom/cycles/P");
    assert_eq!(fold(&hybrid, &[]), ("prog;a 1000 | prog;b 77".into(), vec![]));
    assert_eq!(fold(&hybrid, &["cycles"]).0, "prog;a 1000 | prog;b 77");
    assert_eq!(fold(&hybrid, &["cpu_atom/cycles/"]).0, "prog;b 77");
}

#[test]
fn samples_are_read_with_any_field_selection() {
    let stack = "\n\tffff1 leaf\n\tffff2 main\n\n";
    for (header, want) in [
        ("prog ", "prog;main;leaf 1"),
        ("prog cycles: ", "prog;main;leaf 1"),
        ("prog     1 cycles: ", "prog;main;leaf 1"),
        ("prog     1/2 [000] 1.5: cycles: ", "prog;main;leaf 1"),
        (
            "prog 7 [000] 3.8: sched:sched_switch: prev_comm=prog prev_pid=7 ==> next_comm=x next_prio=120",
            "prog;main;leaf 1",
        ),
        (
            "prog 1 [000] 1.0: 7 cpu/mem-loads,ldlat=30/P:  ffff888 |OP LOAD|LVL L1 hit|LCK No|BLK  N/A   33 ",
            "prog;main;leaf 7",
        ),
    ] {
        assert_eq!(fold(&format!("{header}{stack}"), &[]), (want.to_owned(), vec![]), "{header}");
    }
    let alone = "\
            dd  7985  3234.162944:    1001001 cpu-clock:pppH:      5582fec462a5 w+0x5c (/bin/dd)
            dd  7985  3234.163944:    1001001 cpu-clock:pppH:      5582fec462a5 w+0x5c (/bin/dd)
";
    assert_eq!(fold(alone, &[]), ("dd;w 2002002".into(), vec![]));
    let lines = "prog 1 1.5: 1 cycles:\n\tffff1 leaf+0x1 (/bin/prog)\n  prog.c:12\n\tffff2 main (/bin/prog)\n  prog.c:20 (discriminator 1)\n\n";
    assert_eq!(fold(lines, &[]), ("prog;main;leaf 1".into(), vec![]));
    let addresses = "prog 1 1.5: 1 cycles:\n\tffff1\n\tffff2\n\n";
    assert_eq!(fold(addresses, &[]).0, "prog;0xffff2;0xffff1 1");
}

#[test]
fn skipped_input_is_reported_in_notes() {
    let script = "\
prog 1 [000] 1.0: 1 cycles:

prog 1 [000] 1.2: 1 cycles:
\tffff1 leaf (/bin/prog)
 neither a frame nor a detail
";
    let (out, notes) = fold(script, &[]);
    assert_eq!(out, "prog 1 | prog;leaf 1");
    assert_eq!(notes[0], "1 of 2 samples have no stack");
    assert!(
        notes[1].starts_with("skipped lines") && notes[1].ends_with(": 1, the first is line 5"),
        "{notes:?}"
    );
}

#[test]
fn root_frames_are_processes_and_threads() {
    let choice = |process, thread| Choice { roots: Roots { process, thread }, ..Choice::default() };
    let script = "a;b 1/7 [000] 1.2: 1 cycles:\n\tffff1 leaf (/bin/prog)\n\n";
    let roots = |process, thread| fold_chosen(script, &choice(process, thread)).0;
    assert_eq!(roots(false, false), "a:b;leaf 1\n");
    assert_eq!(roots(false, true), "[a:b tid=7];leaf 1\n");
    assert_eq!(roots(true, true), "[process 1];[a:b tid=7];leaf 1\n");
}

#[test]
fn folded_text_is_passed_through() {
    for text in ["a;b 1\n", "", "x: 1\n", "a b c:\n d e\n", "\u{0}\u{ff}", "main;1.5: 3\n", "std::f(int) 2\n"]
    {
        let mut out = Vec::new();
        let mut passed = to_folded(Box::new(text.as_bytes()), &Choice::default()).unwrap().text;
        std::io::Read::read_to_end(&mut passed, &mut out).unwrap();
        assert_eq!(out, text.as_bytes());
    }
}

/// Damaged and invented text is read without a panic, and every header is a sample.
#[test]
fn arbitrary_input_is_read_without_error() {
    let read = |bytes: &[u8]| {
        let script = read(bytes, Roots { process: true, thread: true }).unwrap();
        let samples: u64 = script.events.iter().map(|event| event.samples).sum();
        if let Ok(chosen) = script.choose(&[] as &[&str]) {
            let text = chosen.folded().unwrap();
            let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
            assert!(lines.count() as u64 <= samples);
        }
        is(bytes);
    };
    for_each_change(SCRIPT.as_bytes(), b" \n\t():/-0\0\xff\xc3", read);
    for at in 0..SCRIPT.len() {
        read(&SCRIPT.as_bytes()[at..]);
    }
    for line in
        ["\t", ":", "::", "1 1 1 1", "( ( (", "\t0 ->->", "\t0 L/;->(/perf-.map)", "- -/- [] : :", "é é: é"]
    {
        read(format!("{line}\n{line}\n\n{line}").as_bytes());
    }
}
