//! Converts events to items.

use std::sync::Arc;

use jfr_format::error::Error;
use jfr_format::event::{EventRef, Value as Read, constant};
use jfr_format::read::{Binding, Chunk, Frame};

use super::cache::Cache;
use super::feed::State;
use super::item::{ChunkStart, Event, Item, Kind, Loss, Sample, Time, Weight};
use super::plan::SamplePlan;
use super::segments::SegmentEvent;
use super::value::{Owner, Value, field};
use crate::decode::SETTING;
use crate::decode::losses::{Cause, LossPlan};
use crate::decode::schema::{Detail, RawSample, values};
use crate::model::{Unit, is_asleep};
use crate::spans::{SpanContext, span_events};

type Made = Result<Option<Item>, Error>;

pub(super) fn chunk_start(state: &State, chunk: &Chunk, index: u32) -> Item {
    Item::ChunkStart(ChunkStart {
        index,
        offset: state.base + chunk.offset.0,
        time: state.clock.now(),
        ticks_per_second: chunk.header.frequency(),
    })
}

fn event<'a>(chunk: &'a Chunk, frame: &'a Frame<'_>) -> Option<EventRef<'a>> {
    chunk.event(frame.type_id, frame.payload, frame.offset)
}

pub(super) fn setting(state: &mut State, chunk: &Chunk, frame: &Frame<'_>) {
    if let Some(event) = event(chunk, frame) {
        state.settings.take(&event, frame.type_id);
    }
}

pub(super) fn anchor(state: &mut State, chunk: &Chunk, frame: &Frame<'_>, binding: &Binding) -> Made {
    let [ticks, monotonic] = values(chunk, frame, binding)?;
    if binding.is_bound(0) && binding.is_bound(1) {
        let (ticks, monotonic) = (ticks as i64, monotonic as i64);
        let first = state.clock.time(chunk, ticks).monotonic_nanos.is_none();
        state.clock.anchor(chunk, ticks, monotonic);
        if first {
            let epoch = chunk.epoch_nanos(ticks);
            let set = |time: &mut Time| {
                time.monotonic_nanos = Some(monotonic.saturating_add(time.epoch_nanos.saturating_sub(epoch)));
            };
            state.segments.each_held(|item| match item {
                Item::Sample(sample) => set(&mut sample.time),
                Item::Loss(loss) => set(&mut loss.time),
                Item::Other(event) => set(&mut event.time),
                _ => {}
            });
        }
    }
    unless_unwanted(state, chunk, frame)
}

/// Returns the unchanged event, if other events than samples are requested.
pub(super) fn unless_unwanted(state: &mut State, chunk: &Chunk, frame: &Frame<'_>) -> Made {
    if state.wanted.no_others { Ok(None) } else { other(state, chunk, frame, Arc::default()) }
}

/// Stores the span of a thread's samples at one time.
pub(super) fn context(state: &mut State, chunk: &Chunk, frame: &Frame<'_>, binding: &Binding) -> Made {
    let [ticks, thread, context] = values(chunk, frame, binding)?;
    if (0..3).all(|slot| binding.is_bound(slot))
        && let Some(thread) = state.cache.thread(chunk, thread)?
        && let Some(context) = span_context(&mut state.cache, chunk, context)?
    {
        let time = state.clock.tick(chunk, ticks as i64).epoch_nanos;
        state.segments.contexts.put(&thread, time, context);
    }
    unless_unwanted(state, chunk, frame)
}

pub(super) fn span_context(
    cache: &mut Cache,
    chunk: &Chunk,
    key: u64,
) -> Result<Option<Arc<SpanContext>>, Error> {
    if let Some(known) = cache.contexts.get(&key) {
        return Ok(Some(known.clone()));
    }
    let found = match chunk.types.by_name("flightline.types.SpanContext") {
        Some((index, _)) => constant(chunk, index, key, 0)?,
        None => None,
    };
    let Some(Read::Struct(fields)) = found else { return Ok(cache.missing(key)) };
    let fields = Owner::new(cache, chunk).fields(&fields, |_| false)?;
    let Some(context) = span_events::context(&fields).map(Arc::new) else { return Ok(None) };
    cache.contexts.insert(key, context.clone());
    Ok(Some(context))
}

pub(super) fn segment(state: &mut State, chunk: &Chunk, frame: &Frame<'_>, binding: &Binding) -> Made {
    let [ticks, sequence, offset, size, crc32, events] = values(chunk, frame, binding)?;
    let time = state.clock.tick(chunk, ticks as i64);
    let start = (state.base + chunk.offset.0).wrapping_add(offset);
    let at = state.base + frame.offset;
    // The recorder writes its settings after the first event of the chunk. Until then, those of the chunk
    // before apply.
    let (settings, before) = (&state.settings, &state.settings_before);
    state.segments.each_held(|item| match item {
        Item::Sample(sample) if sample.weight.unit == Unit::Samples => {
            let period = settings.period(&sample.event).or_else(|| before.period(&sample.event));
            sample.weight = timed(sample.weight.samples, period);
        }
        _ => {}
    });
    let told =
        SegmentEvent { time, sequence, start, size, crc32, events, at, end: at + u64::from(frame.size) };
    state.segments.segment(&told, &mut state.stats);
    Ok(None)
}

/// Returns the weight of samples that represent `period` ns each.
fn timed(samples: u64, period: Option<u64>) -> Weight {
    match period {
        Some(period) => Weight { samples, value: period.saturating_mul(samples), unit: Unit::Nanoseconds },
        None => Weight { samples, value: samples, unit: Unit::Samples },
    }
}

