//! Spans with a name and ids of their own.

use core::cell::{Cell, RefCell};
use core::marker::PhantomData;

use crate::abi::{LABELS_MAX, NAME_MAX, SpanEnd, mode};
use crate::clock;
use crate::context::{Entering, current, enter, exit};
use crate::ids::{RANDOM, SAMPLED, SpanContext};
use crate::labels::{LabelError, Labels, key_name};
use crate::record;
use crate::recorder::recorder;
use crate::tls::local;

/// Leaves what was entered when it is dropped. Guards may be dropped in any order; what was entered last and is still active counts.
#[must_use = "the span is left when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    token: u64,
    // The thread's own.
    not_send: PhantomData<*mut ()>,
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        exit(self.token);
    }
}

/// Enters a span that somebody else made, by its ids: OpenTelemetry, or a message's header. What a recorder tells of it are its
/// activations; its end is told by whoever made it.
///
/// ```
/// # use flightline_context::{SpanContext, current, enter_context};
/// let context = SpanContext { trace_id: [7; 16], span_id: 3, ..SpanContext::default() };
/// let inside = enter_context(&context);
/// assert_eq!(current().map(|c| c.span_id), Some(3));
/// drop(inside);
/// assert_eq!(current(), None);
/// ```
#[inline]
pub fn enter_context(context: &SpanContext) -> Guard {
    let token = enter(&Entering { context, name: "", attrs: &[], owner: 0 });
    Guard { token, not_send: PhantomData }
}

/// A span: begins when it is made and ends when it is dropped. It can be entered any number of times, one after the other, on any
/// thread. A recorder tells of it if a sample was taken in it.
#[derive(Debug)]
pub struct Span {
    context: SpanContext,
    name: &'static str,
    start_ns: u64,
    samples: Cell<u32>,
    labels: RefCell<Labels>,
}

/// Ids of a new span: a child of `parent`, or the first of a trace.
#[inline(never)]
pub fn new_context(parent: Option<&SpanContext>) -> SpanContext {
    let local = local();
    let Some(state) = crate::thread::state(local) else { return SpanContext::default() };
    // SAFETY: the calling thread's own state.
    let random = unsafe { &mut (*state).random };
    let span_id = random.next();
    let Some(parent) = parent else {
        let mut trace_id = [0; 16];
        trace_id[..8].copy_from_slice(&random.next().to_be_bytes());
        trace_id[8..].copy_from_slice(&random.next().to_be_bytes());
        let flags = SAMPLED | RANDOM;
        return SpanContext { trace_id, span_id, parent_span_id: 0, local_root_span_id: span_id, flags };
    };
    let local_root_span_id = if parent.local_root_span_id == 0 { span_id } else { parent.local_root_span_id };
    SpanContext { span_id, parent_span_id: parent.span_id, local_root_span_id, ..*parent }
}

impl Span {
    /// A child of the span that is active on this thread; the first one of a new trace if none is.
    ///
    /// ```
    /// use flightline_context::{Span, label};
    /// let span = Span::new("checkout");
    /// {
    ///     let _inside = span.enter();
    ///     label("tenant", "acme")?;
    ///     let inner = Span::new("charge card");
    ///     assert_eq!(inner.context().parent_span_id, span.context().span_id);
    /// }
    /// # Ok::<(), flightline_context::LabelError>(())
    /// ```
    pub fn new(name: &'static str) -> Span {
        Span::begin(name, new_context(current().as_ref()))
    }

    /// The first span of a new trace.
    pub fn root(name: &'static str) -> Span {
        Span::begin(name, new_context(None))
    }

    /// A child of a span elsewhere: in another process (`local_root_span_id` 0), or one that is not active here.
    pub fn child_of(parent: &SpanContext, name: &'static str) -> Span {
        Span::begin(name, new_context(Some(parent)))
    }

    fn begin(name: &'static str, context: SpanContext) -> Span {
        let start_ns = beginning();
        Span { context, name, start_ns, samples: Cell::new(0), labels: RefCell::new(Labels::new()) }
    }

