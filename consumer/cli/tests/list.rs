//! `list`: what `record` supports on this machine.

use crate::convert::{flightline, stdout};

#[test]
fn list_shows_whether_record_accepts_tracepoint_options() {
    let list = stdout(&["list"]);
    let mut lines = list.lines().skip_while(|line| !line.contains("tracepoints (options of record)")).skip(1);
    for option in ["--off-cpu", "--wakeups", "--syscall-io", "--block-io", "--growth"] {
        let line = lines.next().unwrap_or_default();
        assert!(line.starts_with(&format!("  {option} ")), "{option}:\n{list}");
        let state = lines.next().unwrap_or_default().trim();
        assert!(state.starts_with("works") || state.starts_with("refused: "), "{option}:\n{list}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.jfr").to_str().unwrap().to_owned();
    for option in ["--syscall-io", "--block-io"] {
        let state =
            list.lines().skip_while(|line| !line.starts_with(&format!("  {option} "))).nth(1).unwrap();
        let recorded = flightline(&["record", option, "--force", "-o", &file, "--", "true"]);
        let refused =
            String::from_utf8_lossy(&recorded.stderr).contains(state.trim().trim_start_matches("refused: "));
        assert_eq!(recorded.status.success(), state.trim() == "works", "{option}: {recorded:?}\n{list}");
        assert!(recorded.status.success() || refused, "{option}: {recorded:?}\n{list}");
    }
}