pub(super) fn sample(state: &mut State, chunk: &Chunk, frame: &Frame<'_>, plan: &SamplePlan) -> Made {
    let schema = &plan.schema;
    let raw = schema.decode(chunk, frame)?;
    let RawSample { start, samples, value, duration: duration_nanos, .. } = raw;
    let (mut labels, mut fields) = (None, Box::default());
    let plain = plan.only_lasts && duration_nanos.is_some_and(|nanos| nanos < state.shortest);
    if plan.others
        && !plain
        && let Some(event) = event(chunk, frame)
    {
        let skip = |name: &str| !schema.is_other_field(name);
        let all = Owner::new(&mut state.cache, chunk).fields(&event.fields(), skip)?;
        let (found, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| **name == *"labels");
        labels = found.into_iter().next().map(|(_, value)| value).filter(|value| *value != Value::Null);
        fields = rest.into();
    }
    let called = if schema.detail == Detail::CalledMethod { raw.detail } else { 0 };
    let span = span_events::own_context(raw.span, &fields).map(Arc::new);
    let cache = &mut state.cache;
    let time = state.clock.tick(chunk, start);
    let period = state.settings.period(&plan.event).or_else(|| state.periods.get(&plan.event).copied());
    let weight = match schema.has_value() {
        true => Weight { samples, value, unit: schema.unit },
        false => timed(samples, period),
    };
    let thread_state =
        if schema.has_state() { cache.state(chunk, raw.state) } else { own_text(&fields, "state") };
    let asleep = is_asleep(&plan.event, thread_state.as_deref());
    if plan.awake_only && asleep || plan.wall_only && thread_state.as_deref() == Some("STATE_DEFAULT") {
        return Ok(None);
    }
    let has_variant = schema.detail == Detail::Variant;
    Ok(Some(Item::Sample(Box::new(Sample {
        event: plan.event.clone(),
        kind: if asleep || plan.wall_only { Kind::Wall } else { plan.kind },
        variant: if has_variant { cache.variant(chunk, raw.detail)? } else { None },
        time,
        duration_nanos,
        thread: if schema.has_thread() { cache.thread(chunk, raw.thread)? } else { None },
        process_title: if schema.has_thread() { cache.title(raw.thread) } else { None },
        stack: if schema.has_stack() { cache.call_stack(chunk, raw.stack, called)? } else { None },
        state: thread_state,
        weight,
        span_id: Some(raw.span).filter(|&id| id != 0),
        span,
        labels,
        fields,
        contextual: plan.contextual.clone(),
        offset: state.base + frame.offset,
    }))))
}

/// Returns a field with text in the event itself rather than in a pool.
fn own_text(fields: &[(Arc<str>, Value)], name: &str) -> Option<Arc<str>> {
    match field(fields, name) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    }
}

pub(super) fn loss(state: &mut State, chunk: &Chunk, frame: &Frame<'_>, plan: &LossPlan) -> Made {
    let Some(event) = event(chunk, frame) else { return Ok(None) };
    let time = state.clock.tick(chunk, event.start_ticks().unwrap_or(chunk.header.start_ticks.0));
    // In a damaged chunk, the thread's key may refer to another constant.
    let trusted = !state.segments.distrusted();
    Ok(Some(Item::Loss(lost(&mut state.cache, &event, time, plan, trusted)?)))
}

/// Converts an event that reports a loss. Its thread is included only if its key is `trusted`.
pub(super) fn lost(
    cache: &mut Cache,
    event: &EventRef<'_>,
    time: Time,
    plan: &LossPlan,
    trusted: bool,
) -> Result<Loss, Error> {
    let number = |name: &str| -> Result<Option<u64>, Error> {
        let number = event.field(name)?.and_then(|value| value.as_i64());
        Ok(number.map(|number| u64::try_from(number).unwrap_or(0)))
    };
    let text = |name: &str| -> Result<Option<Arc<str>>, Error> {
        Ok(event.field(name)?.map_or(Ok(None), |value| value.text())?.map(|text| super::cut(&text)))
    };
    let thread = match event.field("eventThread")? {
        Some(Read::Reference(thread)) if trusted => cache.thread(event.chunk(), thread.key())?,
        _ => None,
    };
    let cause = match plan.cause {
        Cause::Field(name) => text(name)?.unwrap_or_else(|| "unknown".into()),
        Cause::Always(cause) => cause.into(),
    };
    Ok(Loss {
        time,
        told_by: plan.name.into(),
        cause,
        event_type: text(plan.event)?,
        thread,
        events: number(plan.events)?,
        bytes: number(plan.bytes)?,
        cpu_nanos: number(plan.cpu)?,
    })
}

pub(super) fn other(
    state: &mut State,
    chunk: &Chunk,
    frame: &Frame<'_>,
    contextual: Arc<[Arc<str>]>,
) -> Made {
    let Some(event) = event(chunk, frame) else { return Ok(None) };
    let name = event.class().name.clone();
    if *name == *SETTING {
        state.settings.take(&event, frame.type_id);
    }
    let start = event.start_ticks();
    let time = state.clock.tick(chunk, start.unwrap_or(chunk.header.start_ticks.0));
    let skip = |name: &str| start.is_some() && name == "startTime";
    let fields = Owner::new(&mut state.cache, chunk).fields(&event.fields(), skip)?;
    Ok(Some(Item::Other(Event { event: name, time, fields, contextual, offset: state.base + frame.offset })))
}
