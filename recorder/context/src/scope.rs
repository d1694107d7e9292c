//! Units of work with labels: a task attempt, a job, a tenant's request.
//!
//! The labels of a scope are composed when it begins. An entered scope adds nothing from the thread's other
//! activations, so two units of work never mix. Spans within the scope have the labels of its keys, in any
//! trace.

use core::fmt::{self, Write};
use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::context::{Entering, current, enter_scope, exit, inherited};
use crate::ids::SpanContext;
use crate::key_table::Keys;
use crate::labels::{Labels, key_index, key_name};
use crate::record::{self, ATTRS_MAX, Record};
use crate::recorder::recorder;
use crate::span::{beginning, new_context, scope_ended};

/// Maximum number of a scope's own labels; the process has 256 keys for all scopes.
pub const SCOPE_LABELS_MAX: usize = 64;
/// Maximum length of a value in bytes; a longer one ends in `…`.
pub const VALUE_MAX: usize = 255;
/// The label with the number of labels that found no place. Present only if there are any.
pub const LEFT_OUT: &str = "flightline.labels_left_out";

/// Key, length and digits of [`LEFT_OUT`].
const LEFT_OUT_BYTES: usize = 2 + 10;
const ROOM: usize = ATTRS_MAX - LEFT_OUT_BYTES;

/// A unit of work with labels that are set once. All samples in it have the labels, on all threads that have
/// [entered](Scope::enter) it and in all spans within. It ends when it is dropped. Then it is recorded as a
/// span with these labels, even if it contains no sample.
///
/// Without a recorder in the process a scope does nothing: its labels are not evaluated, and no memory is
/// allocated or published. With a recorder that is not recording at the moment, the labels are stored, so
/// that a recording that begins during the scope has them. This allocates no memory either.
/// [`left_out`](Scope::left_out) returns the number of labels that found no place.
///
/// ```
/// use flightline_context::Scope;
/// let attempt = Scope::named("task attempt", [("dag", "dag_7"), ("task", "map_000003")]);
/// let attempt = &attempt;
/// std::thread::scope(|threads| {
///     for part in 0..2 {
///         threads.spawn(move || {
///             let _inside = attempt.enter();
///             let _part = flightline_context::scope([("part", part)]); // `dag`, `task` and `part`
///         });
///     }
/// });
/// ```
/// Threads that may outlive the block share it in an `Arc`. A future enters it while it is polled:
/// `poll_fn(|cx| { let _inside = scope.enter(); future.as_mut().poll(cx) })`.
pub struct Scope {
    /// `None`: there was no recorder at the start.
    inner: Option<Inner>,
}

struct Inner {
    context: SpanContext,
    name: &'static str,
    labels: Labels,
    keys: Keys,
    left_out: u32,
    start_ns: u64,
    samples: AtomicU32,
}

/// A text of at most [`VALUE_MAX`] bytes.
struct Value {
    bytes: [u8; VALUE_MAX],
    len: usize,
    full: bool,
}

impl Value {
    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }

    fn push(&mut self, part: &str) {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part.as_bytes());
        self.len += part.len();
    }
}

impl Write for Value {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.full {
            return Err(fmt::Error);
        }
        if part.len() <= VALUE_MAX - self.len {
            self.push(part);
            return Ok(());
        }
        const END: &str = "…";
        self.full = true;
        let most = VALUE_MAX - END.len();
        if self.len > most {
            self.len = self.as_str().floor_char_boundary(most);
        } else {
            self.push(&part[..part.floor_char_boundary(most - self.len)]);
        }
        self.push(END);
        Err(fmt::Error)
    }
}

/// Labels that are being added to a scope.
struct Filling {
    record: Record,
    keys: Keys,
    used: usize,
    left_out: u32,
}

impl Filling {
    /// Starts with the labels of the thread's innermost activation.
    fn inherited(tells_left_out: Option<u8>) -> Filling {
        let mut filling = Filling { record: Record::empty(), keys: Keys::default(), used: 0, left_out: 0 };
        inherited(|labels| {
            for (key, value) in record::labels(labels) {
                let value = core::str::from_utf8(value).unwrap_or_default();
                if Some(key) == tells_left_out {
                    filling.left_out = filling.left_out.saturating_add(value.parse().unwrap_or(0));
                } else if !filling.put(key, value) {
                    filling.left_out = filling.left_out.saturating_add(1);
                }
            }
        });
        filling
    }

