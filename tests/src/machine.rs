//! Tests of machine-wide use, in a mount namespace that is invisible to other processes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::controlled::LIMIT;
use crate::run::run;
use crate::{skip, victim};

/// Runs a shell as on a machine whose `/etc/ld.so.preload` names our library and whose `/etc/flightline.conf`
/// has these settings. `None` if that is not permitted.
#[track_caller]
pub fn shell(folder: &Path, settings: &str, script: &str) -> Option<Command> {
    // SAFETY: no memory is touched.
    let root = unsafe { libc::geteuid() } == 0;
    let own = if root { &["--mount"][..] } else { &["--map-root-user", "--mount"] };
    if !run(Command::new("unshare").args(own).arg("true"), LIMIT).status.success() {
        skip::skip("no mount namespaces here: machine-wide use was not tried");
        return None;
    }
    let library = victim::flightline().with_file_name("libflightline.so");
    let conf = format!("program = {}\n{settings}\n", victim::flightline().display());
    fs::write(folder.join("conf"), conf).unwrap();
    fs::write(folder.join("preload"), format!("{}\n", library.display())).unwrap();
    let script = format!(
        "cp -a /etc etc && cp preload etc/ld.so.preload && cp conf etc/flightline.conf && \
         chmod 644 etc/flightline.conf && mount --bind etc /etc && {script}"
    );
    let mut command = Command::new("unshare");
    command.args(own).args(["sh", "-c", &script]).current_dir(folder);
    Some(command)
}
