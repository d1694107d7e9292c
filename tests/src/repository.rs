//! Reads the files and the recordings of a repository.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::recording::Recording;
use crate::run::run;
use crate::victim::flightline;

/// The chunks under a root by process id, oldest first.
pub fn chunks(root: &Path) -> BTreeMap<u32, Vec<PathBuf>> {
    let mut found: BTreeMap<u32, Vec<PathBuf>> = BTreeMap::new();
    for folder in fs::read_dir(root).into_iter().flatten().flatten().map(|e| e.path()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let Some(pid) = name.split('_').nth(6).and_then(|pid| pid.parse().ok()) else { continue };
        let files = fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path());
        let files = files.filter(|p| p.extension().is_some_and(|e| e == "jfr"));
        found.entry(pid).or_default().extend(files);
    }
    for files in found.values_mut() {
        files.sort_by_key(|p| (p.parent().unwrap().to_path_buf(), p.file_stem().unwrap().to_owned()));
    }
    found
}

/// The disk space that the chunks use in bytes, including preallocated space. Files that are removed during
/// the scan count as 0.
pub fn disk(root: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = chunks(root).into_values().flatten();
    files.filter_map(|p| fs::metadata(p).ok()).map(|m| m.len().max(m.blocks() * 512)).sum()
}

/// The chunks of one process as one recording; our reader must not warn of any.
#[track_caller]
pub fn read(files: &[PathBuf]) -> Recording {
    let whole = joined(files);
    let recording = Recording::read(whole.path()).unwrap();
    assert!(recording.warnings.is_empty(), "{files:?}: {:?}", recording.warnings);
    recording
}

/// `flightline summary --json` of one chunk.
#[track_caller]
pub fn summary(file: &Path) -> Value {
    let mut command = Command::new(flightline());
    let finished = run(command.args(["summary", "--json"]).arg(file), Duration::from_secs(60));
    serde_json::from_slice(&finished.expect_success("flightline summary").stdout).unwrap()
}

/// Joins all of them in one file.
fn joined(files: &[PathBuf]) -> tempfile::NamedTempFile {
    let whole = tempfile::Builder::new().suffix(".jfr").tempfile().unwrap();
    let bytes: Vec<u8> = files.iter().flat_map(|file| fs::read(file).unwrap()).collect();
    fs::write(whole.path(), bytes).unwrap();
    whole
}