    /// Adds a label, or replaces the one with the same key. Returns false if there is no room. The key of
    /// such a label is not added to the process's table, whose size is limited.
    fn take(&mut self, key: &str, value: &impl fmt::Display) -> bool {
        if self.used == SCOPE_LABELS_MAX || key == LEFT_OUT {
            return false;
        }
        let mut text = Value { bytes: [0; VALUE_MAX], len: 0, full: false };
        if write!(text, "{value}").is_err() && !text.full {
            return false;
        }
        let index = match self.fits(text.len) {
            true => key_index(key).ok(),
            false => record::labels(self.record.labels()).map(|(i, _)| i).find(|i| key_name(*i) == Some(key)),
        };
        let Some(index) = index else { return false };
        if self.keys.has(index) {
            let mut without = Record::empty();
            without.append_without(self.record.labels(), index);
            if without.labels().len() + 2 + text.len > ROOM {
                return false;
            }
            self.record = without;
        }
        self.used += 1;
        self.put(index, text.as_str())
    }

    fn fits(&self, value: usize) -> bool {
        self.record.labels().len() + 2 + value <= ROOM
    }

    fn put(&mut self, index: u8, value: &str) -> bool {
        if !self.fits(value.len()) {
            return false;
        }
        self.keys.insert(index);
        self.record.append(index, value)
    }
}

impl Scope {
    /// Begins a scope with the name `scope` that no thread has entered yet. For each key the last value
    /// counts, also if one scope begins within another. The limits are [`SCOPE_LABELS_MAX`] own labels, and
    /// 600 bytes of values with two more bytes for each.
    #[inline]
    pub fn new<K: AsRef<str>, V: fmt::Display>(labels: impl IntoIterator<Item = (K, V)>) -> Scope {
        Scope::named("scope", labels)
    }

    /// Begins a scope with the name of its kind of work, such as `task attempt`. `flightline spans` groups by
    /// this name.
    #[inline]
    pub fn named<K: AsRef<str>, V: fmt::Display>(
        name: &'static str,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Scope {
        // Filled in place, because it is too large to be moved needlessly.
        let mut scope = Scope { inner: None };
        if !recorder().is_none() {
            scope.begin(name, labels);
        }
        scope
    }

    #[inline(never)]
    fn begin<K: AsRef<str>, V: fmt::Display>(
        &mut self,
        name: &'static str,
        labels: impl IntoIterator<Item = (K, V)>,
    ) {
        let tells_left_out = key_index(LEFT_OUT).ok();
        let mut filling = Filling::inherited(tells_left_out);
        for (key, value) in labels {
            if !filling.take(key.as_ref(), &value) {
                filling.left_out = filling.left_out.saturating_add(1);
            }
        }
        let Filling { mut record, mut keys, left_out, .. } = filling;
        if let (Some(key), true) = (tells_left_out, left_out != 0) {
            let mut digits = Value { bytes: [0; VALUE_MAX], len: 0, full: false };
            let _ = write!(digits, "{left_out}");
            record.append(key, digits.as_str());
            keys.insert(key);
        }
        let context = new_context(current().as_ref());
        let labels = Labels::from_bytes(record.labels());
        let (start_ns, samples) = (beginning(), AtomicU32::new(0));
        self.inner = Some(Inner { context, name, labels, keys, left_out, start_ns, samples });
    }

