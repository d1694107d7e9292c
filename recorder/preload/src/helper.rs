//! Starts the drain for a program that `flightline record` did not start.
//!
//! `flightline drain` does not become a child of the program: an intermediate process is created with exit
//! signal 0 (no `wait` of the program sees it) and ends at once. Only raw system calls are made between the
//! forks. The program waits for the session at most [`START_MS`]. After a failure it prints one line and
//! continues.

use core::ffi::{CStr, c_char, c_int};

use flightline_capture::os::{self, Fd, Text};
use flightline_capture::target::Stripped;
use flightline_capture::{Moment, shadow};
use flightline_in_signal::layout::SESSION_ENV;
use flightline_in_signal::os::sys;

use crate::machine::{Config, Program};

mod joined;
pub use joined::{Service, has_joined, join_service};

/// Maximum wait for the drain's session while a program starts, ms.
const START_MS: u64 = 500;

/// The settings of a recording and its output.
pub struct Settings<'a> {
    /// The values of the options of `flightline drain`, in the order of [`OPTIONS`]; `None` for options that
    /// are not set.
    pub options: [Option<&'a CStr>; OPTIONS.len()],
    /// Path of the `flightline` program.
    pub program: Option<&'a CStr>,
    /// The program's stderr is not used: messages go to the system's log.
    pub silent: bool,
}

/// An option of `flightline drain`, with its names in the environment and in the machine's settings.
pub struct Choice {
    option: &'static CStr,
    variable: &'static CStr,
    name: &'static [u8],
}

const fn choice(option: &'static CStr, variable: &'static CStr, name: &'static str) -> Choice {
    Choice { option, variable, name: name.as_bytes() }
}

/// The options, in the order of [`Settings::options`].
pub const OPTIONS: [Choice; 11] = [
    choice(c"--output", c"FLIGHTLINE_OUTPUT", "output"),
    choice(c"--repository", c"FLIGHTLINE_REPOSITORY", "repository"),
    choice(c"--rate", c"FLIGHTLINE_RATE", "rate"),
    choice(c"--event", c"FLIGHTLINE_EVENTS", "events"),
    choice(c"--engine", c"FLIGHTLINE_ENGINE", "engine"),
    choice(c"--max-age", c"FLIGHTLINE_MAX_AGE", "max-age"),
    choice(c"--max-size", c"FLIGHTLINE_MAX_SIZE", "max-size"),
    choice(c"--chunk-age", c"FLIGHTLINE_CHUNK_AGE", "chunk-age"),
    choice(c"--chunk-size", c"FLIGHTLINE_CHUNK_SIZE", "chunk-size"),
    choice(c"--label", c"FLIGHTLINE_LABELS", "labels"),
    choice(c"--spans", c"FLIGHTLINE_SPANS", "spans"),
];
/// Index of the output in [`OPTIONS`].
pub const OUTPUT: usize = 0;
/// Index of the repository in [`OPTIONS`].
pub const REPOSITORY: usize = 1;
/// Range of the options that are valid only with a repository.
const OF_REPOSITORY: [usize; 2] = [5, 9];

impl<'a> Settings<'a> {
    /// Reads the options through `value`. Returns `None` without an output. A repository takes precedence
    /// over a file.
    fn by(value: impl Fn(&Choice) -> Option<&'a CStr>, silent: bool) -> Option<Settings<'a>> {
        let mut options = [None; OPTIONS.len()];
        for (to, option) in options.iter_mut().zip(&OPTIONS) {
            *to = value(option).filter(|value| !value.is_empty());
        }
        let settings = Settings { options, program: None, silent }.sorted();
        (settings.target().is_some()).then_some(settings)
    }

    /// Removes the options that cannot be combined.
    pub fn sorted(mut self) -> Settings<'a> {
        let repository = self.options.get(REPOSITORY).is_some_and(Option::is_some);
        for (index, option) in self.options.iter_mut().enumerate() {
            let of_repository = (OF_REPOSITORY[0]..OF_REPOSITORY[1]).contains(&index);
            if repository && index == OUTPUT || !repository && of_repository {
                *option = None;
            }
        }
        self
    }

    /// Returns the output of the recording.
    pub fn target(&self) -> Option<&'a CStr> {
        self.options
            .get(REPOSITORY)
            .copied()
            .flatten()
            .or_else(|| self.options.get(OUTPUT).copied().flatten())
    }
}

type Path = Text<1024>;

