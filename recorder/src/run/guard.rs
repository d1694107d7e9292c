//! Records the own process: `Recorder::builder()…start()?` returns a guard.

use std::{
    env,
    io::{BufRead, BufReader},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use flightline_capture::Moment;
use flightline_capture::lifecycle::join::Refused;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

use crate::output::sink::stream::{Address, TOKEN_ENV, Token};
use crate::run::drain_options::drain_options;
use crate::{Drain, Engine, Error, Settings, Target, output::repository::Repository, session::SessionClient};

/// Time between two checks for new threads.
const THREADS_EVERY: Duration = Duration::from_millis(10);
/// Time between two checks for new threads while nothing is recorded.
const WAITING_EVERY: Duration = Duration::from_millis(100);
/// Time limit for the helper to become ready.
const READY_WAIT: Duration = Duration::from_secs(2);
/// Time limit for the helper to complete the output.
const FINISH_WAIT: Duration = Duration::from_secs(10);

/// Records the process it is used in.
///
/// ```no_run
/// let recording = flightline_recorder::Recorder::builder().rate(99.0).output("run.jfr").start()?;
/// // … work …
/// recording.stop()?; // or drop it
/// # Ok::<(), flightline_recorder::Error>(())
/// ```
#[derive(Debug)]
pub struct Recorder;

impl Recorder {
    /// Returns default settings, to be changed and [started](Builder::start).
    pub fn builder() -> Builder {
        Builder {
            settings: Settings::default(),
            rate: None,
            output: PathBuf::from("flightline.jfr"),
            repository: None,
            program: None,
            in_process: false,
        }
    }

    /// Begins a unit of work, such as a task attempt, and enters it on this thread. Until the unit is
    /// dropped, each sample of the thread has these labels, as do those of other threads that
    /// [enter](flightline_context::Scope::enter) it. Without a recorder in the process (before the first
    /// [`Builder::start`] in a program without `libflightline.so`), this does nothing and does not evaluate
    /// the labels. See [`flightline_context::Scope`], which needs only that crate.
    ///
    /// ```
    /// use flightline_recorder::Recorder;
    /// let attempt = Recorder::scope([("dag", "dag_7"), ("task", "map_000003"), ("attempt", "0")]);
    /// let handed_on = &*attempt; // a `&Scope`
    /// std::thread::scope(|threads| {
    ///     threads.spawn(move || {
    ///         let _inside = handed_on.enter();
    ///         // … also with these labels …
    ///     });
    /// });
    /// ```
    pub fn scope<K: AsRef<str>, V: std::fmt::Display>(
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> flightline_context::ActiveScope {
        flightline_context::scope(labels)
    }
}

/// Settings for recording the own process.
#[derive(Clone, Debug)]
pub struct Builder {
    settings: Settings,
    rate: Option<f64>,
    output: PathBuf,
    repository: Option<Repository>,
    program: Option<PathBuf>,
    in_process: bool,
}

impl Builder {
    /// Uses these settings instead of the defaults and of all earlier changes.
    pub fn settings(mut self, settings: Settings) -> Builder {
        self.settings = settings;
        self
    }

    /// Sets the sampling rate: samples per second of CPU time, 1 to 10,000; default 99.
    pub fn rate(mut self, rate: f64) -> Builder {
        self.rate = Some(rate);
        self
    }

    /// Sets the output: a file, in whose name `%p` is replaced by the PID, or a stream as on the command
    /// line: a FIFO, `unix:PATH`, `tcp:HOST:PORT` (the token is in `FLIGHTLINE_TOKEN`), and, [in this
    /// process](Builder::in_process), `fd:N` or `-`. Default `flightline.jfr`. An existing file is renamed to
    /// `NAME.old`.
    pub fn output(mut self, path: impl Into<PathBuf>) -> Builder {
        self.output = path.into();
        self
    }

    /// Records into a rolling repository instead of a file, which retains the last hours while the program
    /// runs.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// use flightline_recorder::repository::Repository;
    /// let mut last_day = Repository::new("/var/lib/flightline");
    /// last_day.max_age = Some(Duration::from_secs(24 * 3600));
    /// last_day.max_size = Some(1 << 30);
    /// let recording = flightline_recorder::Recorder::builder().repository(last_day).label("zone", "eu-1").start()?;
    /// # Ok::<(), flightline_recorder::Error>(())
    /// ```
    pub fn repository(mut self, repository: Repository) -> Builder {
        self.repository = Some(repository);
        self
    }

    /// Adds a label to those that the recorder detects. It is in every chunk; see
    /// [`crate::settings::labels`].
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Builder {
        self.settings.processes.labels.push((name.into(), value.into()));
        self
    }

    /// Sets how CPU time is sampled. Default: the best engine that works.
    pub fn engine(mut self, engine: Engine) -> Builder {
        self.settings.cpu.engine = engine;
        self
    }

    /// Sets what to record instead of CPU time, such as `cpu@10ms,wall,alloc@512k,lock`; see
    /// [`crate::settings::ENGINES`].
    ///
    /// # Errors
    /// An invalid name or interval.
    pub fn events(mut self, list: &str) -> Result<Builder, Error> {
        self.settings = self.settings.without_engines();
        self.settings.add(list)?;
        Ok(self)
    }

    /// Sets the limit of frames per stack; default 1024.
    pub fn depth(mut self, frames: u32) -> Builder {
        self.settings.stacks.depth = frames;
        self
    }

    /// Sets the time between flushes; default one second.
    pub fn flush(mut self, every: Duration) -> Builder {
        self.settings.output.flush = every;
        self
    }

    /// Sets the `flightline` program that writes the recording in a separate process. Default:
    /// `FLIGHTLINE_BIN`, then next to this program, then on `PATH`.
    pub fn helper(mut self, program: impl Into<PathBuf>) -> Builder {
        self.program = Some(program.into());
        self
    }

    /// Writes the recording in a thread of this process, with all signals blocked, instead of a helper
    /// process.
    pub fn in_process(mut self) -> Builder {
        self.in_process = true;
        self
    }

    /// Starts recording all existing threads, and later ones within about 10 ms of their start.
    ///
    /// # Errors
    /// A setting is out of range, the output cannot be written, or the process is already being recorded.
    pub fn start(mut self) -> Result<Recording, Error> {
        if let Some(rate) = self.rate {
            self.settings.cpu.period = Settings::period_for_rate(rate)?;
        }
        self.settings.check()?;
        if let Some(repository) = &mut self.repository {
            let root = std::path::absolute(&repository.root);
            repository.root = root.map_err(|e| Error::io("find", &repository.root, e))?;
            repository.check()?;
        }
        if flightline_capture::is_active() || preloaded() {
            let source = std::io::Error::other("it is already being recorded");
            return Err(Error::Io { doing: "record this process".into(), source });
        }
        let stop = Arc::new(AtomicBool::new(false));
        let helper = if self.in_process { None } else { find_program(self.program.as_deref()) };
        let address = Address::parse(&self.output, 1)?;
        if helper.is_some() && matches!(address, Address::Descriptor(_)) && self.repository.is_none() {
            let problem = format!("{}: a recorder process does not inherit it; see in_process", address);
            return Err(Error::Unavailable { name: "output", problem });
        }
        let started = match helper {
            Some(program) => self.with_helper(&program),
            None => self.with_thread(&stop),
        };
        let (dir, drain) = started?;
        let session_client = SessionClient::open(&dir)?;
        let path = std::ffi::CString::new(dir.as_os_str().as_bytes()).unwrap_or_default();
        if let Err(refused) = flightline_capture::start(&path, Moment::Later) {
            session_client.ask_stop();
            return Err(refusal(refused));
        }
        let watcher = watch_threads(stop.clone());
        Ok(Recording { stop, watcher: watcher.ok(), drain, session_client, session: dir })
    }

    /// Starts `flightline drain`.
    fn with_helper(&self, program: &Path) -> Result<(PathBuf, Option<JoinHandle<()>>), Error> {
        let failed = |e: std::io::Error| Error::io("start the recorder process", program, e);
        let (reader, writer) =
            nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|e| failed(e.into()))?;
        let mut command = nobodys_child(program);
        command.args(["drain", "--ready-fd", "3", "--pid", &std::process::id().to_string()]);
        command.args(drain_options(&self.settings));
        if let Some(token) = &self.settings.output.stream.token {
            command.env(TOKEN_ENV, token.line().trim_end());
        }
        match &self.repository {
            Some(repository) => command.args(repository.as_options()),
            None => command.arg("-o").arg(&self.output),
        };
        give_as_3(&mut command, writer);
        command.status().map_err(failed)?;
        // The command holds the write end until it is dropped.
        drop(command);
        Ok((read_ready(&reader).map_err(failed)?, None))
    }

    fn target(&self) -> Result<Target, Error> {
        match &self.repository {
            Some(repository) => Ok(Target::Repository(repository.clone())),
            None => Target::parse(&self.output),
        }
    }

    /// Runs the drain in a thread of this process.
    fn with_thread(&self, stop: &Arc<AtomicBool>) -> Result<(PathBuf, Option<JoinHandle<()>>), Error> {
        let mut settings = self.settings.clone();
        if settings.output.stream.token.is_none() {
            settings.output.stream.token = Token::find(None)?;
        }
        let mut drain = Drain::start(settings, self.target()?)?;
        let dir = drain.session_dir().to_owned();
        let stop = stop.clone();
        let thread = spawn_blocked("flightline", move || {
            while !stop.load(Ordering::Relaxed) && !drain.is_stop_requested() {
                drain.wait(&[]);
                drain.round();
            }
            drain.finish(&|| false);
        });
        let thread =
            thread.map_err(|e| Error::Io { doing: "start the recorder thread".into(), source: e })?;
        Ok((dir, Some(thread)))
    }
}

/// A recording of this process. Dropping it stops and completes it.
#[must_use = "dropping it ends the recording"]
pub struct Recording {
    stop: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
    drain: Option<JoinHandle<()>>,
    session_client: SessionClient,
    session: PathBuf,
}

impl Recording {
    /// Writes everything recorded so far to the output.
    ///
    /// # Errors
    /// The recorder did not do it within ten seconds.
    pub fn flush(&self) -> Result<(), Error> {
        let request = self.session_client.ask_flush();
        wait_until(FINISH_WAIT, || self.session_client.flushed() >= request, "flush the recording")
    }

    /// Stops sampling and completes the output.
    ///
    /// # Errors
    /// The recorder did not complete it within ten seconds.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    /// Pauses recording until [`Recording::resume`].
    ///
    /// # Errors
    /// The recorder does not answer.
    pub fn pause(&self) -> Result<(), Error> {
        crate::control::ask(&self.session, "pause").map(drop)
    }

    /// Resumes recording.
    ///
    /// # Errors
    /// The recorder does not answer.
    pub fn resume(&self) -> Result<(), Error> {
        crate::control::ask(&self.session, "resume").map(drop)
    }

    /// Returns the session directory, with which [`crate::control::ask`] reaches the recorder of this
    /// process.
    pub fn session(&self) -> &Path {
        &self.session
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.stop.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(watcher) = self.watcher.take() {
            watcher.thread().unpark();
            let _ = watcher.join();
        }
        drop(flightline_capture::stop());
        self.session_client.ask_stop();
        match self.drain.take() {
            Some(thread) => {
                let _ = thread.join();
                Ok(())
            }
            None => wait_until(FINISH_WAIT, || self.session_client.drain_ended(), "complete the recording"),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn wait_until(limit: Duration, done: impl Fn() -> bool, doing: &str) -> Result<(), Error> {
    let deadline = Instant::now() + limit;
    while !done() {
        if Instant::now() > deadline {
            return Err(Error::Io { doing: doing.to_owned(), source: std::io::ErrorKind::TimedOut.into() });
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Returns the `flightline` program: `named` or `FLIGHTLINE_BIN`, then next to this program, then on `PATH`.
pub(crate) fn find_program(named: Option<&Path>) -> Option<PathBuf> {
    let named = named.map(Path::to_owned).or_else(|| env::var_os("FLIGHTLINE_BIN").map(PathBuf::from));
    let beside = env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("flightline")));
    let search = env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = env::split_paths(&search).map(|dir| dir.join("flightline")).collect();
    let mut places = named.into_iter().chain(beside).chain(on_path);
    places.find(|p| nix::unistd::access(p.as_path(), nix::unistd::AccessFlags::X_OK).is_ok() && p.is_file())
}

/// Returns a command that starts `program` through a shell that exits immediately, so that `program` is not a
/// child of this process and no `wait` returns it.
pub(crate) fn nobodys_child(program: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#""$@" & "#, "flightline"]).arg(program);
    command.env_remove("LD_PRELOAD").env_remove(flightline_in_signal::layout::SESSION_ENV);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Starts a thread that registers new threads, because there is no notification of them.
pub(crate) fn watch_threads(stop: Arc<AtomicBool>) -> std::io::Result<JoinHandle<()>> {
    spawn_blocked("fl-threads", move || {
        while !stop.load(Ordering::Relaxed) {
            let active = flightline_capture::is_active();
            thread::park_timeout(if active { THREADS_EVERY } else { WAITING_EVERY });
            flightline_capture::threads::register_others();
        }
    })
}

/// Starts a thread that blocks all signals, so that it receives none meant for the program.
fn spawn_blocked(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    // Block the signals before the thread exists, so that it can never receive one.
    let mut old = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut old))?;
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&old), None)?;
    spawned
}

/// Makes `fd` descriptor 3 of the command.
fn give_as_3(command: &mut Command, fd: OwnedFd) {
    // SAFETY: the closure runs between fork and exec and calls only dup2 and fcntl, which are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            let raw = fd.as_raw_fd();
            let done = if raw == 3 { libc::fcntl(3, libc::F_SETFD, 0) } else { libc::dup2(raw, 3) };
            if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
        });
    }
}

