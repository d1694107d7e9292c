//! Converts a batch to OTLP profiles: one `Profile` for each process and measure, with the time and span
//! of each sample.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use flightline_consumer::live::Kind;
use flightline_consumer::model::{Id, Unit};
use flightline_consumer::spans::SpanContext;
use opentelemetry_proto::tonic::profiles::v1development::{
    Profile, ProfilesData, ResourceProfiles, Sample, ScopeProfiles, ValueType,
};
use prost::Message;

use super::tables::{Attribute, Tables};
use crate::batch::{Batch, Measure, Observation, Shape};
use crate::resource::{Group, group, scope};

/// The key of samples that are merged.
type Identity = (Id<Shape>, Option<Id<SpanContext>>);

#[derive(Debug, Default)]
struct Building {
    samples: Vec<(Identity, Sample)>,
    numbers: HashMap<Identity, usize>,
    first: Option<i64>,
    last: i64,
    /// The weight of one sample, as long as all samples have the same.
    period: Option<u64>,
    periods_differ: bool,
}

/// Converts the whole batch to one message.
pub fn profiles(batch: &Batch) -> ProfilesData {
    profiles_data(batch, &batch.observations)
}

/// Passes the batch to `each` as encoded messages of at most `most` bytes, with the number of samples in
/// each. A single sample that needs more bytes gets its own message.
///
/// # Errors
/// The error that `each` returns.
pub fn parts<E>(
    batch: &Batch,
    most: usize,
    mut each: impl FnMut(Vec<u8>, u64) -> Result<(), E>,
) -> Result<(), E> {
    divided(&batch.observations, most, |part| profiles_data(batch, part), &mut each)
}

