//! `scrub --redact`: secrets are replaced, other values stay.

use std::path::Path;

use crate::convert::{flightline, recording, stdout};

/// Replaces all occurrences of `old` with `new` of the same length.
fn patch(bytes: &mut [u8], old: &str, new: &str) {
    assert_eq!(old.len(), new.len());
    let places: Vec<usize> =
        (0..bytes.len() - old.len()).filter(|&at| bytes[at..].starts_with(old.as_bytes())).collect();
    assert!(!places.is_empty(), "{old}");
    for at in places {
        bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
    }
}

/// A recording of the JDK with a token in the arguments.
pub fn with_secrets(folder: &Path) -> String {
    let mut bytes = std::fs::read(recording("jdk17.jfr")).unwrap();
    patch(&mut bytes, "Work 1.5 jdk17.jfr 1", "Work --token=s3cr3ts");
    let file = folder.join("secrets.jfr");
    std::fs::write(&file, bytes).unwrap();
    file.to_str().unwrap().to_owned()
}

fn scrubbed(file: &str, folder: &Path, options: &[&str]) -> String {
    let out = folder.join("scrubbed.jfr");
    let out = out.to_str().unwrap();
    let args = [&["scrub", file, out, "--force"], options].concat();
    let output = flightline(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    out.to_owned()
}

#[test]
fn redact_replaces_secrets_and_preserves_other_values() {
    let folder = tempfile::tempdir().unwrap();
    let file = with_secrets(folder.path());
    let events = |file: &str| stdout(&["print", file, "--events", "JVMInformation"]);
    assert!(events(&file).contains("javaArguments = \"Work --token=s3cr3ts\""));
    let redacted = events(&scrubbed(&file, folder.path(), &["--redact"]));
    assert!(redacted.contains("javaArguments = \"Work --token=[redacted]\""), "{redacted}");
    assert!(redacted.contains("jvmArguments = \"-Xmx128m -XX:+UseSerialGC\""), "{redacted}");
    let marked = events(&scrubbed(&file, folder.path(), &["--redact=secrets", "--mark", "***"]));
    assert!(marked.contains("javaArguments = \"Work --token=***\""), "{marked}");
    let all = events(&scrubbed(&file, folder.path(), &["--redact=all"]));
    assert!(all.contains("javaArguments = \"[redacted]\"") && !all.contains("Xmx128m"), "{all}");
}

/// Properties and variables are redacted by name; others keep their values, including `java.version`.
#[test]
fn properties_are_redacted_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["ap-java-cpu.jfr", "ap-java-wall.jfr", "ap-java-multichunk.jfr"] {
        let sound = recording(name);
        let mut bytes = std::fs::read(&sound).unwrap();
        patch(&mut bytes, "java.vm.name", "java.vm.pass");
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        let file = file.to_str().unwrap();
        let types = "Initial*";
        let print = |file: &str| stdout(&["print", file, "--events", types]);
        let before = print(file);
        let after = print(&scrubbed(file, folder.path(), &["--redact"]));
        let differ: Vec<(&str, &str)> =
            before.lines().zip(after.lines()).filter(|(before, after)| before != after).collect();
        assert!(!differ.is_empty(), "{name}");
        for (old, new) in &differ {
            assert_eq!(*new, "  value = \"[redacted]\"", "{name}: {old}");
        }
        let secret = after.lines().position(|line| line.contains("java.vm.pass")).unwrap();
        assert_eq!(after.lines().nth(secret + 1), Some("  value = \"[redacted]\""), "{name}");
        let all = print(&scrubbed(file, folder.path(), &["--redact=all"]));
        let values = all.lines().filter(|line| line.starts_with("  value = "));
        for value in values {
            assert!(["  value = \"[redacted]\"", "  value = N/A"].contains(&value), "{name}: {value}");
        }
    }
}
