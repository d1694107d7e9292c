//! Stacks that are hard to walk: every sample must lead from the right leaf through the right callers to the root.

use flightline_tests::record::{Record, Recorded};
use flightline_tests::recording::{Recording, Stack};
use flightline_tests::run::beside;
use flightline_tests::{skip, victim};

/// The minimum share of complete stacks in percent.
const NEARLY_ALL: f64 = 99.0;

/// The share among the samples outside of the loader's work before and after `main`, which takes over a
/// percent of a second on a slow machine.
fn share_of_main(recording: &Recording, condition: impl Fn(&Stack) -> bool) -> f64 {
    let loader = ["_dl_start", "_dl_init", "_dl_fini"];
    let by_loader = |s: &Stack| !s.has("main") && loader.iter().any(|function| s.has(function));
    100.0 * recording.share(condition) / (100.0 - recording.share(by_loader)).max(1.0)
}

fn record(program: impl AsRef<std::path::Path>, args: &[&str]) -> (Recorded, Recording) {
    record_with(Record::new(), program, args)
}

fn record_with(record: Record, program: impl AsRef<std::path::Path>, args: &[&str]) -> (Recorded, Recording) {
    let recorded = record.rate(2000).run(program, args).expect_code(0);
    let recording = recorded.read();
    let n = recording.samples.len();
    // The timer engine alone takes 250 a second, and still has the multiplicity of 2000.
    assert!(n >= 500, "only {n} samples\n{}", recorded.finished.stderr);
    (recorded, recording)
}

#[track_caller]
fn expect(share: f64, least: f64, what: &str) {
    eprintln!("{share:6.2} % {what}");
    assert!(share >= least, "{share:.2} % < {least} % of samples: {what}");
}

/// 1,200 frames: deeper than most recorders support.
#[test]
fn deep_recursion_is_walked_to_root() {
    let _place = beside();
    for flags in [victim::OPTIMISED, victim::FRAME_POINTERS] {
        let (_, recording) = record_with(
            Record::new().option("--depth").option("2048"),
            victim::c("deep", flags),
            &["1200", "0.8"],
        );
        let levels = |s: &Stack| s.frames.iter().filter(|f| f.method == "level").count();
        expect(
            share_of_main(&recording, |s| {
                !s.truncated && levels(s) == 1199 && s.has_in_order(&["bottom", "level", "main"])
            }),
            NEARLY_ALL,
            "1,199 × level, bottom on top, main below, root reached",
        );
    }
}

/// Deeper than the limit: truncated, and marked.
#[test]
fn stack_beyond_depth_limit_is_marked_truncated() {
    let _place = beside();
    let (_, recording) = record(victim::c("deep", victim::OPTIMISED), &["6000", "2"]);
    expect(
        share_of_main(&recording, |s| s.truncated && s.has_in_order(&["bottom", "level"])),
        NEARLY_ALL,
        "marked truncated",
    );
    expect(
        100.0 - recording.share(|s| s.truncated && s.has("main")),
        100.0,
        "no root appended to a cut stack",
    );
    expect(share_of_main(&recording, |s| s.frames.len() >= 1024), NEARLY_ALL, "at least 1,024 frames kept");
}

#[test]
fn stacks_through_dlopened_modules_are_whole() {
    let _place = beside();
    let modules = victim::modules(12);
    let mut args = vec!["3"];
    args.extend(modules.iter().map(|m| m.to_str().unwrap()));
    let (recorded, recording) = record(victim::c("many_modules", victim::OPTIMISED), &args);
    let whole = share_of_main(&recording, |s| !s.truncated && s.has("main"));
    expect(whole, NEARLY_ALL, "whole, with unloading going on");
    let truth = recorded.truth();
    assert_eq!(truth.functions.len(), 12);
    let share = |i: usize| recording.share(|s| s.has(&format!("module_work_{i}")));
    let should =
        |i: usize| 100.0 * truth.functions[&format!("module_work_{i}")] as f64 / truth.cpu_ns() as f64;
    let named: f64 = (0..12).map(share).sum();
    expect(named, 90.0, "in a named function of one of 12 modules, 6 of them unloaded again");
    // Module 1 is closed after a quarter of a second and module 2 is loaded at its address at once, and so
    // on. The drain names samples by the modules that it knows at its next scan, every 100 ms at the latest:
    // the last samples of a closed module may get its successor's name, and the first of a new one may have
    // no name.
    for i in (1..11).step_by(2) {
        let (is, both) = (share(i), share(i) + share(i + 1));
        eprintln!("closed module {i}: {is:5.2} % of {:5.2}, with its successor {both:5.2} %", should(i));
        assert!(is >= 0.4 * should(i), "closed module {i}: {is:.2} % instead of {:.2} %", should(i));
        assert!((both - should(i) - should(i + 1)).abs() <= 4.0, "modules {i} and {}: {both:.2} %", i + 1);
    }
    let back = recording.share(|s| s.has_in_order(&["called_back", "main"]));
    expect(back, 35.0, "through the module back into the program");
}

