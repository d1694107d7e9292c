//! Machine-wide use: `/etc/ld.so.preload` names the object, so that every program loads it, and the programs
//! that [`CONFIG`] allows are recorded. All other programs, and programs with raised privileges, are left
//! alone silently.
//!
//! A program with more rights than its caller is recognized before any of its environment is read. The
//! recorder's own processes are never recorded.

use core::ffi::CStr;

use flightline_capture::os;

/// Settings, one `name = value` a line; `allow` lists programs.
const CONFIG: &CStr = c"/etc/flightline.conf";
/// Objects that the loader loads into every program.
const LD_SO_PRELOAD: &CStr = c"/etc/ld.so.preload";
/// Lower user ids belong to the system (login.defs: UID_MIN).
const FIRST_USER: u32 = 1000;
/// Maximum size of the configuration, bytes.
const MAX_CONFIG: usize = 8192;

/// Returns true if this process has privileges that its caller lacks: then data that the caller controls must
/// not be trusted.
pub fn secure() -> bool {
    os::auxval(libc::AT_SECURE) != 0
}

/// Returns true if the loader loads this object into every program of the machine.
pub fn wide() -> bool {
    let mut text = [0u8; 2048];
    let Ok(file) = os::open(LD_SO_PRELOAD, libc::O_RDONLY, 0) else { return false };
    let len = os::read_full(&file, &mut text);
    text.get(..len).is_some_and(|text| text.windows(10).any(|part| part == b"flightline"))
}

/// Path of the program of this process.
pub struct Program {
    path: [u8; 1024],
    len: usize,
}

impl Program {
    /// Reads the path from `/proc`.
    pub fn own() -> Option<Program> {
        let mut path = [0; 1024];
        let len = os::readlink(c"/proc/self/exe", &mut path).ok()?;
        (len < path.len()).then_some(Program { path, len })
    }

    fn path(&self) -> &[u8] {
        self.path.get(..self.len).unwrap_or_default()
    }

    fn name(&self) -> &[u8] {
        self.path().rsplit(|b| *b == b'/').next().unwrap_or_default()
    }

    /// Returns true if this is the recorder, which never records itself: each would start another one.
    pub fn is_recorder(&self) -> bool {
        self.name() == b"flightline"
    }

    /// Returns how an entry of `list` matches this program: by a name, by a path, or by the start of one with
    /// `*`.
    pub fn listed(&self, list: &[u8]) -> Option<Listed> {
        let mut found = None;
        for entry in list.split(|b| matches!(b, b',' | b' ' | b'\t')).filter(|entry| !entry.is_empty()) {
            let whole = if entry.contains(&b'/') { self.path() } else { self.name() };
            match entry.strip_suffix(b"*") {
                Some(start) if whole.starts_with(start) => found = Some(Listed::ByPattern),
                None if whole == entry => return Some(Listed::ByName),
                _ => {}
            }
        }
        found
    }
}

/// How a program matched a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// By its full name or path.
    ByName,
    /// By a pattern with `*`.
    ByPattern,
}

/// The machine's settings.
pub struct Config {
    text: [u8; MAX_CONFIG],
}

impl Config {
    /// Reads the settings. The file must belong to root; a file that is too long is ignored.
    pub fn read() -> Option<Config> {
        let file = os::open(CONFIG, libc::O_RDONLY, 0).ok()?;
        let meta = os::stat(&file).ok()?;
        if meta.st_uid != 0 || meta.st_mode & 0o022 != 0 || meta.st_mode & libc::S_IFMT != libc::S_IFREG {
            return None;
        }
        let mut config = Config { text: [0; MAX_CONFIG] };
        let len = os::read_full(&file, &mut config.text);
        if len >= MAX_CONFIG {
            return None;
        }
        // Values become C strings in place.
        let mut end = true;
        for byte in config.text.iter_mut().rev() {
            match byte {
                b'\n' => (*byte, end) = (0, true),
                b' ' | b'\t' | b'\r' if end => *byte = 0,
                0 => end = true,
                _ => end = false,
            }
        }
        Some(config)
    }

    /// Returns the values of `name`, in order.
    fn values(&self, name: &'static [u8]) -> impl Iterator<Item = &CStr> {
        let lines = self.text.split_inclusive(|b| *b == 0);
        lines.filter_map(move |line| {
            let equals = line.iter().position(|b| *b == b'=')?;
            let (left, right) = (line.get(..equals)?, line.get(equals + 1..)?);
            let start = right.iter().position(|b| !matches!(b, b' ' | b'\t'))?;
            (left.trim_ascii() == name).then(|| CStr::from_bytes_until_nul(right.get(start..)?).ok())?
        })
    }

    /// Returns the first value of `name`.
    pub fn value(&self, name: &'static [u8]) -> Option<&CStr> {
        self.values(name).find(|value| !value.is_empty())
    }

    /// Returns true if `program` must be recorded: it is listed, and for the system's users listed by its own
    /// name.
    pub fn allows(&self, program: &Program) -> bool {
        let listed = self.values(b"allow").filter_map(|list| program.listed(list.to_bytes()));
        let user = os::euid() >= FIRST_USER;
        let mut allowed = listed.filter(|how| *how == Listed::ByName || user);
        // The end of the first process is the end of the machine.
        !program.is_recorder() && allowed.next().is_some() && flightline_in_signal::os::sys::getpid() != 1
    }
}
