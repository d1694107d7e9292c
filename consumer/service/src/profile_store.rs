//! Queries of the profile store. `flightline-sql` answers them: one process per query, started without a
//! shell, and killed if it takes too long, writes too much, or its client disconnects.

mod answer_cache;
mod facets;
pub(crate) mod filter;
pub(crate) mod query;

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

use crate::api_error::ApiError;
use answer_cache::AnswerCache;

/// Maximum bytes read from the command's standard error.
const MOST_DIAGNOSTICS: u64 = 64 << 10;
/// Maximum characters of it sent to a client.
const LONGEST_DIAGNOSTIC: usize = 2000;
/// Maximum number of queued queries.
const MOST_WAITING: usize = 16;

/// The store and how it is queried.
#[derive(Clone, Debug)]
pub struct StoreSettings {
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

impl StoreSettings {
    /// Creates a settings with the default limits.
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
    pub diagnostics: Arc<[String]>,
}

/// A store that can be queried.
#[derive(Debug)]
pub struct ProfileStore {
    settings: StoreSettings,
    turns: Semaphore,
    waiting: Semaphore,
    cache: Mutex<AnswerCache>,
    /// Contains a link to standard output whose name ends in `.html`, from which the command infers the
    /// output format.
    folder: TempDir,
}

impl ProfileStore {
    /// Creates the handle; starts no query.
    ///
    /// # Errors
    /// Returns an error if there is no room for temporary files.
    pub fn new(settings: StoreSettings) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("flightline-serve-").tempdir()?;
        symlink("/proc/self/fd/1", folder.path().join("out.html"))?;
        let turns = Semaphore::new(settings.at_once.max(1));
        Ok(Self { settings, turns, waiting: Semaphore::new(MOST_WAITING), cache: Mutex::default(), folder })
    }

    /// Argument of `--output=` for a page.
    fn page(&self) -> OsString {
        self.folder.path().join("out.html").into()
    }

    /// Runs a query, or returns the cached answer of the same recent query.
    ///
    /// # Errors
    /// Returns an error if the command rejects the query, is busy, fails, or exceeds its limits.
    pub(crate) async fn ask(&self, query: &query::Query) -> std::result::Result<Answer, ApiError> {
        if let Some(answer) = self.cache().find(query) {
            return Ok(answer);
        }
        let turn = {
            let _waits = self.waiting.try_acquire().map_err(|_| busy())?;
            timeout(self.settings.turn, self.turns.acquire()).await.map_err(|_| busy())?
        };
        let _turn = turn.map_err(|error| ApiError::internal("query the store", error))?;
        // The previous query may have been the same.
        if let Some(answer) = self.cache().find(query) {
            return Ok(answer);
        }
        let answer = self.answered(query).await?;
        self.cache().keep(query.clone(), answer.clone());
        Ok(answer)
    }

    async fn answered(&self, query: &query::Query) -> std::result::Result<Answer, ApiError> {
        let mut command = Command::new(&self.settings.program);
        command.args(query.arguments(&self.settings.store, &self.page()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The child is also killed when the client disconnects, which drops this future.
        let child = command.kill_on_drop(true).spawn();
        let mut child = child.map_err(|error| ApiError::internal("start flightline-sql", error))?;
        let done = timeout(self.settings.longest, self.heard(&mut child)).await;
        let ended = match done {
            Ok(Ok(ended)) => ended,
            Ok(Err(fault)) => return Err(killed(child, fault).await),
            Err(_) => {
                let message = format!(
                    "The query did not finish within {} s; select one service, fewer days or more labels.",
                    self.settings.longest.as_secs_f64()
                );
                return Err(killed(child, ApiError::new(StatusCode::GATEWAY_TIMEOUT, message)).await);
            }
        };
        ended.answer()
    }

    async fn heard(&self, child: &mut Child) -> std::result::Result<Ended, ApiError> {
        let most = self.settings.most_bytes;
        let (mut out, diagnostics) = (child.stdout.take(), child.stderr.take());
        let body = async {
            let (body, more) = read(&mut out, most).await?;
            match more {
                true => Err(ApiError::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!(
                        "The result is larger than {most} bytes; omit narrow frames, or select fewer samples."
                    ),
                )),
                false => Ok(body),
            }
        };
        let diagnostics = async {
            let mut diagnostics = diagnostics;
            let (text, _) = read(&mut diagnostics, MOST_DIAGNOSTICS).await?;
            // Drain the rest so that the command does not block.
            if let Some(diagnostics) = &mut diagnostics {
                let _ = tokio::io::copy(diagnostics, &mut tokio::io::sink()).await;
            }
            Ok(text)
        };
        let (body, diagnostics) = tokio::try_join!(body, diagnostics)?;
        let status = child.wait().await.map_err(|error| ApiError::internal("wait for the store", error))?;
        Ok(Ended { status, body, diagnostics: String::from_utf8_lossy(&diagnostics).into_owned() })
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, AnswerCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads at most `most` bytes; returns true if there are more.
async fn read(
    from: &mut Option<impl AsyncRead + Unpin>,
    most: u64,
) -> std::result::Result<(Vec<u8>, bool), ApiError> {
    let mut bytes = Vec::new();
    let Some(from) = from else { return Ok((bytes, false)) };
    let done = from.take(most.saturating_add(1)).read_to_end(&mut bytes).await;
    done.map_err(|error| ApiError::internal("read the query result", error))?;
    let more = bytes.len() as u64 > most;
    Ok((bytes, more))
}

/// Kills the command while it still holds its permit, so that the limit is never exceeded.
async fn killed(mut child: Child, fault: ApiError) -> ApiError {
    let _ = child.kill().await;
    fault
}

fn busy() -> ApiError {
    let message = "The store is busy with other queries; retry later.";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
}

/// Result of the command.
struct Ended {
    status: ExitStatus,
    body: Vec<u8>,
    diagnostics: String,
}

impl Ended {
    fn answer(self) -> std::result::Result<Answer, ApiError> {
        let lines = self.diagnostics.lines().map(plain).filter(|line| !line.is_empty());
        if self.status.success() {
            let diagnostics = lines.map(|line| line.trim_start_matches("flightline: ").to_owned()).collect();
            return Ok(Answer { body: self.body.into(), diagnostics });
        }
        if self.status.code().is_none() {
            let message = match self.status.signal() {
                Some(9) => {
                    "flightline-sql was killed, probably because it ran out of memory; select fewer samples."
                        .to_owned()
                }
                _ => format!("flightline-sql failed ({}); see the log of the service.", self.status),
            };
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message));
        }
        // Drop the output before the error.
        let all: Vec<String> = lines.collect();
        let from = all.iter().position(|line| line.starts_with("error: ")).unwrap_or(0);
        let why = all.get(from..).unwrap_or_default().join(" ");
        let why: String = why.trim_start_matches("error: ").chars().take(LONGEST_DIAGNOSTIC).collect();
        let why = why.trim_end_matches('.');
        let why = if why.is_empty() { "no error message" } else { why };
        Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, format!("The query failed: {why}.")))
    }
}

/// Replaces control characters and truncates the line.
fn plain(line: &str) -> String {
    line.trim().chars().map(|c| if c.is_control() { '?' } else { c }).take(LONGEST_DIAGNOSTIC).collect()
}

#[cfg(test)]
pub(crate) mod tests;
