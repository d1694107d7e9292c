//! Has a profiling service record the own process whenever it is asked to: `Service::at(…)…join()?`.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{Error, run::guard, settings::labels};

static JOINED: AtomicBool = AtomicBool::new(false);

/// A profiling service (`flightline serve`), and what it is to know of this process.
///
/// ```no_run
/// use flightline_recorder::Service;
/// Service::at("http://127.0.0.1:7070").label("zone", "eu-1").continuous(19.0).join()?;
/// # Ok::<(), flightline_recorder::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Service {
    options: Vec<String>,
    labels: Vec<String>,
    program: Option<PathBuf>,
}

impl Service {
    /// The service at this address, as `http://127.0.0.1:7070`.
    pub fn at(url: impl Into<String>) -> Service {
        Service { options: vec!["--join".into(), url.into()], labels: Vec::new(), program: None }
    }

    /// File whose first line is the service's token.
    pub fn token_file(self, path: impl Into<PathBuf>) -> Service {
        self.file("--token-file", path.into())
    }

    /// Certificates (PEM) that the service's is signed by, instead of those that are always believed.
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Service {
        self.file("--ca-file", path.into())
    }

    /// Adds a label to those that the recorder finds; see [`crate::settings::labels`].
    pub fn label(mut self, name: &str, value: &str) -> Service {
        self.labels.push(format!("{name}={value}"));
        self
    }

    /// Record CPU time all the time, too, at so many samples a second, 1 to 1,000.
    pub fn continuous(mut self, rate: f64) -> Service {
        self.options.extend(["--rate".into(), rate.to_string()]);
        self
    }

    /// The `flightline` program. Default: `FLIGHTLINE_BIN`, else next to this program, else on `PATH`.
    pub fn helper(mut self, program: impl Into<PathBuf>) -> Service {
        self.program = Some(program.into());
        self
    }

    fn file(mut self, option: &str, path: PathBuf) -> Service {
        // A path that is no UTF-8 cannot be told by the agent's words either; it says so.
        self.options.extend([option.into(), path.to_string_lossy().into_owned()]);
        self
    }

    /// From now until this process ends. An agent process is started, which is nobody's child; whether the service is there is its affair.
    /// Here a thread looks for new threads, every 100 ms, and every 10 ms while somebody records.
    ///
    /// # Errors
    /// A label that is none; no `flightline` program; a process that has joined, or has `libflightline.so` loaded, whose way is
    /// `FLIGHTLINE_JOIN` or `flightline_join`.
    pub fn join(self) -> Result<(), Error> {
        for label in &self.labels {
            let checked = labels::parse(label);
            checked.map_err(|problem| Error::Setting { name: "label", problem })?;
        }
        let none = || io::Error::new(io::ErrorKind::NotFound, "set FLIGHTLINE_BIN to the flightline program");
        let doing = || "start an agent of the profiling service".to_owned();
        let program = guard::find_program(self.program.as_deref());
        let program = program.ok_or_else(|| Error::Io { doing: doing(), source: none() })?;
        if guard::library().is_some() || JOINED.swap(true, Ordering::Relaxed) {
            let source = io::Error::other(
                "it has joined, or libflightline.so is loaded, which joins by FLIGHTLINE_JOIN",
            );
            return Err(Error::Io { doing: doing(), source });
        }
        flightline_capture::wait_for_commands();
        guard::watch_threads(Arc::default()).map_err(|source| Error::Io { doing: doing(), source })?;
        let mut command = guard::nobodys_child(&program);
        command.arg("agent").args(&self.options).args(["--pid", &std::process::id().to_string()]);
        for label in &self.labels {
            command.args(["--label", label]);
        }
        command.status().map_err(|source| Error::Io { doing: doing(), source })?;
        Ok(())
    }
}
