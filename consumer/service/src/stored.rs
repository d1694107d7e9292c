//! Queries of the profile store. `flightline-sql` answers them: one process per query, started without a
//! shell, and killed if it takes too long, writes too much, or its client disconnects.

pub(crate) mod choice;
mod kept;
mod offered;
pub(crate) mod question;

use std::ffi::OsString;
use std::io::Result;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::fault::Fault;
use kept::Kept;

/// Maximum bytes read from the command's standard error.
const MOST_TOLD: u64 = 64 << 10;
/// Maximum characters of it sent to a client.
const LONGEST_TOLD: usize = 2000;
/// Maximum number of queued queries.
const MOST_WAITING: usize = 16;

/// The store and how it is queried.
#[derive(Clone, Debug)]
pub struct Place {
    /// Path of `flightline-sql`.
    pub program: PathBuf,
    /// The store, as passed to the command: a directory or URL.
    pub store: OsString,
    /// Maximum number of concurrent queries.
    pub at_once: usize,
    /// Maximum time in the queue.
    pub turn: Duration,
    /// Maximum time for a query.
    pub longest: Duration,
    /// Maximum size of an answer, in bytes.
    pub most_bytes: u64,
}

impl Place {
    /// Creates a place with the default limits.
    #[must_use]
    pub fn new(program: PathBuf, store: OsString) -> Self {
        let (turn, longest) = (Duration::from_secs(10), Duration::from_secs(60));
        Self { program, store, at_once: 2, turn, longest, most_bytes: 32 << 20 }
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The command's standard output.
    pub body: Bytes,
    /// The command's diagnostics: how much was read, skipped and pruned.
    pub told: Arc<[String]>,
}

/// A store that can be queried.
#[derive(Debug)]
pub struct Stored {
    place: Place,
    turns: Semaphore,
    waiting: Semaphore,
    kept: Mutex<Kept>,
    /// Contains a link to standard output whose name ends in `.html`, from which the command infers the
    /// output format.
    folder: TempDir,
}

impl Stored {
    /// Creates the handle; starts no query.
    ///
    /// # Errors
    /// Returns an error if there is no room for temporary files.
    pub fn new(place: Place) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("flightline-serve-").tempdir()?;
        symlink("/proc/self/fd/1", folder.path().join("out.html"))?;
        let turns = Semaphore::new(place.at_once.max(1));
        Ok(Self { place, turns, waiting: Semaphore::new(MOST_WAITING), kept: Mutex::default(), folder })
    }

    /// Argument of `--output=` for a page.
    fn page(&self) -> OsString {
        self.folder.path().join("out.html").into()
    }

    /// Runs a query, or returns the cached answer of the same recent query.
    ///
    /// # Errors
    /// Returns an error if the command rejects the query, is busy, fails, or exceeds its limits.
    pub(crate) async fn ask(&self, question: &question::Question) -> std::result::Result<Answer, Fault> {
        if let Some(answer) = self.kept().find(question) {
            return Ok(answer);
        }
        let turn = {
            let _waits = self.waiting.try_acquire().map_err(|_| busy())?;
            timeout(self.place.turn, self.turns.acquire()).await.map_err(|_| busy())?
        };
        let _turn = turn.map_err(|error| Fault::internal("query the store", error))?;
        // The previous query may have been the same.
        if let Some(answer) = self.kept().find(question) {
            return Ok(answer);
        }
        let answer = self.answered(question).await?;
        self.kept().keep(question.clone(), answer.clone());
        Ok(answer)
    }

