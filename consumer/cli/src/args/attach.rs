//! Options of `flightline record -p`.

use clap::Args;

use crate::args::help;

/// Running processes to record.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// Record a running process and its children: PID, program, systemd unit or container id; repeatable
    #[arg(short, long, value_name = "PID|NAME", display_order = 3)]
    pub pid: Vec<String>,
    /// With -p: record processes in standby (`record --dormant`) from outside, too, for example if all their
    /// threads sleep and they accept no command
    #[arg(long, requires = "pid", help_heading = help::TARGETS)]
    pub outside: bool,
    /// PID of the agent that started this recorder; the recorder ends with it
    #[arg(long, hide = true, requires = "pid", value_name = "PID")]
    pub agent: Option<i32>,
}

impl AttachArgs {
    /// Requests SIGTERM for this process when its agent ends.
    pub fn end_with_agent(&self) {
        let Some(agent) = self.agent else { return };
        let told = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
        if told.is_ok() && nix::unistd::getppid().as_raw() != agent {
            // The agent has already ended.
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM);
        }
    }
}
