//! The latency of named functions, compared with the program's own clock around and inside the calls.

use std::process::Command;
use std::time::Duration;

use flightline_tests::folded::{fold, sum_with};
use flightline_tests::record::Record;
use flightline_tests::run::{beside, run};
use flightline_tests::{skip, victim};

const THRESHOLD_NS: i64 = 4_000_000;

/// A traced duration lies between the program's two clock readings inside the call and the two around it. The
/// same holds for number and sum of the calls above the threshold, whatever the machine's load.
#[test]
fn only_calls_above_threshold_are_traced() {
    let _place = beside();
    let Some(program) = victim::cpp("traced", victim::OPTIMISED) else { return };
    let recorded = Record::new()
        .option("--trace")
        .option("work:4ms")
        .option("--trace")
        .option("nested:4ms")
        .run(program, &[&THRESHOLD_NS.to_string()]);
    if recorded.finished.code() == 2 && recorded.finished.stderr.contains("breakpoint") {
        return skip::skip(&format!("no breakpoints here: {}", recorded.finished.stderr.trim()));
    }
    let recorded = recorded.expect_code(0);
    let truth = recorded.truth().counts;
    let calls = fold(&recorded.path, "trace", false);
    let time = fold(&recorded.path, "trace", true);

    let of_work = |lines| sum_with(lines, "work");
    let (n, ns) = (of_work(&calls) as i64, of_work(&time) as i64);
    eprintln!("work: {n} calls, {ns} ns; truth {truth:?}");
    assert!(
        (truth["calls inside"]..=truth["calls around"]).contains(&n),
        "{n} calls of work, truly {truth:?}"
    );
    assert!(
        (truth["ns inside"] - 1_000 * n..=truth["ns around"] + 1_000 * n).contains(&ns),
        "{ns} ns in work, truly {truth:?}"
    );
    assert!(truth["calls inside"] >= 32);

    // As in the JDK's `jfr view method-calls`: the caller, not the called function.
    let mut view = Command::new(victim::flightline());
    view.args(["view", "method-calls", "--csv"]).arg(&recorded.path);
    let view = run(&mut view, Duration::from_secs(60)).expect_success("view").stdout_text();
    let callers: Vec<&str> = view.lines().filter(|line| line.contains("work")).collect();
    assert!(callers.len() > 1 && view.contains("from_right"), "{view}");
    assert!(callers.iter().all(|line| line.matches("work").count() == 1), "{view}");

    // For a tail call, the caller is the function to which it returns.
    assert!(sum_with(&calls, "from_right") >= 30 && sum_with(&calls, "from_left") >= 1, "{calls:?}");
    // Every level of a recursion lasted as long as the innermost.
    let levels = sum_with(&calls, "nested") as i64;
    assert_eq!(levels, truth["levels"], "{calls:?}");
    let deepest = calls.iter().filter(|(stack, _)| stack.last().is_some_and(|f| f == "nested"));
    let depths = deepest.map(|(stack, _)| stack.iter().filter(|f| *f == "nested").count());
    let mut depths: Vec<usize> = depths.collect();
    depths.sort_unstable();
    assert_eq!(depths, (1..=levels as usize).collect::<Vec<_>>());
}

#[test]
fn unknown_traced_functions_are_reported_in_one_line() {
    let _place = beside();
    let Some(program) = victim::cpp("traced", victim::OPTIMISED) else { return };
    for (function, word) in [
        ("no_such_function:1ms", "no_such_function"),
        ("libc.so.6:no_such_function:1ms", "no_such_function"),
        ("no-such-library:malloc:1ms", "no-such-library"),
        ("work", "FUNCTION:TIME"),
    ] {
        let recorded = Record::new().option("--trace").option(function).run(&program, &["1000"]);
        let stderr = &recorded.finished.stderr;
        assert_eq!(recorded.finished.code(), 2, "{function}: {stderr}");
        assert!(stderr.contains(word) && stderr.trim().lines().count() == 1, "{function}: {stderr}");
    }
}
