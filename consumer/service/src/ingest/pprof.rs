//! Decodes profile.proto, as sent by Pyroscope's agents and scrapers.

use std::collections::HashMap;

use flightline_export::pprof::{Location, Profile};
use prost::Message;

use super::Error;
use super::profile_builder::{DEEPEST, Frame, Measure, NameCache, ProfileBuilder, Sample};

/// Adds an uncompressed profile. Returns its time range in UTC ms, if known.
pub(super) fn take(message: &[u8], builder: &mut ProfileBuilder) -> Result<Option<(i64, i64)>, Error> {
    let profile = Profile::decode(message)
        .map_err(|error| Error::Bad(format!("The body is not a pprof profile: {error}.")))?;
    if profile.sample_type.is_empty() || profile.string_table.first().is_none_or(|first| !first.is_empty()) {
        return Err(Error::Bad("The body is not a pprof profile: it has no sample type.".into()));
    }
    let text = |index: i64| -> &str {
        let at = usize::try_from(index).ok();
        at.and_then(|at| profile.string_table.get(at)).map_or("", String::as_str)
    };
    let kinds = kinds(&profile, &text, builder)?;
    let functions: HashMap<u64, i64> =
        profile.function.iter().map(|function| (function.id, function.name)).collect();
    let locations: HashMap<u64, &Location> =
        profile.location.iter().map(|location| (location.id, location)).collect();
    let modules: HashMap<u64, i64> =
        profile.mapping.iter().map(|mapping| (mapping.id, mapping.filename)).collect();
    let mut tables = Tables { functions, modules, names: NameCache::default(), files: NameCache::default() };
    let mut stacks: HashMap<&[u64], u32> = HashMap::new();
    for sample in &profile.sample {
        let stack = match stacks.get(sample.location_id.as_slice()) {
            Some(&known) => known,
            None => {
                let frames = sample.location_id.iter().filter_map(|id| locations.get(id));
                let frames = tables.frames(frames, &text, builder)?;
                let number = builder.stack(frames)?;
                stacks.insert(&sample.location_id, number);
                number
            }
        };
        let (mut name, mut id) = ("", 0);
        for label in &sample.label {
            match text(label.key) {
                "thread" | "thread_name" | "thread name" => name = text(label.str),
                "thread_id" | "thread id" | "tid" => id = label.num,
                _ => {}
            }
        }
        let thread = builder.thread(name, id)?;
        for (kind, &value) in kinds.iter().zip(&sample.value) {
            let value = u64::try_from(value).unwrap_or(0).saturating_mul(kind.1);
            builder.sample(Sample { kind: kind.0, stack, thread, time: None, value })?;
        }
    }
    let from = profile.time_nanos / 1_000_000;
    let length = profile.duration_nanos.max(0) / 1_000_000;
    Ok((from > 0).then(|| (from, from.saturating_add(length))))
}

/// Returns the kind and the factor of each value.
fn kinds<'a>(
    profile: &Profile,
    text: &impl Fn(i64) -> &'a str,
    builder: &mut ProfileBuilder,
) -> Result<Vec<(usize, u64)>, Error> {
    let of =
        |value: &flightline_export::pprof::ValueType| Measure::parse(text(value.r#type), text(value.unit));
    let measures: Vec<(Measure, u64)> = profile.sample_type.iter().map(of).collect();
    // Use the period as the weight if the profile has no CPU time next to the number of samples.
    let period = profile.period_type.as_ref().map(of).filter(|(of, _)| *of == Measure::Cpu);
    let period = period.map(|(_, factor)| factor.saturating_mul(u64::try_from(profile.period).unwrap_or(0)));
    let has_time = measures.iter().any(|(of, _)| *of == Measure::Cpu);
    let mut kinds = Vec::new();
    for (measure, factor) in measures {
        let (measure, factor) = match (measure, period) {
            (Measure::Samples, Some(period)) if period > 0 && !has_time => (Measure::Cpu, period),
            (measure, _) => (measure, factor),
        };
        kinds.push((builder.kind(measure)?, factor));
    }
    Ok(kinds)
}

/// String indices of functions and files by id.
struct Tables {
    functions: HashMap<u64, i64>,
    modules: HashMap<u64, i64>,
    names: NameCache,
    files: NameCache,
}

impl Tables {
    fn frames<'a>(
        &mut self,
        locations: impl Iterator<Item = &'a &'a Location>,
        text: &impl Fn(i64) -> &'a str,
        builder: &mut ProfileBuilder,
    ) -> Result<Vec<Frame>, Error> {
        let mut frames = Vec::new();
        for location in locations {
            // Deeper frames are dropped anyway.
            if frames.len() > DEEPEST {
                break;
            }
            let file = self.modules.get(&location.mapping_id).copied().unwrap_or(0);
            let module = self.files.name(file, file_name(text(file)), builder)?;
            let before = frames.len();
            for line in location.line.iter().take(DEEPEST + 1) {
                let index = self.functions.get(&line.function_id).copied().unwrap_or(0);
                let name = self.names.name(index, text(index), builder)?;
                if name != 0 {
                    let line = i32::try_from(line.line).unwrap_or(0);
                    frames.push(Frame { name, module, line, kernel: false });
                }
            }
            if frames.len() == before {
                let name = builder.name(&format!("0x{:x}", location.address))?;
                frames.push(Frame { name, module, ..Frame::default() });
            }
        }
        Ok(frames)
    }
}

/// Returns the last component of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
