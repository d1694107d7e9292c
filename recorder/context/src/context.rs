//! Enters and leaves spans, and reports the activations that end.
//!
//! A record is complete before the thread's variable points to it, and does not change as long as the
//! variable does. Entering an activation fills the next level, and setting a label fills the level's second
//! record; a single store then publishes the record. Levels form a list, so an activation that is left out of
//! order is unlinked, and no handler sees an intermediate state. Each level stores what the variable
//! contained before, so contexts entered by other copies of this crate are restored.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::abi::{NAME_MAX, ScopeEnd, mode};
use crate::clock;
use crate::ids::SpanContext;
use crate::key_table::Keys;
use crate::labels::{LabelError, Labels, key_index};
#[cfg(doc)]
use crate::record::ATTRS_MAX;
use crate::record::{self, MAGIC, OwnedRecord, Record, SideCar, VALID};
use crate::recorder::recorder;
use crate::thread::{self, Level, State};
use crate::tls::local;

/// The parameters of an activation.
#[derive(Clone, Copy, Debug)]
pub struct Entering<'a> {
    /// The span's ids.
    pub context: &'a SpanContext,
    /// The span's name, which must stay valid until the activation ends.
    pub name: &'static str,
    /// Labels as in [`Record::attrs`], in addition to those of the enclosing activation if it is of the same trace.
    pub attrs: &'a [u8],
    /// A number to find the activation by ([`exit_owner`]), for owners that do not store the token.
    pub owner: u64,
}

/// An activation that ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Number of samples during the activation, including those of inner activations.
    pub samples: u32,
    // A level of the thread, so this type is not `Send`.
    level: NonNull<Level>,
}

impl Ended {
    /// Returns true if labels were set during the activation. Call it before the thread enters another span.
    #[inline]
    pub fn relabelled(&self) -> bool {
        // SAFETY: a level of this thread, which keeps its contents until it is reused, and then has those of
        // another activation. It is unmapped at the thread's end, and the pointer prevents that this value
        // leaves the thread.
        unsafe { (*self.level.as_ptr()).relabelled }
    }

    /// Returns the activation's labels at its end. Call it before the thread enters another span.
    pub fn labels(&self) -> Labels {
        // SAFETY: a level of this thread, which stays mapped until the thread's end; the pointer prevents
        // that this value leaves the thread.
        Labels::from_bytes(unsafe { (*(*self.level.as_ptr()).current).record.labels() })
    }
}

/// Enters a span on the calling thread. Returns a token for [`exit`]; 0 if the span could not be entered: the
/// thread's 4096 levels are in use, or there is no memory. Not for signal handlers.
#[inline(never)]
pub fn enter(what: &Entering<'_>) -> u64 {
    activate(what, None)
}

/// Enters a scope with exactly these labels; `keys` are their keys.
#[inline(never)]
pub(crate) fn enter_scope(what: &Entering<'_>, keys: &Keys) -> u64 {
    activate(what, Some(keys))
}