/// Session directory of a helper that has started.
pub type Session = Text<256>;

/// Starts a recording with the settings of the environment: the object was preloaded by hand. Returns true if
/// the environment names an output.
pub fn start_from_environment() -> bool {
    let Some(settings) = Settings::by(|option| os::env(option.variable), false) else { return false };
    let program = Program::own();
    if program.as_ref().is_some_and(Program::is_recorder) {
        return true;
    }
    let list = os::env(c"FLIGHTLINE_ALLOW").filter(|list| !list.is_empty());
    if let Some(list) = list
        && program.is_none_or(|program| program.listed(list.to_bytes()).is_none())
    {
        return true;
    }
    let mut settings = Settings { program: os::env(c"FLIGHTLINE_BIN"), ..settings };
    // The recorder reads the labels in each process's own environment.
    if let Some(labels) = settings.options.last_mut() {
        *labels = None;
    }
    start(&settings);
    true
}

/// Starts a recording if the machine's settings select this program, or joins the service that they name.
pub fn start_by_machine() {
    let (Some(config), Some(program)) = (Config::read(), Program::own()) else { return };
    if !config.allows(&program) {
        return;
    }
    if let Some(settings) = Settings::by(|option| config.value(option.name), true) {
        start(&Settings { program: config.value(b"program"), ..settings });
    } else {
        joined::join_by_machine(&config);
    }
}

fn start(settings: &Settings<'_>) {
    let joined = launch(settings, START_MS).and_then(|dir| {
        let path = dir.cstr()?;
        publish(SESSION_ENV.as_bytes(), path.to_bytes());
        flightline_capture::start(path, Moment::ProgramStart).map_err(|refused| refused.text().1)
    });
    if let Err(errno) = joined.or_else(|errno| if errno == libc::EPROTO { Ok(()) } else { Err(errno) })
        && (!settings.silent || os::env(c"FLIGHTLINE_DEBUG").is_some())
    {
        let mut number = Text::<24>::new();
        number.number(errno.unsigned_abs().into());
        os::say(&[
            b"cannot record to ",
            settings.target().unwrap_or_default().to_bytes(),
            b": the recorder process did not start (errno ",
            number.bytes(),
            b"); set FLIGHTLINE_BIN to the flightline program",
        ]);
    }
}

/// Starts the helper and waits for its session, at most `most_ms`.
///
/// # Errors
/// An errno: `ENOENT` without a `flightline` program, `ETIMEDOUT` if it was not ready in time, `EPROTO` if it
/// failed (it has printed the reason to stderr).
pub fn launch(settings: &Settings<'_>, most_ms: u64) -> Result<Session, c_int> {
    let program = find(settings.program).ok_or(libc::ENOENT)?;
    let program = program.cstr()?;
    let mut pid = Text::<24>::new();
    pid.number(sys::getpid().into());
    let mut argv = [core::ptr::null::<c_char>(); 8 + 2 * OPTIONS.len()];
    let first = [program, c"drain", c"--ready-fd", c"3", c"--pid", pid.cstr()?].map(Some);
    let given = OPTIONS.iter().zip(&settings.options);
    let given = given.flat_map(|(option, value)| [value.map(|_| option.option), *value]);
    let last = [settings.silent.then_some(c"--syslog")];
    let words = first.into_iter().chain(given).chain(last).flatten();
    // One entry stays null, to end the array.
    for (to, word) in argv.iter_mut().zip(words) {
        *to = word.as_ptr();
    }
    let reader = detach(program, &argv, Ready::Told, settings.silent)?;
    read_session(&reader, most_ms)
}

/// The use of descriptor 3 in the process that is started.
#[derive(Clone, Copy)]
enum Ready {
    /// The helper writes to it when it is ready.
    Told,
    /// It is closed when the program has started.
    Begun,
}

/// Starts a program that is not a child of this process, with no descriptors but stderr and number 3. Returns
/// the other end of descriptor 3. It yields `!` if the program cannot be run.
fn detach(program: &CStr, argv: &[*const c_char], ready: Ready, silent: bool) -> Result<Fd, c_int> {
    let (reader, writer) = pipe()?;
    let mut space = Stripped::new();
    // SAFETY: the environment of this process, which outlives the call.
    let envp = unsafe { space.strip(environment()) };
    // Block signals in the children, which only have copies of the recorder's handlers.
    let old = shadow::kernel_mask(libc::SIG_SETMASK, Some(!0));
    let child = fork(0);
    if child == Ok(0) {
        if fork(libc::SIGCHLD as usize) == Ok(0) {
            become_helper(program, argv, envp, &writer, ready, silent);
        }
        exit(0);
    }
    shadow::kernel_mask(libc::SIG_SETMASK, Some(old));
    drop(writer);
    reap(child?);
    Ok(reader)
}

