//! Metrics of the recorder for Prometheus: a text file that is replaced atomically, or an HTTP endpoint.

mod endpoint;
mod text;

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

pub use text::Text;

use crate::error::Error;
use endpoint::Endpoint;

/// Time between two updates of the file, ns.
const WRITE_NS: u64 = 10_000_000_000;

/// The destinations of the recorder's metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpositionSettings {
    /// A file in Prometheus' text format, written every ten seconds.
    pub file: Option<PathBuf>,
    /// An address that serves them by HTTP.
    pub listen: Option<SocketAddr>,
}

/// Publishes the metrics.
pub struct Exposition {
    file: Option<PathBuf>,
    endpoint: Option<Endpoint>,
    written_ns: u64,
    failed: bool,
}

impl Exposition {
    /// Opens the destinations.
    ///
    /// # Errors
    /// The address is not available.
    pub fn open(places: &ExpositionSettings) -> Result<Exposition, Error> {
        let endpoint = places.listen.map(|address| {
            Endpoint::open(address)
                .map_err(|e| Error::Io { doing: format!("listen at {address} for metrics"), source: e })
        });
        let endpoint = endpoint.transpose()?;
        Ok(Exposition { file: places.file.clone(), endpoint, written_ns: 0, failed: false })
    }

    /// Returns true if the text is due.
    pub fn due(&self, now_ns: u64) -> bool {
        let file = self.file.is_some() && now_ns.saturating_sub(self.written_ns) >= WRITE_NS;
        file || self.endpoint.is_some()
    }

    /// Publishes the text; returns a message for the user, once.
    pub fn give(&mut self, text: &str, now_ns: u64, must: bool) -> Option<String> {
        if let Some(endpoint) = &self.endpoint {
            endpoint.give(text);
        }
        let path = self.file.as_ref()?;
        if !must && now_ns.saturating_sub(self.written_ns) < WRITE_NS {
            return None;
        }
        self.written_ns = now_ns;
        let failed = replace(path, text).err();
        let news = failed.is_some() != self.failed;
        self.failed = failed.is_some();
        failed.filter(|_| news).map(|error| {
            format!("cannot write metrics to {}: {}", path.display(), crate::error::plain(&error))
        })
    }
}

/// Replaces a file atomically, so that a reader sees either the old or the new text.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let result = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    if result.is_err() {
        let _ = fs::remove_file(&new);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_replaced_and_failure_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let places = ExpositionSettings { file: Some(dir.path().join("x.prom")), listen: None };
        let mut out = Exposition::open(&places).unwrap();
        assert!(out.due(WRITE_NS));
        assert_eq!(out.give("a 1\n", WRITE_NS, false), None);
        assert_eq!(out.give("a 2\n", WRITE_NS + 1, false), None);
        let read = || fs::read_to_string(dir.path().join("x.prom")).unwrap();
        assert_eq!(read(), "a 1\n", "not yet");
        assert_eq!(out.give("a 3\n", WRITE_NS + 2, true), None);
        assert_eq!(read(), "a 3\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        drop(fs::remove_dir_all(dir.path()));
        let failures: Vec<bool> = (3..6).map(|i| out.give("b 1\n", i * WRITE_NS, false).is_some()).collect();
        assert_eq!(failures, [true, false, false]);
    }
}
