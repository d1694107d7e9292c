//! The JDK's tool `jfr` for many files in one JVM, which takes longer to start than to read most of them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tempfile::TempDir;

use crate::run::{Finished, spawn};

/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A JVM that waits for calls; ended with the value.
pub struct JfrTool {
    child: Child,
    calls: Option<ChildStdin>,
    answers: Receiver<String>,
    folder: TempDir,
}

impl JfrTool {
    /// Starts the JVM of this JDK, with times in UTC.
    ///
    /// # Panics
    /// There is no `java` in that folder.
    #[track_caller]
    pub fn start(home: &Path) -> JfrTool {
        let mut command = Command::new(home.join("bin/java"));
        command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.args(["--add-opens", "jdk.jfr/jdk.jfr.internal.tool=ALL-UNNAMED", "-Dstdout.encoding=UTF-8"]);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("jdk/Jfr.java"));
        command.env("TZ", "UTC").env("LC_ALL", "C.UTF-8").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(&mut command);
        let calls = child.stdin.take();
        let said = BufReader::new(child.stdout.take().unwrap());
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            said.lines().map_while(Result::ok).all(|line| tell.send(line).is_ok());
        });
        JfrTool { child, calls, answers, folder: TempDir::with_prefix("flightline-jfr-").unwrap() }
    }

    /// `jfr` with these arguments, to its end.
    ///
    /// # Panics
    /// It takes longer than anything takes.
    #[track_caller]
    pub fn run(&mut self, args: &[&str]) -> Finished {
        let (out, errors) = (self.folder.path().join("out"), self.folder.path().join("errors"));
        let mut line = format!("{}\t{}", out.display(), errors.display());
        for arg in args {
            assert!(!arg.contains(['\t', '\n']), "{arg:?}");
            line = line + "\t" + arg;
        }
        writeln!(self.calls.as_mut().unwrap(), "{line}").expect("the JVM takes calls");
        let answer = self.answers.recv_timeout(LIMIT).expect("the JVM answers within two minutes");
        let code: i32 = answer.parse().expect("an exit status");
        let stderr = String::from_utf8_lossy(&std::fs::read(errors).unwrap()).into_owned();
        Finished { status: ExitStatus::from_raw(code << 8), stdout: std::fs::read(out).unwrap(), stderr }
    }
}

impl Drop for JfrTool {
    fn drop(&mut self) {
        drop(self.calls.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
