//! The queue of requests and the thread that sends them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::retry::deliver;
use super::{Request, Settings, Target, Transport};

/// Messages stored until the caller fetches them. Further failures only appear in the report's numbers.
const MOST_MESSAGES: usize = 16;

/// Numbers of requests, samples and spans that were sent, rejected or lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that the receiver accepted.
    pub requests: u64,
    /// Samples and spans in them.
    pub sent: u64,
    /// Profiles or spans of the accepted requests that the receiver rejected.
    pub rejected: u64,
    /// Attempts after the first one of each request.
    pub retries: u64,
    /// Samples and spans that could not be delivered.
    pub failed: u64,
    /// Samples and spans that were dropped because the queue was full or the time at the end was over.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Request>,
    bytes: usize,
    closed: bool,
    /// The thread has ended.
    over: bool,
    /// Deadline for sending.
    end: Option<Instant>,
    report: Report,
    messages: Vec<String>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Sends requests in its own thread.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
    most: usize,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    /// Starts the thread. It connects only when there is something to send.
    ///
    /// # Errors
    /// The address or a header is invalid, support for the protocol was not built in, or the thread
    /// cannot be started.
    pub fn new(target: &Target, settings: Settings) -> Result<Self, String> {
        let mut transport = target.open(&settings)?;
        let shared = Arc::new(Shared::default());
        let (of_thread, most) = (shared.clone(), settings.queue);
        let work = move || work(&of_thread, &mut *transport, &settings);
        let thread = std::thread::Builder::new().name("export".into()).spawn(work);
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self { shared, most, thread: Some(thread) })
    }

    /// Queues a request without waiting. Returns false, and counts the request as dropped, if the queue
    /// is full. An empty queue accepts a request of any size.
    pub fn offer(&self, request: Request) -> bool {
        let mut state = self.shared.lock();
        let fits = state.has_room(request.body.len(), self.most);
        if fits {
            state.push(request)
        } else {
            state.report.dropped += request.count
        }
        self.shared.changed.notify_all();
        fits
    }

    /// Queues a request; waits until the queue has room.
    pub fn put(&self, request: Request) {
        let mut state = self.shared.lock();
        while !state.has_room(request.body.len(), self.most) {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.push(request);
        self.shared.changed.notify_all();
    }

    /// Returns the errors since the last call.
    pub fn messages(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().messages)
    }

    /// Returns the numbers so far.
    pub fn report(&self) -> Report {
        self.shared.lock().report.clone()
    }

    /// Waits until all requests are sent, but at most for `limit`, and drops the rest. No request may be
    /// queued afterwards.
    pub fn end(&self, limit: Duration) {
        let mut state = self.close(limit);
        // The current attempt may exceed the limit by its own timeout.
        let most = Instant::now().checked_add(limit.saturating_add(Duration::from_secs(1)));
        while !state.over && most.is_none_or(|most| Instant::now() < most) {
            let wait = Duration::from_millis(100);
            state = self.shared.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn close(&self, limit: Duration) -> MutexGuard<'_, State> {
        let mut state = self.shared.lock();
        state.closed = true;
        state.end = Instant::now().checked_add(limit);
        self.shared.changed.notify_all();
        state
    }

    /// Like [`Self::end`], and returns the numbers and the remaining errors.
    pub fn finish(mut self, limit: Duration) -> (Report, Vec<String>) {
        drop(self.close(limit));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        (self.report(), self.messages())
    }
}

impl State {
    fn has_room(&self, bytes: usize, most: usize) -> bool {
        self.waiting.is_empty() || self.bytes.saturating_add(bytes) <= most
    }

    fn push(&mut self, request: Request) {
        self.bytes += request.body.len();
        self.waiting.push_back(request);
    }

    fn add_message(&mut self, message: String) {
        if self.messages.len() < MOST_MESSAGES && !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }

    fn left(&self) -> Duration {
        self.end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next request; `None` at the end.
    fn take(&self) -> Option<Request> {
        let mut state = self.lock();
        loop {
            if state.left().is_zero() {
                let dropped: u64 = state.waiting.drain(..).map(|request| request.count).sum();
                state.report.dropped += dropped;
            }
            if let Some(request) = state.waiting.pop_front() {
                state.bytes -= request.body.len();
                self.changed.notify_all();
                return Some(request);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for `time`, or until the deadline.
    fn pause(&self, time: Duration) {
        let begun = Instant::now();
        let mut state = self.lock();
        loop {
            let left = time.saturating_sub(begun.elapsed());
            if left.is_zero() || state.left() <= left {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Sends requests until the queue is closed and empty.
fn work(shared: &Shared, transport: &mut dyn Transport, settings: &Settings) {
    while let Some(request) = shared.take() {
        let (result, tries) =
            deliver(transport, &request, settings, || shared.lock().left(), |time| shared.pause(time));
        let mut state = shared.lock();
        state.report.retries += tries - 1;
        match result {
            Ok(accepted) => {
                state.report.requests += 1;
                state.report.sent += request.count;
                state.report.rejected += accepted.rejected;
                match (accepted.rejected, accepted.message.as_str()) {
                    (0, "") => {}
                    (0, message) => state.add_message(format!("the receiver warns: {message}")),
                    (rejected, message) => {
                        state.add_message(format!(
                            "the receiver accepted only a part, {rejected} were rejected: {message}"
                        ));
                    }
                }
            }
            Err(failure) => {
                state.report.failed += request.count;
                let times = if tries > 1 { format!(" ({tries} tries)") } else { String::new() };
                state.add_message(format!("{}{times}", failure.message));
            }
        }
    }
    shared.lock().over = true;
    shared.changed.notify_all();
}
