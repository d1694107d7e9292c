//! Runs the JDK's `jfr` on many files in one JVM, whose start takes longer than most files.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tempfile::TempDir;

use crate::run::{Finished, spawn};
use crate::victim;

/// The time-out of one call.
const LIMIT: Duration = Duration::from_secs(300);

/// A JVM that waits for calls; it ends when the value is dropped.
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
    ///
    /// If that folder has no `java`.
    #[track_caller]
    pub fn start(home: &Path) -> JfrTool {
        let classes = victim::java_classes(&home.join("bin/javac"), "Jfr", &[]);
        let mut command = Command::new(home.join("bin/java"));
        command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx3g"]);
        command.args(["--add-opens", "jdk.jfr/jdk.jfr.internal.tool=ALL-UNNAMED", "-Dstdout.encoding=UTF-8"]);
        command.arg("-cp").arg(&classes).arg("Jfr");
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

    /// Runs `jfr` with these arguments to its end.
    ///
    /// # Panics
    ///
    /// If it takes longer than five minutes.
    #[track_caller]
    pub fn run(&mut self, args: &[&str]) -> Finished {
        let out = self.folder.path().join("out");
        self.call(&out, args);
        let finished = self.end();
        Finished { stdout: std::fs::read(out).unwrap(), ..finished }
    }

    /// Starts `jfr` with these arguments and returns its standard output, a pipe that ends with the call.
    /// Call [`end`](Self::end) after it.
    ///
    /// # Panics
    ///
    /// If it does not start within five minutes.
    #[track_caller]
    pub fn stream(&mut self, args: &[&str]) -> File {
        let pipe = self.folder.path().join("pipe");
        let _ = std::fs::remove_file(&pipe);
        let path = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0, "{}", io::Error::last_os_error());
        self.call(&pipe, args);
        let (opened, is_open) = channel();
        // Opening waits for the writer, for ever if the JVM has died.
        std::thread::spawn(move || opened.send(File::open(pipe).unwrap()));
        is_open.recv_timeout(LIMIT).expect("the JVM opens the pipe within five minutes")
    }

    /// Waits for the end of a call and returns its exit status and standard error.
    ///
    /// # Panics
    ///
    /// If it takes longer than five minutes.
    #[track_caller]
    pub fn end(&mut self) -> Finished {
        let answer = self.answers.recv_timeout(LIMIT).expect("the JVM answers within five minutes");
        let code: i32 = answer.parse().expect("an exit status");
        let stderr = String::from_utf8_lossy(&std::fs::read(self.errors()).unwrap()).into_owned();
        Finished { status: ExitStatus::from_raw(code << 8), stdout: Vec::new(), stderr }
    }

    fn call(&mut self, out: &Path, args: &[&str]) {
        let mut line = format!("{}\t{}", out.display(), self.errors().display());
        for arg in args {
            assert!(!arg.contains(['\t', '\n']), "{arg:?}");
            line = line + "\t" + arg;
        }
        writeln!(self.calls.as_mut().unwrap(), "{line}").expect("the JVM accepts calls");
    }

    fn errors(&self) -> PathBuf {
        self.folder.path().join("errors")
    }
}

impl Drop for JfrTool {
    fn drop(&mut self) {
        drop(self.calls.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