    /// Enters the scope on this thread until the guard is dropped. Other scopes of the thread do not count in
    /// the meantime: samples have this scope's labels, and those of the scopes in which it was begun.
    pub fn enter(&self) -> InScope<'_> {
        InScope { scope: self, token: self.activate(), not_send: PhantomData }
    }

    /// Enters the scope without a guard. Returns a token for [`Scope::leave`], 0 if it could not be entered.
    pub fn activate(&self) -> u64 {
        let Some(inner) = &self.inner else { return 0 };
        let attrs = inner.labels.bytes();
        enter_scope(&Entering { context: &inner.context, name: inner.name, attrs, owner: 0 }, &inner.keys)
    }

    /// Leaves the scope on the thread that got this token. Returns false if this thread has no activation
    /// with that token.
    pub fn leave(&self, token: u64) -> bool {
        let Some(inner) = &self.inner else { return false };
        let Some(ended) = exit(token) else { return false };
        inner.samples.fetch_add(ended.samples, Relaxed);
        true
    }

    /// Returns true if the scope has labels to set; false if no recorder was in the process when it began.
    pub fn is_on(&self) -> bool {
        self.inner.is_some()
    }

    /// Returns the number of labels that found no place: too many or too long ones, and keys that are empty,
    /// longer than 63 bytes or beyond the process's 256. Samples have this number as [`LEFT_OUT`].
    pub fn left_out(&self) -> u32 {
        self.inner.as_ref().map_or(0, |inner| inner.left_out)
    }

    /// Returns the number of samples so far, in activations that have ended and whose threads the recorder
    /// knew at their start. A program that records itself finds a thread within 10 ms of its start. Samples
    /// have the labels in any case.
    pub fn samples(&self) -> u32 {
        self.inner.as_ref().map_or(0, |inner| inner.samples.load(Relaxed))
    }

    /// Returns its ids, in the form of a span's, for messages to other processes; `None` if it [is
    /// off](Scope::is_on).
    pub fn context(&self) -> Option<&SpanContext> {
        self.inner.as_ref().map(|inner| &inner.context)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(inner) = &self.inner {
            let samples = inner.samples.load(Relaxed);
            scope_ended(&inner.context, inner.name, inner.start_ns, samples, inner.labels.bytes());
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut output = f.debug_struct("Scope");
        let Some(inner) = &self.inner else { return output.field("is_on", &false).finish() };
        output.field("name", &inner.name).field("labels", &Names(&inner.labels)).finish_non_exhaustive()
    }
}

/// The labels with their names.
struct Names<'a>(&'a Labels);

impl fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = record::labels(self.0.bytes());
        let named = named.map(|(key, value)| (key_name(key), core::str::from_utf8(value)));
        f.debug_map().entries(named.filter_map(|(key, value)| Some((key?, value.ok()?)))).finish()
    }
}

/// A thread's activation of a scope, which ends when this is dropped.
#[must_use = "the scope is left when the guard is dropped"]
#[derive(Debug)]
pub struct InScope<'a> {
    scope: &'a Scope,
    token: u64,
    // A guard belongs to its thread.
    not_send: PhantomData<*mut ()>,
}

impl Drop for InScope<'_> {
    fn drop(&mut self) {
        self.scope.leave(self.token);
    }
}

/// A scope that its thread has entered until it is dropped. It must be dropped on that thread. Other threads
/// enter the [`Scope`] in it.
///
/// ```compile_fail
/// let here = flightline_context::scope([("task", "a")]);
/// std::thread::spawn(move || drop(here)); // it is this thread that is in it
/// ```
#[must_use = "the scope ends when it is dropped"]
#[derive(Debug)]
pub struct ActiveScope {
    scope: Scope,
    token: u64,
    // A guard belongs to its thread.
    not_send: PhantomData<*mut ()>,
}

/// Begins a scope and enters it; see [`Scope`].
///
/// ```
/// let attempt = flightline_context::scope([("task", "map_000003"), ("attempt", "0")]);
/// // … work: each sample has both labels …
/// drop(attempt);
/// ```
#[inline]
pub fn scope<K: AsRef<str>, V: fmt::Display>(labels: impl IntoIterator<Item = (K, V)>) -> ActiveScope {
    let mut here = ActiveScope { scope: Scope { inner: None }, token: 0, not_send: PhantomData };
    if !recorder().is_none() {
        here.scope.begin("scope", labels);
        here.token = here.scope.activate();
    }
    here
}

impl ActiveScope {
    /// Enters a scope. The scope ends when this value is dropped.
    pub fn new(scope: Scope) -> ActiveScope {
        let token = scope.activate();
        ActiveScope { scope, token, not_send: PhantomData }
    }
}

impl Deref for ActiveScope {
    type Target = Scope;

    fn deref(&self) -> &Scope {
        &self.scope
    }
}

impl Drop for ActiveScope {
    fn drop(&mut self) {
        self.scope.leave(self.token);
    }
}
