//! A profiling service that records this process on request.

use std::path::PathBuf;

use crate::Error;

/// A profiling service (`flightline serve`) that records this process when one of its users requests it.
///
/// ```no_run
/// flightline::Service::new("http://127.0.0.1:7070").label("zone", "eu-1").continuous(19.0).join()?;
/// # Ok::<(), flightline::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Service(flightline_recorder::Service);

impl Service {
    /// Returns the service at this address, such as `http://127.0.0.1:7070`.
    pub fn new(url: impl Into<String>) -> Service {
        Service(flightline_recorder::Service::at(url))
    }

    /// Sets the file whose first line is the service's token. Its path must be UTF-8.
    pub fn token_file(self, path: impl Into<PathBuf>) -> Service {
        Service(self.0.token_file(path))
    }

    /// Sets the file with CA certificates (PEM) for the service's certificate, instead of the system's. Its
    /// path must be UTF-8.
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Service {
        Service(self.0.ca_file(path))
    }

    /// Adds a label to those that the recorder detects: host, service, version and container. See
    /// [`Builder::label`](crate::Builder::label).
    pub fn label(self, name: &str, value: &str) -> Service {
        Service(self.0.label(name, value))
    }

    /// Also records CPU time continuously, with this number of samples per second, 1 to 1,000.
    pub fn continuous(self, rate: f64) -> Service {
        Service(self.0.continuous(rate))
    }

    /// Sets the `flightline` program. Default: `FLIGHTLINE_BIN`, then in the folder of this program, then on
    /// `PATH`.
    pub fn helper(self, program: impl Into<PathBuf>) -> Service {
        Service(self.0.helper(program))
    }

    /// Joins the service until this process ends. Starts `flightline agent`, which is not a child of this
    /// process and connects to the service as soon as that is reachable. A thread of this process finds new
    /// threads.
    ///
    /// # Errors
    /// [`Error::Setting`]: a label is malformed. [`Error::Io`]: there is no `flightline` program, the process
    /// has already joined, or `libflightline.so` is loaded, which joins by itself if `FLIGHTLINE_JOIN` is
    /// set.
    pub fn join(self) -> Result<(), Error> {
        self.0.join().map_err(Error::from_recorder)
    }
}