#[test]
fn stacks_in_vdso_plt_syscalls_and_prologues_are_whole() {
    let _place = beside();
    for flags in [victim::OPTIMISED, victim::FRAME_POINTERS] {
        let (recorded, recording) = record(victim::c("plt_vdso", flags), &["2"]);
        let truth = recorded.truth();
        for (name, ns) in &truth.functions {
            let should = 100.0 * *ns as f64 / truth.cpu_ns() as f64;
            let is = recording.share(|s| !s.truncated && s.has(name) && s.has("main"));
            eprintln!("{name:14} true {should:5.2} %, whole stacks {is:5.2} %");
            assert!(
                (is - should).abs() < 2.5,
                "{name}: {is:.2} % of samples are whole and go through it, truly {should:.2} %"
            );
        }
    }
}

#[test]
fn stacks_through_signal_frames_are_whole() {
    let _place = beside();
    let (_, recording) = record(victim::c("signal_frame", victim::OPTIMISED), &["1.2"]);
    expect(
        recording.share(|s| !s.truncated && s.has_in_order(&["in_handler", "interrupted", "main"])),
        97.0,
        "from the handler through the signal frame (also on another stack) to the interrupted function and main",
    );
}

#[test]
fn stacks_through_generated_code_are_whole() {
    let _place = beside();
    let (_, recording) = record(victim::c("anonymous_code", victim::FRAME_POINTERS), &["0.8"]);
    let whole = recording.share(|s| !s.truncated && s.has_in_order(&["call_generated", "main"]));
    expect(whole, 97.0, "out of code without unwind information by its frame pointer");
}

#[test]
fn stacks_during_cpp_exceptions_are_whole() {
    let _place = beside();
    let Some(program) = victim::cpp("exceptions", victim::OPTIMISED) else { return };
    let (recorded, recording) = record(program, &["1"]);
    assert_eq!(recorded.truth().counts["guards"], 0, "a destructor was skipped");
    let whole = share_of_main(&recording, |s| !s.truncated && s.has("main"));
    expect(whole, NEARLY_ALL, "whole, out of the C++ unwinder too");
    let demangled = recording.share(|s| s.frames.iter().any(|f| f.method.contains("victim::thrower<int>")));
    expect(demangled, 40.0, "victim::thrower<int> demangled");
}

/// The stack of a coroutine ends at its `makecontext` entry: that is its root, not a truncation.
#[test]
fn coroutine_entry_is_recognized_as_root() {
    let _place = beside();
    let program = victim::c("coroutine", victim::OPTIMISED);
    for engine in ["auto", "timer"] {
        let recorded = Record::new().rate(1000).engine(engine).run(&program, &["400"]).expect_code(0).read();
        let inside = recorded.share(|s| s.has("burn"));
        let whole = recorded.share(|s| s.has_in_order(&["burn", "deeper", "body"]) && !s.truncated);
        assert!(whole >= 0.98 * inside && inside > 50.0, "{engine}: {whole:.1} % of {inside:.1} % are whole");
    }
}

#[test]
fn rust_stacks_are_whole_and_demangled() {
    let _place = beside();
    let (recorded, recording) = record(victim::rust("rust_program", &["-O"]), &["1"]);
    assert_eq!(recorded.finished.stdout_text(), "true true\n");
    expect(recording.share(|s| !s.truncated), NEARLY_ALL, "whole");
    let run = recording.share(|s| {
        s.frames
            .iter()
            .any(|f| f.method.contains("rust_program::Sorter") || f.method.contains("rust_program::Counter"))
    });
    expect(run, 90.0, "Rust names demangled");
    assert!(recording.names.values().any(|n| n == "rust-1"), "thread names: {:?}", recording.names);
}

/// The same programs with the other engine: the walk does not depend on the signal's source.
#[test]
fn timer_engine_walks_deep_stacks_to_root() {
    let _place = beside();
    let recorded =
        Record::new().rate(250).engine("timer").run(victim::c("deep", victim::OPTIMISED), &["900", "1"]);
    let recording = recorded.expect_code(0).read();
    expect(
        recording.share(|s| !s.truncated && s.has_in_order(&["bottom", "level", "main"])),
        98.0,
        "whole by timers",
    );
    if !skip::perf_allowed(false) {
        skip::skip("perf_event_open is not allowed: every stack test above ran on timers");
    }
}
