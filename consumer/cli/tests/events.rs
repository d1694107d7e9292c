//! Selection of events: defaults, aliases and synonyms.

use crate::convert::{flightline, recording, stdout};

#[test]
fn synonyms_select_the_same_events() {
    let file = recording("jdk17.jfr");
    for (synonym, alias) in
        [("allocation", "alloc"), ("locks", "lock"), ("itimer", "cpu"), ("memory", "alloc")]
    {
        let by_alias = stdout(&["fold", "-e", alias, &file]);
        assert_eq!(stdout(&["fold", "-e", synonym, &file]), by_alias, "{synonym}");
        assert!(!by_alias.is_empty(), "{alias}");
    }
}

/// async-profiler records each `free` without a stack; there are more of these than of `malloc`.
#[test]
fn frees_are_not_the_default_event() {
    let file = recording("ap-native-mem.jfr");
    let by_default = stdout(&["fold", &file]);
    assert_eq!(by_default, stdout(&["fold", "-e", "nativemem", &file]));
    assert!(!by_default.is_empty());
}

#[test]
fn nativelock_alias_selects_native_locks() {
    let file = recording("ap-native-lock.jfr");
    let native = stdout(&["fold", "-e", "nativelock", &file]);
    assert!(!native.is_empty());
    assert_eq!(stdout(&["fold", "-e", "lock", &file]), native, "without monitors, locks are native");
}

#[test]
fn file_without_command_is_summarized() {
    let file = recording("jdk17.jfr");
    let alone = flightline(&[&file]);
    assert!(alone.status.success());
    assert_eq!(String::from_utf8(alone.stdout).unwrap(), stdout(&["summary", &file]));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("flightline flame"));
}
