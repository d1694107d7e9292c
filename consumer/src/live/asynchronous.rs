//! The items for tasks of tokio.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::item::Item;
use super::stream::Stream;

/// A [`Stream`] for asynchronous programs: a `futures_core::Stream` of the same items.
#[derive(Debug)]
pub struct Async {
    stream: Stream,
    /// `None`: a file, which is always ready.
    ready: Option<AsyncFd<Registered>>,
}

/// The same open file by a number of its own: epoll has each number once.
#[derive(Debug)]
struct Registered(OwnedFd);

impl AsRawFd for Registered {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Async {
    /// Follows `stream` in the runtime that this is called in.
    ///
    /// # Errors
    /// There is no descriptor left for it.
    ///
    /// # Panics
    /// There is no runtime, or one without input and output.
    pub fn new(stream: Stream) -> io::Result<Self> {
        let own = Registered(stream.as_fd().try_clone_to_owned()?);
        // SAFETY: the descriptor is its own, is open as long as it is registered, and never another one.
        #[allow(unsafe_code)]
        let registered = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) };
        let ready = match registered.map_err(io::Error::from) {
            Ok(ready) => Some(ready),
            // What epoll says of files.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(error) => return Err(error),
        };
        Ok(Self { stream, ready })
    }

    /// The stream, to poll it or to wait for it in between.
    pub fn get_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// The stream, outside the runtime again.
    pub fn into_inner(self) -> Stream {
        self.stream
    }

    /// The next item; `None` when the stream is over. Nothing is lost if it is not waited for to the end.
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
            // There may be bytes that came behind the look above.
            match stream.poll() {
                Poll::Ready(item) => return Poll::Ready(item),
                // It stopped by itself: there is more.
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