    async fn answered(&self, question: &question::Question) -> std::result::Result<Answer, Fault> {
        let mut command = Command::new(&self.place.program);
        command.args(question.arguments(&self.place.store, &self.page()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The child is also killed when the client disconnects, which drops this future.
        let child = command.kill_on_drop(true).spawn();
        let mut child = child.map_err(|error| Fault::internal("start flightline-sql", error))?;
        let done = timeout(self.place.longest, self.heard(&mut child)).await;
        let ended = match done {
            Ok(Ok(ended)) => ended,
            Ok(Err(fault)) => return Err(killed(child, fault).await),
            Err(_) => {
                let sentence = format!(
                    "The query did not finish within {} s; select one service, fewer days or more labels.",
                    self.place.longest.as_secs_f64()
                );
                return Err(killed(child, Fault::new(StatusCode::GATEWAY_TIMEOUT, sentence)).await);
            }
        };
        ended.answer()
    }

    async fn heard(&self, child: &mut Child) -> std::result::Result<Ended, Fault> {
        let most = self.place.most_bytes;
        let (mut out, told) = (child.stdout.take(), child.stderr.take());
        let body = async {
            let (body, more) = read(&mut out, most).await?;
            match more {
                true => Err(Fault::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!(
                        "The result is larger than {most} bytes; omit narrow frames, or select fewer samples."
                    ),
                )),
                false => Ok(body),
            }
        };
        let told = async {
            let mut told = told;
            let (text, _) = read(&mut told, MOST_TOLD).await?;
            // Drain the rest so that the command does not block.
            if let Some(told) = &mut told {
                let _ = tokio::io::copy(told, &mut tokio::io::sink()).await;
            }
            Ok(text)
        };
        let (body, told) = tokio::try_join!(body, told)?;
        let status = child.wait().await.map_err(|error| Fault::internal("wait for the store", error))?;
        Ok(Ended { status, body, told: String::from_utf8_lossy(&told).into_owned() })
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads at most `most` bytes; returns true if there are more.
async fn read(
    from: &mut Option<impl AsyncRead + Unpin>,
    most: u64,
) -> std::result::Result<(Vec<u8>, bool), Fault> {
    let mut bytes = Vec::new();
    let Some(from) = from else { return Ok((bytes, false)) };
    let done = from.take(most.saturating_add(1)).read_to_end(&mut bytes).await;
    done.map_err(|error| Fault::internal("read the query result", error))?;
    let more = bytes.len() as u64 > most;
    Ok((bytes, more))
}

/// Kills the command while it still holds its permit, so that the limit is never exceeded.
async fn killed(mut child: Child, fault: Fault) -> Fault {
    let _ = child.kill().await;
    fault
}

fn busy() -> Fault {
    let sentence = "The store is busy with other queries; retry later.";
    Fault::new(StatusCode::SERVICE_UNAVAILABLE, sentence)
}

/// Result of the command.
struct Ended {
    status: ExitStatus,
    body: Vec<u8>,
    told: String,
}

impl Ended {
    fn answer(self) -> std::result::Result<Answer, Fault> {
        let lines = self.told.lines().map(plain).filter(|line| !line.is_empty());
        if self.status.success() {
            let told = lines.map(|line| line.trim_start_matches("flightline: ").to_owned()).collect();
            return Ok(Answer { body: self.body.into(), told });
        }
        if self.status.code().is_none() {
            let sentence = match self.status.signal() {
                Some(9) => {
                    "flightline-sql was killed, probably because it ran out of memory; select fewer samples."
                        .to_owned()
                }
                _ => format!("flightline-sql failed ({}); see the log of the service.", self.status),
            };
            return Err(Fault::new(StatusCode::INTERNAL_SERVER_ERROR, sentence));
        }
        // Drop the output before the error.
        let all: Vec<String> = lines.collect();
        let from = all.iter().position(|line| line.starts_with("error: ")).unwrap_or(0);
        let why = all.get(from..).unwrap_or_default().join(" ");
        let why: String = why.trim_start_matches("error: ").chars().take(LONGEST_TOLD).collect();
        let why = why.trim_end_matches('.');
        let why = if why.is_empty() { "no error message" } else { why };
        Err(Fault::new(StatusCode::UNPROCESSABLE_ENTITY, format!("The query failed: {why}.")))
    }
}

/// Replaces control characters and truncates the line.
fn plain(line: &str) -> String {
    line.trim().chars().map(|c| if c.is_control() { '?' } else { c }).take(LONGEST_TOLD).collect()
}

#[cfg(test)]
pub(crate) mod tests;
