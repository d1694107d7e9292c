//! Converts a batch to one pprof profile with a value for each measure.
//!
//! It is built from the OTLP message, whose format descends from pprof: the tables are the same, but
//! pprof numbers ids from 1 and stores labels in the samples.

mod labels;
mod proto;
mod tree;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use flightline_consumer::spans::SpanKey;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::profiles::v1development::{self as otlp, ProfilesDictionary};
use prost::Message;
pub use proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
pub(crate) use tree::tree_unit;
pub use tree::{Chosen, Selection, folded, from_tree, selected, unpacked, write_folded};

use crate::batch::Batch;

/// Converts the batch. Samples with the same stack and labels are added up.
///
/// Labels: `thread`, `thread_id`, `state`, `process`, `trace_id`, `span_id`, `span_name`, `endpoint`, and
/// the labels of spans.
pub fn profile(batch: &Batch) -> Profile {
    let data = crate::otlp::profiles(batch);
    let dictionary = data.dictionary.unwrap_or_default();
    let mut making = Making::new(&dictionary);
    let mut first = None;
    let mut end = 0;
    for resource in &data.resource_profiles {
        let process = resource.resource.as_ref().and_then(|resource| {
            let value = |name: &str| resource.attributes.iter().find(|a| a.key == name)?.value.clone()?.value;
            match (value("process.executable.name")?, value("process.pid")?) {
                (any_value::Value::StringValue(name), any_value::Value::IntValue(pid)) => {
                    Some(format!("{name} ({pid})"))
                }
                _ => None,
            }
        });
        for profile in resource.scope_profiles.iter().flat_map(|scope| &scope.profiles) {
            first = Some(first.map_or(profile.time_unix_nano, |f: u64| f.min(profile.time_unix_nano)));
            end = end.max(profile.time_unix_nano.saturating_add(profile.duration_nano));
            making.take(batch, profile, process.as_deref());
        }
    }
    let first = first.unwrap_or(0);
    let mut profile = making.finish();
    profile.time_nanos = i64::try_from(first).unwrap_or(i64::MAX);
    profile.duration_nanos = i64::try_from(end.saturating_sub(first)).unwrap_or(i64::MAX);
    profile
}

/// Writes a profile compressed with gzip, as pprof expects it.
///
/// # Errors
/// `out` cannot be written.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&profile.encode_to_vec())?;
    gzip.finish()?.flush()
}

struct Making<'a> {
    dictionary: &'a ProfilesDictionary,
    /// Strings that are not in the dictionary.
    texts: HashMap<String, i64>,
    profile: Profile,
    types: HashMap<(i32, i32), usize>,
    samples: BTreeMap<(i32, Vec<Label>), Vec<i64>>,
}