#[inline(always)]
fn activate(what: &Entering<'_>, scope: Option<&Keys>) -> u64 {
    let local = local();
    let Some(state) = thread::state(local) else { return 0 };
    // SAFETY: the state and all levels are the calling thread's own. No activation uses the level above the
    // top, and its contents are not visible until `publish`.
    unsafe {
        let top = (*state).top;
        let level = thread::next_level(state);
        if level.is_null() {
            return 0;
        }
        let owned = &raw mut (*level).records[0];
        begin_fill(owned);
        let recorder = recorder();
        recorder.changes();
        (*owned).car.start_ns = 0;
        (*level).samples = core::ptr::null();
        if (*recorder.mode).load(Relaxed) != mode::OFF {
            let samples = (recorder.samples)();
            if !samples.is_null() {
                (*level).samples = samples;
                (*level).samples_before = (*samples).load(Relaxed);
                (*owned).car.start_ns = (*state).clock.beginning();
            }
        }
        let context = what.context;
        let record = &raw mut (*owned).record;
        (*record).trace_id = context.trace_id;
        (*record).span_id = context.span_id.to_be_bytes();
        (*record).valid = VALID;
        (*record).flags = context.flags;
        (*record).attrs_size = 0;
        let seq = (*state).number();
        let previous = (*state).slot().load(Relaxed);
        (*level).previous = previous;
        (*owned).car.previous = previous;
        (*owned).car.magic = MAGIC;
        (*owned).car.name_len = what.name.len() as u32;
        (*owned).car.name = what.name.as_ptr();
        (*owned).car.seq = seq;
        (*owned).car.parent_span_id = context.parent_span_id;
        let mut local_root_span_id = context.local_root_span_id;
        let mut inherited = &[][..];
        let mut of_scope = None;
        (*level).in_scope = false;
        // The bottom level has sequence number 0.
        if (*top).seq != 0 {
            let outer = &*(*top).current;
            let same_trace = outer.record.trace_id == context.trace_id;
            if same_trace && local_root_span_id == 0 {
                local_root_span_id = outer.car.local_root_span_id;
            }
            if scope.is_none() && (same_trace || (*top).in_scope) {
                inherited = outer.record.labels();
            }
            if (*top).in_scope {
                (*level).in_scope = true;
                (*level).scope_keys = (*top).scope_keys;
                of_scope = (!same_trace).then_some(&(*top).scope_keys);
            }
        }
        if let Some(keys) = scope {
            (*level).in_scope = true;
            (*level).scope_keys = *keys;
        }
        if local_root_span_id == 0 {
            local_root_span_id = context.span_id;
        }
        (*owned).car.local_root_span_id = local_root_span_id;
        if !inherited.is_empty() || !what.attrs.is_empty() {
            match of_scope {
                None => (*record).set_labels(inherited, what.attrs),
                Some(keys) => (*record).set_labels_for_keys(keys, inherited, what.attrs),
            }
        }
        end_fill(owned, seq);
        (*level).current = owned;
        (*level).relabelled = false;
        (*level).seq = seq;
        (*level).owner = what.owner;
        (*state).publish(local, record.cast());
        (*state).top = level;
        seq
    }
}

/// Begins a span, enters it, and copies its name. It must end on this thread. Returns a token for [`end`], 0
/// if it could not be entered.
pub fn begin(name: &str) -> u64 {
    let Some(state) = thread::state(local()) else { return 0 };
    let name = record::cut(name, NAME_MAX);
    // SAFETY: the calling thread's own state. No activation uses the level, and `enter` takes it next. The
    // copy of the name stays unchanged until the activation ends.
    let name = unsafe {
        let level = thread::next_level(state);
        if level.is_null() {
            return 0;
        }
        let all = &mut (*level).name;
        let copied = &mut all[..name.len()];
        copied.copy_from_slice(name.as_bytes());
        core::str::from_utf8_unchecked(core::slice::from_raw_parts(copied.as_ptr(), copied.len()))
    };
    let context = crate::new_context(current().as_ref());
    enter(&Entering { context: &context, name, attrs: &[], owner: 0 })
}

/// Leaves and ends a span that [`begin`] began on this thread. Returns false if the thread has no activation
/// with that token.
pub fn end(token: u64) -> bool {
    let Some(ended) = exit(token) else { return false };
    // SAFETY: a level of this thread, which keeps its contents until it is reused; the name is the copy that
    // `begin` made.
    unsafe {
        let owned = &*(*ended.level.as_ptr()).current;
        let name = core::slice::from_raw_parts(owned.car.name, owned.car.name_len as usize);
        let context = SpanContext {
            trace_id: owned.record.trace_id,
            span_id: u64::from_be_bytes(owned.record.span_id),
            parent_span_id: owned.car.parent_span_id,
            local_root_span_id: owned.car.local_root_span_id,
            flags: owned.record.flags,
        };
        let name = core::str::from_utf8_unchecked(name);
        crate::span_ended(&context, name, owned.car.start_ns, ended.samples, owned.record.labels());
    }
    true
}

/// Marks the record as being written, for readers in other threads and processes.
unsafe fn begin_fill(owned: *mut OwnedRecord) {
    // SAFETY: the caller's own record, which is not active.
    unsafe { (*owned).car.version.store(0, Relaxed) };
    core::sync::atomic::fence(Release);
}

unsafe fn end_fill(owned: *mut OwnedRecord, version: u64) {
    // SAFETY: the caller's own record, which is not active.
    unsafe { (*owned).car.version.store(version, Release) };
}

/// Leaves the activation with this token of [`enter`]; it need not be the innermost one. Returns `None` if
/// the calling thread has no such activation, as in a child that was forked in the meantime.
#[inline(never)]
pub fn exit(token: u64) -> Option<Ended> {
    leave(|level| level.seq == token)
}