fn read_ready(reader: &OwnedFd) -> std::io::Result<PathBuf> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(READY_WAIT.as_millis()).unwrap_or(PollTimeout::MAX);
    if poll(&mut fds, limit)? == 0 {
        return Err(std::io::ErrorKind::TimedOut.into());
    }
    let mut line = String::new();
    BufReader::new(std::fs::File::from(reader.try_clone()?)).read_line(&mut line)?;
    match line.trim_end() {
        "" => Err(std::io::Error::other("it exited immediately")),
        text => match text.strip_prefix('!') {
            Some(why) => Err(std::io::Error::other(why.to_owned())),
            None => Ok(PathBuf::from(text)),
        },
    }
}

/// Returns true if a preloaded libflightline.so records this process. Two recorders would receive each
/// other's signals.
fn preloaded() -> bool {
    // SAFETY: the function only reads its own state.
    library().is_some_and(|active| unsafe { active() } != 0)
}

/// Returns `flightline_active` of a libflightline.so in this process.
pub(crate) fn library() -> Option<unsafe extern "C" fn() -> libc::c_int> {
    // SAFETY: the name is NUL-terminated.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"flightline_active".as_ptr()) };
    // SAFETY: null, or the function of that name in flightline.h: `int flightline_active(void)`.
    unsafe { std::mem::transmute(address) }
}

fn refusal(refused: Refused) -> Error {
    let (what, errno) = refused.text();
    match errno {
        0 => Error::Unavailable { name: "recording", problem: what.to_owned() },
        e => Error::Io { doing: format!("record: {what}"), source: std::io::Error::from_raw_os_error(e) },
    }
}