impl<'a> Making<'a> {
    fn new(dictionary: &'a ProfilesDictionary) -> Self {
        let string_table = dictionary.string_table.clone();
        let texts = (0..).zip(&string_table).map(|(at, text)| (text.clone(), at)).collect();
        let profile = Profile { string_table, ..Profile::default() };
        Self { dictionary, texts, profile, types: HashMap::new(), samples: BTreeMap::new() }
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(&known) = self.texts.get(text) {
            return known;
        }
        let at = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), at);
        at
    }

    fn take(&mut self, batch: &Batch, profile: &otlp::Profile, process: Option<&str>) {
        let Some(of) = profile.sample_type else { return };
        let next = self.types.len();
        let at = *self.types.entry((of.type_strindex, of.unit_strindex)).or_insert(next);
        let value_type = ValueType { r#type: of.type_strindex.into(), unit: of.unit_strindex.into() };
        if at == next {
            self.profile.sample_type.push(value_type);
        }
        // Periods differ if several events were sampled; readers expect the period of CPU time.
        let name = |index: i64| self.profile.string_table.get(index as usize).map(String::as_str);
        if name(value_type.r#type) == Some("cpu") || self.profile.period_type.is_none() {
            self.profile.default_sample_type = value_type.r#type;
            self.profile.period_type = Some(value_type);
            self.profile.period = profile.period;
        }
        for sample in &profile.samples {
            let labels = self.labels(batch, sample, process);
            let sum = sample.values.iter().fold(0i64, |sum, value| sum.saturating_add(*value));
            let values = self.samples.entry((sample.stack_index, labels)).or_default();
            if values.len() <= at {
                values.resize(at + 1, 0);
            }
            values[at] = values[at].saturating_add(sum);
        }
    }

    fn labels(&mut self, batch: &Batch, sample: &otlp::Sample, process: Option<&str>) -> Vec<Label> {
        let mut labels = Vec::new();
        let dictionary = self.dictionary;
        if let Some(process) = process {
            labels.push(Label { key: self.text("process"), str: self.text(process), num: 0 });
        }
        for index in &sample.attribute_indices {
            let Some(attribute) = dictionary.attribute_table.get(*index as usize) else { continue };
            let name =
                dictionary.string_table.get(attribute.key_strindex as usize).map_or("", String::as_str);
            let key = match name {
                "thread.name" => self.text("thread"),
                "thread.id" => self.text("thread_id"),
                "thread.state" => self.text("state"),
                "span.id" => self.text("span_id"),
                "span.name" => self.text("span_name"),
                _ => attribute.key_strindex.into(),
            };
            match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
                Some(any_value::Value::StringValue(text)) => {
                    labels.push(Label { key, str: self.text(text), num: 0 });
                }
                Some(any_value::Value::IntValue(num)) => labels.push(Label { key, str: 0, num: *num }),
                _ => {}
            }
        }
        if let Some(link) =
            dictionary.link_table.get(sample.link_index as usize).filter(|_| sample.link_index > 0)
        {
            let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            labels.push(Label { key: self.text("trace_id"), str: self.text(&hex(&link.trace_id)), num: 0 });
            labels.push(Label { key: self.text("span_id"), str: self.text(&hex(&link.span_id)), num: 0 });
            let id = <[u8; 8]>::try_from(&*link.span_id).map_or(0, u64::from_be_bytes);
            if let Some(name) = batch.name(SpanKey::Id(id)) {
                labels.push(Label { key: self.text("span_name"), str: self.text(name), num: 0 });
            }
        }
        labels
    }

    fn finish(mut self) -> Profile {
        let dictionary = self.dictionary;
        let types = self.profile.sample_type.len();
        for ((stack, labels), mut values) in std::mem::take(&mut self.samples) {
            values.resize(types, 0);
            let stack = dictionary.stack_table.get(stack as usize);
            let locations = stack.map_or(&[][..], |stack| &stack.location_indices);
            let location_id = locations.iter().map(|&index| index as u64).collect();
            self.profile.sample.push(Sample { location_id, value: values, label: labels });
        }
        // OTLP's index 0 means "none", and so does pprof's id 0: ids begin at 1.
        let of = |at: usize| at as u64;
        self.profile.mapping = dictionary
            .mapping_table
            .iter()
            .enumerate()
            .skip(1)
            .map(|(at, mapping)| Mapping {
                id: of(at),
                filename: mapping.filename_strindex.into(),
                has_functions: true,
            })
            .collect();
        self.profile.function = dictionary
            .function_table
            .iter()
            .enumerate()
            .skip(1)
            .map(|(at, function)| {
                let name = function.name_strindex.into();
                Function { id: of(at), name, system_name: name, ..Function::default() }
            })
            .collect();
        self.profile.location = dictionary
            .location_table
            .iter()
            .enumerate()
            .skip(1)
            .map(|(at, location)| {
                let line =
                    |line: &otlp::Line| Line { function_id: line.function_index as u64, line: line.line };
                Location {
                    id: of(at),
                    mapping_id: location.mapping_index as u64,
                    address: location.address,
                    line: location.lines.iter().map(line).collect(),
                }
            })
            .collect();
        self.profile
    }
}
