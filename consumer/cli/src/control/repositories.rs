//! `flightline repositories`: lists the recordings in progress on this machine.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use flightline_recorder::control::ask_within;
use flightline_recorder::repository::{Owner, chunks};
use flightline_recorder::session::{self, OnMachine};
use flightline_recorder::settings::units::format_bytes;
use serde_json::{Value, json};

use crate::{Outcome, output};

pub const EXAMPLES: &str = "\
Examples:
  flightline repositories
  flightline repositories --json | jq -r '.recordings[].path'
  sudo flightline repositories         recordings of all users

States:
  recording   the recorder is running
  paused      by command, or because the output cannot be written
  stopped     by command
  silent      the recorder does not respond
  killed      the recorder was killed; complete the recording with `flightline recover`
  unknown     the recording belongs to another user";

/// Timeout for a recorder's answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Arguments of `repositories`.
#[derive(Debug, Args)]
pub struct RepositoriesArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A recording of one process, or of several in one file.
struct Row {
    user: String,
    state: String,
    recorder: u32,
    /// 0 for several processes.
    pid: u32,
    name: String,
    path: PathBuf,
    bytes: u64,
    seconds: Option<f64>,
}

/// Lists recordings.
pub fn run(args: &RepositoriesArgs) -> Result<Outcome> {
    let users = Users::read();
    let rows: Vec<Row> = session::on_machine().iter().flat_map(|session| rows(session, &users)).collect();
    let text = if args.json { rows_json(&rows).to_string() + "\n" } else { table(&rows) };
    output::text(Path::new("-"), |to| to.write_all(text.as_bytes()))?;
    if rows.is_empty() && !args.json {
        crate::diagnostics::note("no recordings in progress on this machine");
    }
    Ok(Outcome::Whole)
}

fn rows(session: &OnMachine, users: &Users) -> Vec<Row> {
    let row = |state: &str, path: &Path| Row {
        user: users.name(session.uid),
        state: state.to_owned(),
        recorder: session.drain.unwrap_or(0),
        pid: 0,
        name: String::new(),
        path: path.to_owned(),
        bytes: bytes(path),
        seconds: None,
    };
    match session.drain {
        None => vec![row("unknown", &session.dir)],
        Some(0) => {
            let outputs = session::outputs(&session.dir);
            let of = |output: &PathBuf| {
                let folder = output.parent().unwrap_or(output);
                match Owner::read(folder) {
                    Some(owner) => Row { pid: owner.pid, name: service(&owner), ..row("killed", folder) },
                    None => row("killed", output),
                }
            };
            // A recording whose output was removed is not useful.
            outputs.iter().map(of).filter(|row| row.path.exists()).collect()
        }
        Some(_) => match ask_within(&session.dir, "status", PATIENCE) {
            Ok(status) => answered(&status, &row),
            Err(_) => vec![row("silent", &session.dir)],
        },
    }
}

fn answered(status: &Value, row: &dyn Fn(&str, &Path) -> Row) -> Vec<Row> {
    let state = status["state"].as_str().unwrap_or("unknown");
    let empty = Vec::new();
    let processes = status["processes"].as_array().unwrap_or(&empty);
    let name = |pid: u64| {
        let of_pid = processes.iter().filter(|p| pid == 0 || p["pid"] == pid);
        let names: Vec<&str> = of_pid.filter_map(|p| p["name"].as_str()).collect();
        names.join(", ")
    };
    let recordings = status["recordings"].as_array().unwrap_or(&empty).iter();
    recordings
        .map(|recording| {
            let pid = recording["pid"].as_u64().unwrap_or(0);
            let only = processes.first().filter(|_| pid == 0 && processes.len() == 1);
            let shown = only.map_or(pid, |p| p["pid"].as_u64().unwrap_or(0));
            // A process that refused recording is shown as paused.
            let state =
                if state == "recording" && recording["refused"].is_string() { "paused" } else { state };
            let new = row(state, Path::new(recording["path"].as_str().unwrap_or_default()));
            // A process that has just ended is no longer listed.
            let name = Some(name(pid)).filter(|name| !name.is_empty());
            let name = name.or_else(|| Owner::read(&new.path).map(|owner| service(&owner)));
            Row {
                pid: u32::try_from(shown).unwrap_or(0),
                name: name.unwrap_or_default(),
                seconds: status["seconds"].as_f64(),
                ..new
            }
        })
        .collect()
}

/// Returns the name of a process from its folder.
fn service(owner: &Owner) -> String {
    owner
        .labels
        .iter()
        .find(|(name, _)| name == "service")
        .map(|(_, value)| value.clone())
        .unwrap_or_default()
}

/// Returns the size on disk of a file or of the chunks in a folder.
fn bytes(path: &Path) -> u64 {
    let of = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
    match chunks(path) {
        Ok(chunks) => chunks.iter().map(|chunk| of(chunk)).sum(),
        Err(_) => of(path),
    }
}

fn rows_json(rows: &[Row]) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "user": row.user,
                "state": row.state,
                "recorder": (row.recorder > 0).then_some(row.recorder),
                "pid": (row.pid > 0).then_some(row.pid),
                "name": row.name,
                "path": row.path,
                "bytes": row.bytes,
                "seconds": row.seconds,
            })
        })
        .collect();
    json!({"recordings": rows})
}

fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    if rows.is_empty() {
        return out;
    }
    let or_dash = |n: u32| if n == 0 { "-".to_owned() } else { n.to_string() };
    let line = |out: &mut String, words: [&str; 7]| {
        let [user, state, recorder, pid, name, size, path] = words;
        let _ = writeln!(out, "{user:<10} {state:<10} {recorder:>8} {pid:>8} {name:<16} {size:>9} {path}");
    };
    line(&mut out, ["USER", "STATE", "RECORDER", "PID", "PROGRAM", "SIZE", "PATH"]);
    for row in rows {
        let (recorder, pid, bytes) = (or_dash(row.recorder), or_dash(row.pid), format_bytes(row.bytes));
        let name = if row.name.is_empty() { "-" } else { &row.name };
        line(
            &mut out,
            [&row.user, &row.state, &recorder, &pid, name, &bytes, &row.path.display().to_string()],
        );
    }
    out
}

/// User names from /etc/passwd.
struct Users(String);

impl Users {
    fn read() -> Users {
        Users(fs::read_to_string("/etc/passwd").unwrap_or_default())
    }

    fn name(&self, uid: u32) -> String {
        let of_uid = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
        };
        self.0.lines().find_map(of_uid).unwrap_or_else(|| uid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_on_full_disk_is_listed_as_paused() {
        let status = json!({
            "state": "recording", "seconds": 2.5,
            "processes": [{"pid": 7, "name": "a"}, {"pid": 8, "name": "b"}],
            "recordings": [
                {"pid": 7, "path": "/r/7", "refused": null},
                {"pid": 8, "path": "/r/8", "refused": "/r: No space left on device"},
            ],
        });
        let row = |state: &str, path: &Path| Row {
            user: "u".to_owned(),
            state: state.to_owned(),
            recorder: 6,
            pid: 0,
            name: String::new(),
            path: path.to_owned(),
            bytes: 1,
            seconds: None,
        };
        let rows = answered(&status, &row);
        let told: Vec<_> = rows.iter().map(|r| (r.pid, r.name.as_str(), r.state.as_str())).collect();
        assert_eq!(told, [(7, "a", "recording"), (8, "b", "paused")]);
    }
}
