//! Finds the session that a process belongs to, from its memory map.

use std::{
    cell::OnceCell,
    collections::HashMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use flightline_in_signal::{command::LISTENING, layout::SESSION_FILE};

use super::client::ask_within;
use crate::{
    error::Error,
    session::{self, SessionClient},
};

/// The state of a process with respect to recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Recorded by the session in this directory.
    Recorded(PathBuf),
    /// Not recorded, but waiting for the command to join.
    Waiting,
    /// The recorder is loaded but accepts no commands: started without `FLIGHTLINE=dormant`, or a Go program.
    Deaf,
    /// The recorder is not loaded.
    NotLoaded,
}

/// A process and its condition.
#[derive(Clone, Debug)]
pub struct TargetProcess {
    /// The PID, as given by the caller.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its user and group.
    pub owner: (u32, u32),
    /// Its state with respect to recording.
    pub condition: Condition,
}

/// Examines a process. The PID may also be that of the drain itself.
///
/// # Errors
/// There is no such process, or access to it is not permitted.
pub fn find(pid: u32) -> Result<TargetProcess, Error> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let no_process = || Error::Unavailable { name: "pid", problem: format!("process {pid} does not exist") };
    let meta = fs::metadata(&proc).map_err(|_| no_process())?;
    let name = fs::read_to_string(proc.join("comm")).map_err(|_| no_process())?.trim_end().to_owned();
    let maps = fs::read_to_string(proc.join("maps")).map_err(|e| match e.kind() {
        io::ErrorKind::PermissionDenied => Error::Unavailable {
            name: "pid",
            problem: refused(&name, pid, meta.uid(), nix::unistd::geteuid().as_raw()),
        },
        _ => no_process(),
    })?;
    let mut condition = condition_from_maps(&maps, &|path| is_open(path));
    if condition == Condition::NotLoaded
        && let Some(dir) = session::find_by_drain(pid)
    {
        condition = Condition::Recorded(dir);
    }
    Ok(TargetProcess { pid, name, owner: (meta.uid(), meta.gid()), condition })
}

/// Finds the recordings of processes, including those recorded from outside, whose memory maps do not show
/// it. Queries the recorders of this machine at most once.
#[derive(Default)]
pub struct Finder {
    sessions: OnceCell<HashMap<u32, PathBuf>>,
}

impl Finder {
    /// Examines a process.
    ///
    /// # Errors
    /// As for [`find`].
    pub fn find(&self, pid: u32) -> Result<TargetProcess, Error> {
        let found = find(pid)?;
        if !matches!(found.condition, Condition::NotLoaded | Condition::Deaf) {
            return Ok(found);
        }
        match self.sessions.get_or_init(recorded_processes).get(&pid) {
            Some(session) => Ok(TargetProcess { condition: Condition::Recorded(session.clone()), ..found }),
            None => Ok(found),
        }
    }
}