/// Leaves the innermost activation that was entered with this owner.
#[inline(never)]
pub fn exit_owner(owner: u64) -> Option<Ended> {
    leave(|level| level.owner == owner)
}

/// Returns the number of samples so far in the calling thread's open activations of a span, as far as this
/// copy of the crate entered it.
#[inline(never)]
pub fn samples_so_far(span_id: u64) -> u32 {
    let state = local().thread_state();
    let mut samples = 0;
    // SAFETY: the thread's own state and levels; the bottom ends the search and has sequence number 0. The
    // recorder's word stays readable.
    unsafe {
        if state.is_null() || (*state).top.is_null() {
            return 0;
        }
        let mut level = (*state).top;
        while (*level).seq != 0 {
            if (*(*level).current).record.span_id == span_id.to_be_bytes() && !(*level).samples.is_null() {
                // The count of an outer activation includes those of inner activations of the same span.
                samples = (*(*level).samples).load(Relaxed).wrapping_sub((*level).samples_before);
            }
            level = (*level).below;
        }
    }
    samples
}

/// Returns the owner of the calling thread's innermost activation.
#[inline(never)]
pub fn innermost_owner() -> Option<u64> {
    let state = local().thread_state();
    // SAFETY: the thread's own state and top level; the bottom has sequence number 0.
    unsafe {
        if state.is_null() || (*state).top.is_null() || (*(*state).top).seq == 0 {
            return None;
        }
        Some((*(*state).top).owner)
    }
}

#[inline(always)]
fn leave(wanted: impl Fn(&Level) -> bool) -> Option<Ended> {
    let local = local();
    let state = local.thread_state();
    // SAFETY: the thread's own state and levels; the bottom ends the search and has sequence number 0.
    unsafe {
        if state.is_null() || (*state).top.is_null() {
            return None;
        }
        let level = (*state).top;
        if (*level).seq == 0 {
            return None;
        }
        if wanted(&*level) {
            let below = (*level).below;
            recorder().changes();
            // Reporting takes time, which counts for the activation that ends, not for the one that follows.
            let mut end = ended(level, below);
            recorder().changes();
            (*state).publish(local, (*level).previous);
            (*state).top = below;
            if end.samples == 0 && sample_count(level) != 0 && (*recorder().mode).load(Relaxed) != mode::ALL {
                // Include samples that came in the meantime.
                end = ended(level, below);
            }
            return Some(end);
        }
        let mut level = (*level).below;
        while (*level).seq != 0 {
            if wanted(&*level) {
                return Some(take_out(state, level));
            }
            level = (*level).below;
        }
        None
    }
}

/// Ends an activation that is not the innermost. The activations above it stay, and are linked to the one
/// below it.
#[cold]
#[inline(never)]
unsafe fn take_out(state: *mut State, level: *mut Level) -> Ended {
    // SAFETY: the thread's own levels; `level` is neither top nor bottom, so it has neighbours.
    unsafe {
        let (below, above, top) = ((*level).below, (*level).above, (*state).top);
        // Another copy of this crate may have entered a span between the two.
        if (*above).previous == (&raw mut (*(*level).current).record).cast() {
            (*above).previous = (*level).previous;
            (*(*above).current).car.previous = (*level).previous;
        }
        (*above).below = below;
        (*below).above = above;
        let spare = (*top).above;
        (*level).below = top;
        (*level).above = spare;
        (*top).above = level;
        if !spare.is_null() {
            (*spare).below = level;
        }
        ended(level, below)
    }
}

/// Returns the number of samples in an activation so far.
#[inline(always)]
unsafe fn sample_count(level: *const Level) -> u32 {
    // SAFETY: the thread's own level; the recorder's word stays readable.
    unsafe {
        let samples = (*level).samples;
        if samples.is_null() { 0 } else { (*samples).load(Relaxed).wrapping_sub((*level).samples_before) }
    }
}

#[inline(always)]
unsafe fn ended(level: *mut Level, below: *const Level) -> Ended {
    // SAFETY: the thread's own levels, the first no longer active; the recorder's word stays readable.
    unsafe {
        let samples = sample_count(level);
        let level = NonNull::new_unchecked(level);
        if (*level.as_ptr()).samples.is_null() {
            return Ended { samples, level };
        }
        if samples != 0 || (*recorder().mode).load(Relaxed) == mode::ALL {
            report_end(level, below, samples);
        }
        Ended { samples, level }
    }
}

