//! Starts the drain for a program that `flightline record` did not start.
//!
//! `flightline drain` becomes nobody's child: an intermediate process is made with exit signal 0 (no `wait` of the
//! program sees it) and ends at once. Everything between the forks is raw system calls. The program waits for the
//! session at most [`START_MS`]; if anything fails it says so in one line and runs on.

use core::ffi::{CStr, c_char, c_int};

use flightline_capture::os::{self, Fd, Text};
use flightline_capture::target::Stripped;
use flightline_capture::{Moment, shadow};
use flightline_in_signal::layout::SESSION_ENV;
use flightline_in_signal::sys;

use crate::machine::{Config, Program};

mod joined;
pub use joined::{Service, has_joined, join_service};

/// Longest wait for the drain's session while a program starts, ms.
const START_MS: u64 = 500;

/// What to record and where to.
pub struct Settings<'a> {
    /// Options of `flightline drain` as they are called there, without `--`, and their values: as text, where they are given.
    pub options: [Option<&'a CStr>; OPTIONS.len()],
    /// Path of the `flightline` program.
    pub program: Option<&'a CStr>,
    /// Nobody looks at this program's stderr: what there is to say goes to the system's log.
    pub silent: bool,
}

/// An option of `flightline drain`, and what it is called in the environment and in the machine's settings.
pub struct Choice {
    option: &'static CStr,
    variable: &'static CStr,
    name: &'static [u8],
}

const fn choice(option: &'static CStr, variable: &'static CStr, name: &'static str) -> Choice {
    Choice { option, variable, name: name.as_bytes() }
}

/// What can be asked for, in the order of [`Settings::options`].
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
/// Index of the output and of the repository in [`OPTIONS`].
pub const OUTPUT: usize = 0;
/// See [`OUTPUT`].
pub const REPOSITORY: usize = 1;
/// The first option that only a repository has, and the one after the last.
const OF_REPOSITORY: [usize; 2] = [5, 9];

impl<'a> Settings<'a> {
    /// Options by `value`, which knows where they stand; `None` if there is nowhere to record to. A repository goes before a file.
    fn by(value: impl Fn(&Choice) -> Option<&'a CStr>, silent: bool) -> Option<Settings<'a>> {
        let mut options = [None; OPTIONS.len()];
        for (to, option) in options.iter_mut().zip(&OPTIONS) {
            *to = value(option).filter(|value| !value.is_empty());
        }
        let settings = Settings { options, program: None, silent }.sorted();
        (settings.target().is_some()).then_some(settings)
    }

    /// Without what cannot be together.
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

    /// Where the recording goes.
    pub fn target(&self) -> Option<&'a CStr> {
        self.options
            .get(REPOSITORY)
            .copied()
            .flatten()
            .or_else(|| self.options.get(OUTPUT).copied().flatten())
    }
}

type Path = Text<1024>;

/// Session directory of a helper that is ready.
pub type Session = Text<256>;

/// Starts a recording with the settings of the environment: the object was preloaded by hand. `true` if any was asked for.
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
    // The recorder reads them in each process's own environment.
    if let Some(labels) = settings.options.last_mut() {
        *labels = None;
    }
    start(&settings);
    true
}

/// Starts a recording if the machine's settings want this program to be recorded; or joins the service they name.
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
            b": no recorder process (error ",
            number.bytes(),
            b"); set FLIGHTLINE_BIN to the flightline program",
        ]);
    }
}

/// Starts the helper and waits for its session, at most `most_ms`.
///
/// # Errors
/// An errno: `ENOENT` without a `flightline` program, `ETIMEDOUT` when it was not ready in time, `EPROTO` when it gave up
/// (it has said why on stderr).
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
    // One entry stays null: the end.
    for (to, word) in argv.iter_mut().zip(words) {
        *to = word.as_ptr();
    }
    let reader = detach(program, &argv, Ready::Told, settings.silent)?;
    read_session(&reader, most_ms)
}

/// What becomes of the descriptor with number 3 in the process that is started.
#[derive(Clone, Copy)]
enum Ready {
    /// It is kept and told when all is ready.
    Told,
    /// It closes when the program has begun.
    Begun,
}

/// Starts a program that is nobody's child and has nothing of ours open but stderr. What comes from the other end of its
/// descriptor with number 3, or `!` if it cannot be run.
fn detach(program: &CStr, argv: &[*const c_char], ready: Ready, silent: bool) -> Result<Fd, c_int> {
    let (reader, writer) = pipe()?;
    let mut space = Stripped::new();
    // SAFETY: the environment of this process, which outlives the call.
    let envp = unsafe { space.strip(environment()) };
    // Signals stay out of the children, which share nothing but their copies of our handlers.
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
    // SAFETY: both were just made, nobody else owns them.
    Ok(unsafe { (Fd::own(fds[0]), Fd::own(fds[1])) })
}

/// A copy of this process with the given exit signal; 0 in the copy.
fn fork(exit_signal: usize) -> Result<usize, c_int> {
    // SAFETY: no flags, no pointers: a plain fork. The copy makes raw system calls only.
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

/// In the grandchild: a session of its own, no descriptor but stderr and the pipe, nothing blocked.
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
        // Above the low numbers first, so that nothing needed is overwritten.
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
        // The arrays are null-terminated and live here.
        let _ = os::syscall(libc::SYS_execve, args);
        let text = b"!\n";
        let _ = os::syscall(libc::SYS_write, [READY, text.as_ptr() as usize, text.len(), 0, 0, 0]);
    }
    exit(127)
}

/// One line: the directory, or `!` and why not.
fn read_session(reader: &Fd, most_ms: u64) -> Result<Session, c_int> {
    let mut line = [0u8; 255];
    let mut len = 0;
    let end = flightline_in_signal::clock::monotonic_ns() + most_ms * 1_000_000;
    while !line.contains(&b'\n') {
        let left = end.saturating_sub(flightline_in_signal::clock::monotonic_ns());
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
        // A drain that gives up says why on stderr itself.
        return Err(if why.is_empty() { libc::ENOEXEC } else { libc::EPROTO });
    }
    let mut dir = Session::new();
    dir.put(text);
    Ok(dir)
}

// ----- where the program is -------------------------------------------------------------------------------------

/// Named by the user; beside this object (a build directory), in `../bin` of it (a package); on `PATH`.
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

/// Directory that this object was loaded from.
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

/// Adds a variable to this process's environment, as in that of its children, in place of one of the same name. Not by
/// `setenv`, which allocates.
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