/// Makes messages from as many of `all` as fit, in order.
pub(super) fn divided<T, M: Message, E>(
    all: &[T],
    most: usize,
    make: impl Fn(&[T]) -> M,
    each: &mut impl FnMut(Vec<u8>, u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut left = vec![all];
    while let Some(part) = left.pop() {
        if part.is_empty() {
            continue;
        }
        let message = make(part);
        if message.encoded_len() > most && part.len() > 1 {
            let (first, second) = part.split_at(part.len() / 2);
            left.extend([second, first]);
        } else {
            each(message.encode_to_vec(), part.len() as u64)?;
        }
    }
    Ok(())
}

fn profiles_data(batch: &Batch, observations: &[Observation]) -> ProfilesData {
    let mut groups: BTreeMap<Group, BTreeMap<usize, (Id<Measure>, Building)>> = BTreeMap::new();
    for observation in observations {
        let shape = batch.shapes.get(observation.shape);
        let group = group(shape.thread.and_then(|thread| batch.threads.get(thread).group.as_ref()));
        let of = groups.entry(group).or_default();
        let (measure, value) = batch.measured(shape, observation);
        let (_, building) = of.entry(measure.index()).or_insert_with(|| (measure, Building::default()));
        building.take(observation, value);
    }
    let mut tables = Tables::new();
    let resource_profiles = groups
        .into_iter()
        .map(|(group, measures)| ResourceProfiles {
            resource: Some(batch.resources.get(group.as_deref())),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(scope()),
                profiles: measures
                    .into_values()
                    .map(|(measure, building)| {
                        building.finish(batch, batch.measures.get(measure), &mut tables)
                    })
                    .collect(),
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        })
        .collect();
    ProfilesData { resource_profiles, dictionary: Some(tables.finish()) }
}

impl Building {
    fn take(&mut self, observation: &Observation, value: u64) {
        let identity = (observation.shape, observation.context);
        let number = *self.numbers.entry(identity).or_insert_with(|| {
            self.samples.push((identity, Sample::default()));
            self.samples.len() - 1
        });
        let (_, sample) = &mut self.samples[number];
        sample.values.push(i64::try_from(value).unwrap_or(i64::MAX));
        sample.timestamps_unix_nano.push(nanos(observation.time));
        self.first = Some(self.first.map_or(observation.time, |first| first.min(observation.time)));
        self.last = self.last.max(observation.time);
        let one = value.checked_div(observation.samples).filter(|&one| one > 0);
        if self.period.is_some() && self.period != one {
            self.periods_differ = true;
        }
        self.period = self.period.or(one);
    }

    fn finish(self, batch: &Batch, measure: &Measure, tables: &mut Tables) -> Profile {
        let (name, unit) = measure.name();
        let sample_type = ValueType { type_strindex: tables.name(name), unit_strindex: tables.name(unit) };
        let first = nanos(self.first.unwrap_or(0));
        // With sampling by time, each sample represents the same time.
        let sampled = matches!(measure.kind, Kind::Cpu | Kind::Wall) && measure.unit == Unit::Nanoseconds;
        let period = self.period.filter(|_| sampled && !self.periods_differ);
        let mut attribute_indices = vec![tables.text("jfr.event.type", &measure.event)];
        if let Some(variant) = &measure.variant {
            attribute_indices.push(tables.text("jfr.event.name", variant));
        }
        // Stacks and threads of several chunks can be equal.
        let mut samples: Vec<Sample> = Vec::new();
        let mut same: HashMap<(i32, Vec<i32>, i32), usize> = HashMap::new();
        for ((shape, context), observed) in self.samples {
            let shape = batch.shapes.get(shape);
            let stack = shape.stack.and_then(|number| batch.stacks.get(number as usize));
            let stack_index = stack.map_or(0, |stack| tables.stack(stack));
            let attribute_indices = attributes(batch, shape, context, tables);
            let context = context.map(|context| batch.contexts.get(context));
            let link_index = context.map_or(0, |context| tables.link(context.trace.0, context.span.id()));
            match same.entry((stack_index, attribute_indices, link_index)) {
                Entry::Occupied(known) => {
                    let sample = &mut samples[*known.get()];
                    sample.values.extend(observed.values);
                    sample.timestamps_unix_nano.extend(observed.timestamps_unix_nano);
                }
                Entry::Vacant(new) => {
                    let attribute_indices = new.key().1.clone();
                    new.insert(samples.len());
                    samples.push(Sample { stack_index, attribute_indices, link_index, ..observed });
                }
            }
        }
        Profile {
            sample_type: Some(sample_type),
            samples,
            time_unix_nano: first,
            // The end is exclusive, and the last sample must be inside.
            duration_nano: nanos(self.last).saturating_sub(first).saturating_add(1),
            period_type: period.map(|_| sample_type),
            period: period.map_or(0, |period| i64::try_from(period).unwrap_or(i64::MAX)),
            attribute_indices,
            ..Profile::default()
        }
    }
}

fn attributes(
    batch: &Batch,
    shape: &Shape,
    context: Option<Id<SpanContext>>,
    tables: &mut Tables,
) -> Vec<i32> {
    let mut indices = Vec::new();
    let mut names = vec!["thread.name", "thread.id", "thread.state"];
    if let Some(thread) = shape.thread {
        let thread = batch.threads.get(thread);
        indices.push(tables.text("thread.name", &thread.name().into()));
        let id = if thread.os_id != 0 { thread.os_id } else { thread.java_id };
        indices.push(tables.attribute("thread.id", Attribute::Number(id)));
    }
    if let Some(state) = shape.state {
        indices.push(tables.text("thread.state", batch.states.get(state)));
    }
    if let Some(context) = context {
        let context = batch.contexts.get(context);
        if !context.trace.is_some() && context.span.id() != 0 {
            indices.push(tables.text("span.id", &format!("{:016x}", context.span.id()).into()));
            names.push("span.id");
        }
        if let Some(endpoint) = batch.endpoint(context) {
            indices.push(tables.text("endpoint", &endpoint));
            names.push("endpoint");
        }
        if let (0, Some(name)) = (context.span.id(), batch.name(context.span)) {
            indices.push(tables.text("span.name", name));
            names.push("span.name");
        }
        for (name, value) in context.labels.iter() {
            // Names must be unique, and receivers reject attributes without a name.
            if !name.is_empty() && !names.contains(&&**name) {
                indices.push(tables.text(name, value));
            }
        }
    }
    indices
}

/// Nanoseconds since 1970 as OTLP represents them.
pub(super) fn nanos(time: i64) -> u64 {
    u64::try_from(time).unwrap_or(0)
}
