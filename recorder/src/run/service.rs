//! Lets a profiling service record the own process on request: `Service::at(…)…join()?`.

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

/// A profiling service (`flightline serve`), with the settings for this process.
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
    /// Returns the service at this address, such as `http://127.0.0.1:7070`.
    pub fn at(url: impl Into<String>) -> Service {
        Service { options: vec!["--join".into(), url.into()], labels: Vec::new(), program: None }
    }

    /// Sets the file whose first line is the service's token.
    pub fn token_file(self, path: impl Into<PathBuf>) -> Service {
        self.file("--token-file", path.into())
    }

    /// Sets the CA certificates (PEM) for the service's certificate, instead of the system's.
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Service {
        self.file("--ca-file", path.into())
    }

    /// Adds a label to those that the recorder detects; see [`crate::settings::labels`].
    pub fn label(mut self, name: &str, value: &str) -> Service {
        self.labels.push(format!("{name}={value}"));
        self
    }

    /// Also records CPU time continuously, at this number of samples per second, 1 to 1,000.
    pub fn continuous(mut self, rate: f64) -> Service {
        self.options.extend(["--rate".into(), rate.to_string()]);
        self
    }

    /// Sets the `flightline` program. Default: `FLIGHTLINE_BIN`, then next to this program, then on `PATH`.
    pub fn helper(mut self, program: impl Into<PathBuf>) -> Service {
        self.program = Some(program.into());
        self
    }

    fn file(mut self, option: &str, path: PathBuf) -> Service {
        // The agent cannot use a path that is not UTF-8, and reports that.
        self.options.extend([option.into(), path.to_string_lossy().into_owned()]);
        self
    }

    /// Joins the service until this process ends. Starts an agent process, which is not a child of this
    /// process and handles the connection to the service. In this process, a thread checks for new threads
    /// every 100 ms, and every 10 ms during a recording.
    ///
    /// # Errors
    /// A label is invalid; there is no `flightline` program; the process has already joined, or has
    /// `libflightline.so` loaded, which joins by `FLIGHTLINE_JOIN` or `flightline_join`.
    pub fn join(self) -> Result<(), Error> {
        for label in &self.labels {
            let checked = labels::parse(label);
            checked.map_err(|problem| Error::Setting { name: "label", problem })?;
        }
        let none = || {
            io::Error::new(io::ErrorKind::NotFound, "not found; set FLIGHTLINE_BIN to the path of flightline")
        };
        let doing = || "start an agent of the profiling service".to_owned();
        let program = guard::find_program(self.program.as_deref());
        let program = program.ok_or_else(|| Error::Io { doing: doing(), source: none() })?;
        if guard::library().is_some() || JOINED.swap(true, Ordering::Relaxed) {
            let source = io::Error::other(
                "it has already joined, or libflightline.so is loaded, which joins with FLIGHTLINE_JOIN",
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
