//! C++ exceptions and Rust panics: each one that is thrown, with its type.

use std::process::Command;
use std::time::Duration;

use flightline_tests::record::Record;
use flightline_tests::run::{beside, run};
use flightline_tests::spans::{self, Span};
use flightline_tests::victim::{self, OPTIMISED};

const EXCEPTION: &str = "jdk.JavaExceptionThrow";
const PANIC: &str = "jdk.JavaErrorThrow";

fn from(spans: &[Span], function: &str) -> Vec<Span> {
    spans.iter().filter(|s| s.frames.iter().any(|f| f.method.starts_with(function))).cloned().collect()
}

#[test]
fn cpp_exceptions_have_type_and_stack() {
    let _place = beside();
    for flags in [OPTIMISED, &["-O2", "-static-libstdc++", "-static-libgcc", "-rdynamic"][..]] {
        let Some(program) = victim::cpp("throws", flags) else { return };
        let recorded = Record::new().option("-e").option("throw").run(program, &[]).expect_code(0);
        let truth = recorded.truth();
        let spans = spans::read(&recorded.path, &[EXCEPTION, PANIC]);
        if flags.contains(&"-static-libstdc++") {
            // The program's own runtime precedes the interposer: exceptions are not recorded, and the program
            // is not disturbed.
            assert_eq!(spans.len(), 0);
            continue;
        }
        for (function, class) in [
            ("throw_failure", "app::Failure"),
            ("throw_plain", "app::Plain"),
            ("throw_int", "int"),
            ("throw_alloc", "std::bad_alloc"),
        ] {
            let own = from(&spans, function);
            assert_eq!(own.len() as i64, truth.counts[function], "{function}");
            for span in &own {
                assert_eq!((span.event.as_str(), span.field("thrownClass")), (EXCEPTION, class));
                assert!(!span.truncated, "{:?}", span.frames);
                // The stack begins with the throwing function.
                assert!(span.frames[0].method.starts_with(function), "{:?}", span.frames);
            }
            for number in 0..3 {
                let text = format!("failure number {number}");
                let with = own.iter().filter(|s| s.field("message") == text).count();
                assert_eq!(with, if function == "throw_failure" { own.len() / 3 } else { 0 }, "{function}");
            }
        }
        assert_eq!(spans.len(), 720);
    }
}

#[test]
fn rust_panics_have_type_and_stack() {
    let _place = beside();
    let program = victim::rust("rust_panics", &["-O", "-g"]);
    let recorded = Record::new().option("-e").option("throw").run(program, &["250"]).expect_code(0);
    let spans = spans::read(&recorded.path, &[EXCEPTION, PANIC]);
    let panics: Vec<&Span> = spans.iter().filter(|s| s.event == PANIC).collect();
    assert_eq!((panics.len(), spans.len()), (250, 250));
    for span in panics {
        assert_eq!(span.field("thrownClass"), "panic");
        assert!(span.frames.iter().any(|f| f.method.ends_with("fails")), "{:?}", span.frames);
    }
}

/// A library that is opened with RTLD_LOCAL brings its C++ runtime with it. Our interposers precede that runtime
/// in the symbol lookup, and must find it.
#[test]
fn exceptions_in_module_with_own_cpp_runtime_are_recorded() {
    let _place = beside();
    let Some(module) = victim::cpp("throw_module", &["-O2", "-shared", "-fPIC"]) else { return };
    let program = victim::c("throw_loader", OPTIMISED);
    let needed = run(Command::new("readelf").arg("-d").arg(&program), Duration::from_secs(20));
    assert!(!needed.stdout_text().contains("libstdc++"), "the program must not bring the runtime itself");
    for event in ["throw", "cpu"] {
        let module = module.to_string_lossy();
        let recorded = Record::new().option("-e").option(event).run(&program, &[&module]).expect_code(0);
        assert_eq!(recorded.finished.stdout_text(), "caught 50\ncaught 50\n");
        let spans = spans::read(&recorded.path, &[EXCEPTION]);
        assert_eq!(spans.len(), if event == "throw" { 100 } else { 0 });
        assert!(spans.iter().all(|s| s.field("thrownClass") == "std::out_of_range"));
        assert!(spans.iter().all(|s| s.field("message") == "out of the module's range"));
    }
}