/// Returns the processes that the recorders of this machine record, with the sessions of these recorders.
fn recorded_processes() -> HashMap<u32, PathBuf> {
    let mut found = HashMap::new();
    let sessions =
        session::on_machine().into_iter().filter(|session| session.drain.is_some_and(|pid| pid != 0));
    for session in sessions {
        let status = ask_within(&session.dir, "status", PATIENCE).unwrap_or_default();
        let processes = status["processes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let pids = processes.iter().filter_map(|process| u32::try_from(process["pid"].as_u64()?).ok());
        pids.for_each(|pid| {
            found.entry(pid).or_insert_with(|| session.dir.clone());
        });
    }
    found
}

/// Time limit for an answer of a recorder.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the message that access to a process is not permitted, with the users who have access.
fn refused(name: &str, pid: u32, owner: u32, us: u32) -> String {
    match us {
        0 => format!(
            "{name} ({pid}): /proc/{pid}/maps: permission denied, even for root; in a container or sandbox, add CAP_SYS_PTRACE"
        ),
        us if us == owner => format!(
            "{name} ({pid}): /proc/{pid}/maps: permission denied: the process is not accessible to other \
             processes of its user (set-user-id or prctl); run flightline as root"
        ),
        _ => format!("{name} ({pid}) belongs to user {owner}; run flightline as that user or as root"),
    }
}

fn condition_from_maps(maps: &str, open: &dyn Fn(&Path) -> bool) -> Condition {
    let (mut loaded, mut listens) = (false, false);
    // By the name of anonymous memory or, where the kernel lacks this, of a memfd.
    let names = [format!("[anon:{LISTENING}]"), format!("/memfd:{LISTENING} (deleted)")];
    for line in maps.lines() {
        listens |= names.iter().any(|name| line.ends_with(name));
        let Some(path) = line.find('/').map(|at| Path::new(&line[at..])) else { continue };
        let file = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        loaded |= file.starts_with("libflightline");
        let Some(dir) = path.parent().filter(|dir| session::is_named(dir)) else { continue };
        if file == SESSION_FILE && open(dir) {
            return Condition::Recorded(dir.to_owned());
        }
    }
    match (loaded, listens) {
        (_, true) => Condition::Waiting,
        (true, false) => Condition::Deaf,
        (false, false) => Condition::NotLoaded,
    }
}

/// Returns true if a session still records. If its drain has ended, its programs are asked to stop sampling.
fn is_open(dir: &Path) -> bool {
    let Ok(seen) = SessionClient::open(dir) else { return false };
    if seen.drain_ended() {
        seen.ask_stop();
    }
    !seen.stopped()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use flightline_in_signal::layout::SessionPage;

    use super::*;

    #[test]
    fn condition_is_read_from_the_memory_map() {
        let lib = "7f0000000000-7f0000001000 r-xp 00000000 fe:00 12 /opt/lib/libflightline.so\n";
        let listens = "7f0000100000-7f0000110000 rw-p 00000000 00:00 0 [anon:flightline listens]\n";
        let file = "7f0000100000-7f0000101000 ---p 00000000 00:01 9 /memfd:flightline listens (deleted)\n";
        let session =
            "7f0000200000-7f0000202000 rw-s 00000000 00:18 3 /dev/shm/flightline-0-0123456789abcdef/session";
        let other = "7f0000200000-7f0000202000 rw-s 00000000 00:18 3 /home/x/session\n";
        let dir = PathBuf::from("/dev/shm/flightline-0-0123456789abcdef");
        let table = [
            (String::new(), Condition::NotLoaded),
            (other.to_owned(), Condition::NotLoaded),
            (lib.to_owned(), Condition::Deaf),
            (format!("{lib}{listens}"), Condition::Waiting),
            (format!("{lib}{file}"), Condition::Waiting),
            (format!("{lib}{file}{session}\n"), Condition::Recorded(dir.clone())),
            (format!("{lib}{listens}{session} (deleted)\n"), Condition::Waiting),
            (format!("{lib}{session} (deleted)\n"), Condition::Deaf),
        ];
        for (maps, expected) in table {
            assert_eq!(condition_from_maps(&maps, &|d| d == dir), expected, "{maps}");
        }
        let over = condition_from_maps(&format!("{lib}{session}\n"), &|_| false);
        assert_eq!(over, Condition::Deaf, "a session that is over");
    }

    #[test]
    fn permission_error_names_the_permitted_users() {
        assert!(
            refused("init", 1, 0, 1000)
                .ends_with("belongs to user 0; run flightline as that user or as root")
        );
        for (us, instead) in [(0, "CAP_SYS_PTRACE"), (1000, "run flightline as root")] {
            let message = refused("x", 7, 1000, us);
            assert!(
                message.contains("/proc/7/maps: permission denied") && message.contains(instead),
                "{message}"
            );
            assert!(!message.contains("as that user"), "{message}");
        }
    }

    #[test]
    fn session_being_created_is_not_stopped() {
        let session = session::Session::create(&crate::Settings::default()).unwrap();
        let page =
            fs::OpenOptions::new().read(true).write(true).open(session.dir().join(SESSION_FILE)).unwrap();
        let mut complete = vec![0; size_of::<SessionPage>()];
        page.read_exact_at(&mut complete, 0).unwrap();
        page.write_all_at(&vec![0; complete.len()], 0).unwrap();
        assert!(!is_open(session.dir()));
        // The drain writes the format last, and does not write the request to stop.
        let stop = std::mem::offset_of!(SessionPage, stop);
        let rest = stop + size_of::<u32>();
        page.write_all_at(&complete[..stop], 0).unwrap();
        page.write_all_at(&complete[rest..], rest as u64).unwrap();
        assert!(is_open(session.dir()), "the search stopped a session that was being created");
    }

    #[test]
    fn missing_process_is_an_error() {
        let error = find(u32::MAX >> 1).unwrap_err().to_string();
        assert!(error.starts_with("pid: process"), "{error}");
        assert_eq!(find(std::process::id()).unwrap().condition, Condition::NotLoaded);
    }
}
