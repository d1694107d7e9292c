//! The guard of a recording.

use std::fmt;

use crate::Error;

/// A recording of this process. When it is dropped, it ends as with [`Recording::stop`], and errors are ignored.
#[must_use = "dropping it ends the recording"]
pub struct Recording(pub(crate) flightline_recorder::Recording);

impl Recording {
    /// Writes everything recorded so far to the output, and waits for it.
    ///
    /// # Errors
    /// [`Error::Io`] with [`TimedOut`](std::io::ErrorKind::TimedOut): the recorder did not do it within ten
    /// seconds.
    pub fn flush(&self) -> Result<(), Error> {
        self.0.flush().map_err(Error::from_recorder)
    }

    /// Pauses recording until [`Recording::resume`].
    ///
    /// # Errors
    /// [`Error::Io`]: the recorder does not answer.
    pub fn pause(&self) -> Result<(), Error> {
        self.0.pause().map_err(Error::from_recorder)
    }

    /// Resumes recording after [`Recording::pause`].
    ///
    /// # Errors
    /// [`Error::Io`]: the recorder does not answer.
    pub fn resume(&self) -> Result<(), Error> {
        self.0.resume().map_err(Error::from_recorder)
    }

    /// Ends the recording and completes the output.
    ///
    /// # Errors
    /// [`Error::Io`] with [`TimedOut`](std::io::ErrorKind::TimedOut): the recorder did not complete it within ten seconds.
    pub fn stop(self) -> Result<(), Error> {
        self.0.stop().map_err(Error::from_recorder)
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("session", &self.0.session()).finish_non_exhaustive()
    }
}