    /// Its ids, for children elsewhere and for messages.
    pub fn context(&self) -> &SpanContext {
        &self.context
    }

    /// Samples so far, of the activations that ended.
    pub fn samples(&self) -> u32 {
        self.samples.get()
    }

    /// Sets a label that counts from the next entering on; within an activation use [`crate::label`].
    ///
    /// # Errors
    /// See [`LabelError`]; the labels are as they were.
    pub fn label(&mut self, key: &str, value: &str) -> Result<(), LabelError> {
        self.labels.get_mut().set(key, value)
    }

    /// Enters it on this thread.
    pub fn enter(&self) -> Entered<'_> {
        let labels = self.labels.borrow();
        let attrs = labels.bytes();
        let token = enter(&Entering { context: &self.context, name: self.name, attrs, owner: 0 });
        Entered { span: self, token, not_send: PhantomData }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let labels = self.labels.get_mut();
        span_ended(&self.context, self.name, self.start_ns, self.samples.get(), labels.bytes());
    }
}

/// When something begins, `CLOCK_MONOTONIC` ns, for [`span_ended`]; 0 if nobody records.
#[inline(never)]
pub fn beginning() -> u64 {
    if recorder().is_off() {
        return 0;
    }
    // SAFETY: the calling thread's own state.
    crate::thread::state(local()).map_or_else(clock::now_ns, |state| unsafe { (*state).clock.beginning() })
}

/// Tells the recorder of a span that ended, if it wants to know: of one with samples, or of all. `start_ns` is of [`beginning`],
/// `attrs` as in [`Record`](crate::record::Record).
#[inline]
pub fn span_ended(context: &SpanContext, name: &str, start_ns: u64, samples: u32, attrs: &[u8]) {
    let recorder = recorder();
    // SAFETY: never null, by the description.
    let mode = unsafe { (*recorder.mode).load(core::sync::atomic::Ordering::Relaxed) };
    if start_ns != 0 && (mode == mode::ALL || mode == mode::SAMPLED && samples != 0) {
        report_end(context, name, start_ns, samples, attrs);
    }
}

/// Tells the recorder of a scope that ended: a unit of work without a sample is one, too.
pub(crate) fn scope_ended(context: &SpanContext, name: &str, start_ns: u64, samples: u32, attrs: &[u8]) {
    if start_ns != 0 && !recorder().is_off() {
        report_end(context, name, start_ns, samples, attrs);
    }
}

#[cold]
#[inline(never)]
fn report_end(context: &SpanContext, name: &str, start_ns: u64, samples: u32, attrs: &[u8]) {
    let recorder = recorder();
    let end_ns = clock::now_ns();
    let name = record::cut(name, NAME_MAX);
    let labels = crate::json::object::<LABELS_MAX>(attrs, key_name);
    let labels = labels.bytes();
    let end = SpanEnd {
        size: size_of::<SpanEnd>() as u32,
        flags: u32::from(context.flags),
        start_ns: start_ns.min(end_ns),
        end_ns,
        span_id: context.span_id,
        parent_span_id: context.parent_span_id,
        local_root_span_id: context.local_root_span_id,
        trace_id: context.trace_id,
        samples,
        name_len: name.len() as u32,
        name: name.as_ptr(),
        labels: if labels.is_empty() { core::ptr::null() } else { labels.as_ptr() },
        labels_len: labels.len() as u32,
        reserved: 0,
    };
    // SAFETY: a complete struct for the time of the call.
    unsafe { (recorder.span)(&end) };
}

/// A span that is active on this thread until this is dropped.
#[must_use = "the span is left when the guard is dropped"]
#[derive(Debug)]
pub struct Entered<'a> {
    span: &'a Span,
    token: u64,
    // The thread's own.
    not_send: PhantomData<*mut ()>,
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        let Some(ended) = exit(self.token) else { return };
        self.span.samples.set(self.span.samples.get().saturating_add(ended.samples));
        if ended.relabelled() {
            *self.span.labels.borrow_mut() = ended.labels();
        }
    }
}
