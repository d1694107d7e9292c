//! Items for tasks of tokio.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::item::Item;
use super::stream::Stream;

/// A [`Stream`] for asynchronous programs. It is a `futures_core::Stream` of the same items.
#[derive(Debug)]
pub struct Async {
    stream: Stream,
    /// `None` for a file, which is always ready.
    ready: Option<AsyncFd<Registered>>,
}

/// A duplicate of the descriptor, because epoll accepts each number once.
#[derive(Debug)]
struct Registered(OwnedFd);

impl AsRawFd for Registered {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Async {
    /// Follows `stream` in the runtime of the caller.
    ///
    /// # Errors
    /// The process has no descriptor left.
    ///
    /// # Panics
    /// The caller is not in a runtime, or the runtime has I/O disabled.
    pub fn new(stream: Stream) -> io::Result<Self> {
        let own = Registered(stream.as_fd().try_clone_to_owned()?);
        // SAFETY: `own` owns its descriptor, which stays open and unchanged while it is registered.
        #[allow(unsafe_code)]
        let registered = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) };
        let ready = match registered.map_err(io::Error::from) {
            Ok(ready) => Some(ready),
            // epoll does not support files.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(error) => return Err(error),
        };
        Ok(Self { stream, ready })
    }

    /// Returns the stream, to poll it or to wait for it directly.
    pub fn get_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Returns the stream for use outside the runtime.
    pub fn into_inner(self) -> Stream {
        self.stream
    }

    /// Returns the next item; `None` at the end of the stream. Dropping the future loses no item.
    pub async fn next(&mut self) -> Option<io::Result<Item>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_item(context)).await
    }

    fn poll_item(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Item>>> {
        let Self { stream, ready } = &mut *self;
        loop {
            if let Poll::Ready(item) = stream.poll() {
                return Poll::Ready(item);
            }
            let Some(ready) = ready else {
                context.waker().wake_by_ref();
                return Poll::Pending;
            };
            let mut guard = std::task::ready!(ready.poll_read_ready(context))?;
            // Bytes may have arrived after the poll above.
            match stream.poll() {
                Poll::Ready(item) => return Poll::Ready(item),
                // The poll stopped at its limit; more input is available.
                Poll::Pending if stream.wait(Some(std::time::Duration::ZERO))? => {}
                Poll::Pending => guard.clear_ready(),
            }
        }
    }
}

impl futures_core::Stream for Async {
    type Item = io::Result<Item>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_item(context)
    }
}