fn environment() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the C library's variable.
    unsafe { environ }
}

fn pipe() -> Result<(Fd, Fd), c_int> {
    let mut fds = [0 as c_int; 2];
    let args = [fds.as_mut_ptr() as usize, libc::O_CLOEXEC as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes two descriptors.
    unsafe { os::syscall(libc::SYS_pipe2, args) }?;
    // SAFETY: both were just created, and no other code owns them.
    Ok(unsafe { (Fd::own(fds[0]), Fd::own(fds[1])) })
}

/// Forks this process with the given exit signal. Returns 0 in the child.
fn fork(exit_signal: usize) -> Result<usize, c_int> {
    // SAFETY: no flags, no pointers: a plain fork. The child makes raw system calls only.
    unsafe { os::syscall(libc::SYS_clone, [exit_signal, 0, 0, 0, 0, 0]) }
}

fn exit(status: usize) -> ! {
    loop {
        // SAFETY: ends the calling process.
        let _ = unsafe { os::syscall(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]) };
    }
}

fn reap(pid: usize) {
    const WCLONE: usize = 0x8000_0000;
    loop {
        // SAFETY: no status is written.
        let r = unsafe { os::syscall(libc::SYS_wait4, [pid, 0, WCLONE, 0, 0, 0]) };
        if r != Err(libc::EINTR) {
            return;
        }
    }
}

/// Called in the grandchild: creates a session, closes all descriptors but stderr and the pipe, unblocks all
/// signals, and executes the program.
fn become_helper(
    program: &CStr,
    argv: &[*const c_char],
    envp: *const *const c_char,
    writer: &Fd,
    ready: Ready,
    silent: bool,
) -> ! {
    const READY: usize = 3;
    // SAFETY: no pointers in any of these.
    unsafe {
        let _ = os::syscall(libc::SYS_setsid, [0; 6]);
        // Move the pipe above the low numbers first, so that they can be overwritten.
        let high = os::syscall(libc::SYS_fcntl, [writer.raw() as usize, libc::F_DUPFD as usize, 10, 0, 0, 0]);
        let null = os::open(c"/dev/null", libc::O_RDWR, 0);
        if let Ok(null) = &null {
            for fd in [0, 1].into_iter().chain(silent.then_some(2)) {
                if null.raw() as usize != fd {
                    let _ = os::syscall(libc::SYS_dup3, [null.raw() as usize, fd, 0, 0, 0, 0]);
                }
            }
        }
        if let Ok(high) = high {
            let flags = match ready {
                Ready::Told => 0,
                Ready::Begun => libc::O_CLOEXEC as usize,
            };
            let _ = os::syscall(libc::SYS_dup3, [high, READY, flags, 0, 0, 0]);
        }
        let _ = os::syscall(libc::SYS_close_range, [READY + 1, u32::MAX as usize, 0, 0, 0, 0]);
        core::mem::forget(null);
        shadow::kernel_mask(libc::SIG_SETMASK, Some(0));
        let args = [program.as_ptr() as usize, argv.as_ptr() as usize, envp as usize, 0, 0, 0];
        // The arrays are null-terminated and live until the call.
        let _ = os::syscall(libc::SYS_execve, args);
        let text = b"!\n";
        let _ = os::syscall(libc::SYS_write, [READY, text.as_ptr() as usize, text.len(), 0, 0, 0]);
    }
    exit(127)
}