#[cold]
#[inline(never)]
unsafe fn report_end(level: NonNull<Level>, below: *const Level, samples: u32) {
    let recorder = recorder();
    if recorder.is_off() {
        return;
    }
    // SAFETY: a level of this thread, which stays mapped until the thread's end; the level below is the
    // thread's own, and the bottom has sequence number 0. The slot's previous record is not read, because it
    // may be another writer's and already freed.
    let (owned, previous_span_id) = unsafe {
        let outer = if (*below).seq != 0 { (*(*below).current).record.span_id } else { [0; 8] };
        (&*(*level.as_ptr()).current, u64::from_be_bytes(outer))
    };
    let end_ns = clock::now_ns();
    let scope = ScopeEnd {
        size: size_of::<ScopeEnd>() as u32,
        samples,
        start_ns: owned.car.start_ns.min(end_ns),
        end_ns,
        span_id: u64::from_be_bytes(owned.record.span_id),
        previous_span_id,
        seq: owned.car.seq,
    };
    // SAFETY: the struct is complete and lives during the call.
    unsafe { (recorder.scope)(&scope) };
}

/// Passes the labels of the calling thread's innermost activation to `take`, as in [`Record::attrs`]. They
/// belong to the thread, and change when it enters or leaves a span.
#[inline(never)]
pub(crate) fn inherited(take: impl FnOnce(&[u8])) {
    let state = local().thread_state();
    // SAFETY: the thread's own state and top level; the bottom has sequence number 0.
    unsafe {
        if !state.is_null() && !(*state).top.is_null() && (*(*state).top).seq != 0 {
            take((*(*(*state).top).current).record.labels());
        }
    }
}

/// Sets a label of the innermost activation of the calling thread, and of the activations that it will
/// enclose. Values are cut at 255 bytes, between characters. Not for signal handlers.
///
/// # Errors
/// See [`LabelError`]; the labels are unchanged.
#[inline(never)]
pub fn label(key: &str, value: &str) -> Result<(), LabelError> {
    let local = local();
    let state = local.thread_state();
    // SAFETY: the thread's own state and top level, whose other record is not active.
    unsafe {
        if state.is_null() || (*state).top.is_null() || (*(*state).top).seq == 0 {
            return Err(LabelError::NoSpan);
        }
        let index = key_index(key)?;
        let level = (*state).top;
        let current = (*level).current;
        let first = &raw mut (*level).records[0];
        let other = if current == first { &raw mut (*level).records[1] } else { first };
        begin_fill(other);
        (*other).car.copy_from(&(*current).car);
        let record = &raw mut (*other).record;
        (*record).trace_id = (*current).record.trace_id;
        (*record).span_id = (*current).record.span_id;
        (*record).valid = VALID;
        (*record).flags = (*current).record.flags;
        (*record).attrs_size = 0;
        let fitted =
            (*record).append_without((*current).record.labels(), index) && (*record).append(index, value);
        end_fill(other, (*state).number());
        if !fitted {
            return Err(LabelError::Full);
        }
        (*level).current = other;
        (*level).relabelled = true;
        // If another copy of this crate has entered a span since, that span's record stays active.
        if (*state).slot().load(Relaxed) == (&raw mut (*current).record).cast() {
            (*state).publish(local, record.cast());
        }
    }
    Ok(())
}

/// Returns the ids of the calling thread's innermost span, whichever library in this process entered it;
/// `None` if there is none.
#[inline(never)]
pub fn current() -> Option<SpanContext> {
    let local = local();
    let state = thread::state(local)?;
    // SAFETY: a slot points to a valid record, and only this thread changes the slot.
    unsafe {
        let at = (*state).slot().load(Relaxed);
        if at.is_null() {
            return None;
        }
        let record = &*at.cast::<Record>();
        if record.valid != VALID {
            return None;
        }
        let span_id = u64::from_be_bytes(record.span_id);
        if span_id == 0 {
            return None;
        }
        let car = SideCar::from_record(at);
        Some(SpanContext {
            trace_id: record.trace_id,
            span_id,
            parent_span_id: car.map_or(0, |car| car.parent_span_id),
            local_root_span_id: car.map_or(span_id, |car| car.local_root_span_id),
            flags: record.flags,
        })
    }
}
