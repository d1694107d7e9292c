//! Checks at run time that the handlers do not allocate: malloc & co, `__tls_get_addr`, `dl_iterate_phdr`
//! abort there.

use flightline_tests::record::Record;
use flightline_tests::run::beside;
use flightline_tests::victim;

fn fence(engine: &str, args: &[&str]) -> (i32, i64, String) {
    let program = victim::compile(
        "gcc",
        "in_handler.c",
        &["-O2", "-fomit-frame-pointer", "-rdynamic"],
        &["-ldl", "-lpthread"],
    );
    let record = Record::new().rate(5000).engine(engine);
    let recorded = record.run(program, args);
    let code = recorded.finished.code();
    let runs = if code == 0 {
        let truth = recorded.truth();
        assert!(truth.counts["wrapped"] >= 1, "the recorder had no handler installed");
        let recording = recorded.read();
        assert!(recording.samples.len() > 100, "nothing was recorded through the fence");
        truth.counts["runs"]
    } else {
        0
    };
    (code, runs, recorded.finished.stderr)
}

#[test]
fn handlers_do_not_allocate() {
    let _place = beside();
    let modules = victim::modules(8);
    let mut args = vec!["1"];
    args.extend(modules.iter().map(|m| m.to_str().unwrap()));
    for engine in ["auto", "timer"] {
        let (code, runs, stderr) = fence(engine, &args);
        assert_eq!(code, 0, "{engine}: {stderr}");
        eprintln!("{engine}: {runs} handler runs inside the fence");
        assert!(runs >= 300, "{engine}: only {runs} handler runs were inside the fence");
    }
}

/// The check itself works: an allocation in a handler aborts.
#[test]
fn allocation_in_handler_is_detected() {
    let _place = beside();
    let (code, _, stderr) = fence("auto", &["0.3", "break"]);
    assert_eq!(code, 128 + libc::SIGABRT, "{stderr}");
    assert!(stderr.contains("in a handler: malloc"), "{stderr}");
}