/// Reads one line: the directory, or `!` and the reason of a failure.
fn read_session(reader: &Fd, most_ms: u64) -> Result<Session, c_int> {
    let mut line = [0u8; 255];
    let mut len = 0;
    let end = flightline_in_signal::os::clock::monotonic_ns() + most_ms * 1_000_000;
    while !line.contains(&b'\n') {
        let left = end.saturating_sub(flightline_in_signal::os::clock::monotonic_ns());
        if left == 0 || len == line.len() {
            return Err(libc::ETIMEDOUT);
        }
        let mut poll = libc::pollfd { fd: reader.raw(), events: libc::POLLIN, revents: 0 };
        let wait = [(left / 1_000_000_000) as i64, (left % 1_000_000_000) as i64];
        let args = [(&raw mut poll) as usize, 1, wait.as_ptr() as usize, 0, 0, 0];
        // SAFETY: the kernel reads a timeout and writes one pollfd.
        match unsafe { os::syscall(libc::SYS_ppoll, args) } {
            Ok(0) => return Err(libc::ETIMEDOUT),
            Ok(_) => {}
            Err(libc::EINTR) => continue,
            Err(errno) => return Err(errno),
        }
        match os::read(reader, line.get_mut(len..).unwrap_or_default())? {
            0 => return Err(libc::EPROTO),
            n => len += n,
        }
    }
    let text = line.split(|b| *b == b'\n').next().unwrap_or_default();
    if let Some(why) = text.strip_prefix(b"!") {
        // A drain that fails prints the reason to stderr itself.
        return Err(if why.is_empty() { libc::ENOEXEC } else { libc::EPROTO });
    }
    let mut dir = Session::new();
    dir.put(text);
    Ok(dir)
}

// ----- finding the program --------------------------------------------------------------------------------------

/// Finds the `flightline` program: the path set by the user; next to this object (a build directory); in
/// `../bin` of it (a package); on `PATH`.
fn find(named: Option<&CStr>) -> Option<Path> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let mut path = Path::new();
        path.put(named.to_bytes());
        return Some(path).filter(executable);
    }
    let own = own_directory();
    let near = ["/flightline", "/../flightline", "/../bin/flightline", "/../../bin/flightline"];
    let beside = own.iter().flat_map(|dir| {
        near.iter().map(|name| {
            let mut path = Path::new();
            path.put(dir.bytes()).put(name.as_bytes());
            path
        })
    });
    let on_path = flightline_capture::target::on_path(c"flightline", os::env(c"PATH"));
    beside.chain([on_path]).find(executable)
}

fn executable(path: &Path) -> bool {
    const X_OK: usize = 1;
    path.cstr().is_ok_and(|path| {
        let args = [libc::AT_FDCWD as isize as usize, path.as_ptr() as usize, X_OK, 0, 0, 0];
        // SAFETY: the path is NUL-terminated.
        unsafe { os::syscall(libc::SYS_faccessat, args) }.is_ok()
    })
}

/// Returns the directory from which this object was loaded.
fn own_directory() -> Option<Path> {
    // SAFETY: all-zero is a valid structure.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    let here = own_directory as *const ();
    // SAFETY: an address of this object; the structure is written.
    if unsafe { libc::dladdr(here.cast(), &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's copy of the name, NUL-terminated.
    let name = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    let slash = name.iter().rposition(|b| *b == b'/')?;
    let mut dir = Path::new();
    dir.put(name.get(..slash)?);
    Some(dir)
}

// ----- the session in the environment, for children -------------------------------------------------------------

/// Adds a variable to the environment of this process and its children, or replaces it. `setenv` is not used,
/// because it allocates.
fn publish(name: &[u8], value: &[u8]) {
    unsafe extern "C" {
        static mut environ: *const *const c_char;
    }
    let old = environment();
    let mut count = 0;
    if !old.is_null() {
        // SAFETY: the environment is a null-terminated array.
        while unsafe { !old.add(count).read().is_null() } {
            count += 1;
        }
    }
    let text_bytes = name.len() + 1 + value.len() + 1;
    let words = count + 2;
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let Ok(at) = os::map(None, words * size_of::<usize>() + text_bytes, rw, libc::MAP_PRIVATE) else {
        return;
    };
    let array = at as *mut *const c_char;
    let text = (at + words * size_of::<usize>()) as *mut u8;
    let parts: [&[u8]; 4] = [name, b"=", value, b"\0"];
    let mut end = 0;
    for part in parts {
        // SAFETY: the parts add up to `text_bytes`.
        unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), text.add(end), part.len()) };
        end += part.len();
    }
    // SAFETY: the new array holds at most the old entries, the new one and the null. It stays mapped; this runs before the
    // program's own code, or in a call documented as not thread-safe.
    unsafe {
        let mut to = array;
        for index in 0..count {
            let entry = old.add(index).read();
            let rest = CStr::from_ptr(entry).to_bytes().strip_prefix(name);
            if rest.is_none_or(|rest| rest.first() != Some(&b'=')) {
                to.write(entry);
                to = to.add(1);
            }
        }
        to.write(text.cast());
        to.add(1).write(core::ptr::null());
        environ = array;
    }
}
