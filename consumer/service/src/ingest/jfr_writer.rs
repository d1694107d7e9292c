//! Writes samples of other profilers as a recording of one chunk.

use std::io;

use bytes::Bytes;
use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::metadata::Declared;
use jfr_format::schema::{self, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, Geometry, WriteError};

use super::profile_builder::{Measure, ProfileBuilder, Sample};
use super::{Error, Limits};

const MILLI: i64 = 1_000_000;
/// Replacements for empty names, as recorders write them. async-profiler's reader and jafar reject an empty
/// symbol in the only encoding that the JDK's tools accept.
const NO_MODULE: &str = "unknown";
const NO_NAME: &str = "[unknown]";
/// Descriptor of all methods. The JDK's tool looks for parameters in it and fails without parentheses.
const DESCRIPTOR: &str = "()L;";
/// Maximum number of events for CPU samples, and how it grows with the input, so that a small message cannot
/// become a large recording. Above it each event represents more time.
const MOST_EVENTS: u64 = 1 << 18;
const FEW_EVENTS: u64 = 10_000;
const EVENTS_OF_ONE: u64 = 64;
/// Buffer size for events and constants, in bytes.
const AT_ONCE: usize = 8 << 20;
/// Maximum duration of one profile, ns.
const LONGEST: i64 = 24 * 3600 * 1_000_000_000;
/// Step of the golden-ratio sequence, which spreads any number of samples evenly over the interval.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Creates a recording. Times are UTC ms. Samples without a timestamp are spread over the interval. Returns
/// `None` if there are no samples.
pub(super) fn recording(
    builder: &ProfileBuilder,
    from: i64,
    until: i64,
    limits: Limits,
) -> Result<Option<Bytes>, Error> {
    if builder.samples.is_empty() {
        return Ok(None);
    }
    let times = builder.samples.iter().filter_map(|sample| sample.time);
    let (first, last) =
        times.fold((i64::MAX, i64::MIN), |(first, last), time| (first.min(time), last.max(time)));
    let from = from.max(0).saturating_mul(MILLI).min(first);
    let until = until.saturating_mul(MILLI).max(last).max(from.saturating_add(MILLI));
    if until.saturating_sub(from) > LONGEST {
        return Err(Error::Bad("The profile covers more than a day; give its time in ns since 1970.".into()));
    }
    let mut writer = JfrWriter::new(builder, from, until).map_err(flawed)?;
    writer.all().map_err(flawed)?;
    let bytes = writer.out;
    if bytes.len() > limits.recording {
        return Err(Error::too_large("The recording that it makes", limits.recording));
    }
    Ok(Some(bytes.into()))
}

fn flawed(error: io::Error) -> Error {
    Error::TooLarge(format!("The profile cannot be converted to a recording: {error}. Send it in parts."))
}

fn write_error(error: WriteError) -> io::Error {
    io::Error::other(error.to_string())
}

struct JfrWriter<'a> {
    builder: &'a ProfileBuilder,
    chunk: ChunkWriter,
    out: Vec<u8>,
    /// ns since 1970.
    from: i64,
    length: i64,
    /// Number of events spread so far.
    spread: u64,
}

const TYPES: [jfr_format::ids::TypeId; 6] = [
    schema::ACTIVE_SETTING,
    schema::EXECUTION_SAMPLE,
    schema::WALL_CLOCK_SAMPLE,
    schema::MALLOC,
    schema::LIVE_ALLOCATION,
    schema::EVENT_SAMPLE,
];

impl<'a> JfrWriter<'a> {
    fn new(builder: &'a ProfileBuilder, from: i64, until: i64) -> io::Result<Self> {
        let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns: from, ticks_per_second: 1_000_000_000 };
        let declared = Declared::new(TYPES);
        let chunk = ChunkWriter::declaring(&declared, Geometry::Patched, &line, FileOffset(0), Ticks(0));
        Ok(Self {
            builder,
            chunk: chunk.map_err(write_error)?,
            out: Vec::new(),
            from,
            length: until - from,
            spread: 0,
        })
    }

    fn all(&mut self) -> io::Result<()> {
        self.constants()?;
        for (kind, measure) in self.builder.kinds.iter().enumerate() {
            match measure {
                Measure::Cpu => self.cpu(kind)?,
                // Redundant if the same samples also have CPU time.
                Measure::Samples if self.builder.kinds.contains(&Measure::Cpu) => {}
                Measure::Samples if self.total(kind) <= self.most(kind) => self.steady(kind, 1)?,
                _ => self.weighed(kind, measure)?,
            }
        }
        self.chunk.finish(Ticks(self.length), true, &mut self.out)
    }

    fn constants(&mut self) -> io::Result<()> {
        let builder = self.builder;
        // Keys are indices plus one, since key 0 means null.
        let named = builder.names.iter().map(|name| if name.is_empty() { NO_NAME } else { name });
        for (key, name) in (1..).zip(named.chain([NO_MODULE, DESCRIPTOR])) {
            self.constant(schema::SYMBOL, key, |s| {
                s.string(name);
            })?;
        }
        let no_module = builder.names.len() as u64 + 1;
        let descriptor = no_module + 1;
        let mut methods = std::collections::HashMap::new();
        let mut classes = std::collections::HashSet::new();
        for frame in builder.stacks.iter().flatten() {
            let class = u64::from(frame.module) + 1;
            if classes.insert(class) {
                let name = if frame.module == 0 { no_module } else { class };
                self.constant(schema::CLASS, class, |c| {
                    c.key(0).key(name).key(0).int(0).boolean(false);
                })?;
            }
            let next = methods.len() as u64 + 1;
            if *methods.entry((frame.name, frame.module)).or_insert(next) == next {
                let name = u64::from(frame.name) + 1;
                self.constant(schema::METHOD, next, |m| {
                    m.key(class).key(name).key(descriptor).int(0).boolean(false);
                })?;
            }
        }
        for (number, frames) in (1..).zip(&builder.stacks) {
            let kept = if ProfileBuilder::is_cut(frames) { &frames[..frames.len() - 1] } else { frames };
            self.constant(schema::STACK_TRACE, number, |s| {
                s.boolean(ProfileBuilder::is_cut(frames)).array(kept.len());
                for frame in kept {
                    let method = methods.get(&(frame.name, frame.module)).copied().unwrap_or(0);
                    s.key(method).int(frame.line).int(0).key(frame.kind());
                }
            })?;
        }
        for (number, (name, id)) in builder.threads.iter().enumerate().skip(1) {
            let name = builder.names.get(*name as usize).map_or("", |name| name);
            self.constant(schema::THREAD, number as u64, |t| {
                t.string(name).long(*id).null().long(0).key(0);
            })?;
        }
        for (number, measure) in (1..).zip(&builder.kinds) {
            let name = match measure {
                Measure::Other(name) => name,
                // Used if there are too many for one event each.
                _ => "samples",
            };
            self.constant(schema::EVENT_NAME, number, |c| {
                c.string(name);
            })?;
        }
        Ok(())
    }

    fn samples(&self, kind: usize) -> impl Iterator<Item = &'a Sample> + use<'a> {
        self.builder.samples.iter().filter(move |sample| sample.kind == kind)
    }

    fn total(&self, kind: usize) -> u64 {
        self.samples(kind).fold(0, |sum, sample| sum.saturating_add(sample.value))
    }

    /// Maximum number of events for samples of this kind.
    fn most(&self, kind: usize) -> u64 {
        let samples = self.samples(kind).count() as u64;
        MOST_EVENTS.min(FEW_EVENTS + samples.saturating_mul(EVENTS_OF_ONE)).max(samples)
    }

    /// Writes CPU time as events of equal weight: the greatest common divisor of all values, which is exact,
    /// unless that would be too many events.
    fn cpu(&mut self, kind: usize) -> io::Result<()> {
        let period = self.samples(kind).fold(0, |period, sample| common(period, sample.value));
        let period = period.max(self.total(kind).div_ceil(self.most(kind))).max(1);
        let id = i64::from(schema::EXECUTION_SAMPLE.0);
        self.event(schema::ACTIVE_SETTING, |e| {
            e.ticks(Ticks(0)).long(id).string("interval").string(&period.to_string());
        })?;
        self.steady(kind, period)
    }

    /// Writes one event per `period`; the remainder of one sample carries over to the next.
    fn steady(&mut self, kind: usize, period: u64) -> io::Result<()> {
        let mut carried = 0u64;
        for sample in self.samples(kind) {
            carried = carried.saturating_add(sample.value);
            while carried >= period {
                carried -= period;
                let at = self.at(sample);
                self.event(schema::EXECUTION_SAMPLE, |e| {
                    e.ticks(at).key(sample.thread.into()).key(stack(sample)).key(thread_state::DEFAULT);
                })?;
            }
        }
        Ok(())
    }

    /// Writes one event per sample, with its weight.
    fn weighed(&mut self, kind: usize, measure: &Measure) -> io::Result<()> {
        for sample in self.samples(kind) {
            let (at, thread, stack) = (self.at(sample), sample.thread.into(), stack(sample));
            let value = i64::try_from(sample.value).unwrap_or(i64::MAX);
            match measure {
                Measure::Wall => self.event(schema::WALL_CLOCK_SAMPLE, |e| {
                    e.ticks(at).key(thread).key(stack).key(thread_state::DEFAULT).int(1).ticks(Ticks(value));
                })?,
                Measure::Alloc => self.event(schema::MALLOC, |e| {
                    e.ticks(at).key(thread).key(stack).long(0).long(value);
                })?,
                Measure::Live => self.event(schema::LIVE_ALLOCATION, |e| {
                    e.ticks(at)
                        .key(thread)
                        .key(stack)
                        .long(0)
                        .long(value)
                        .long(value)
                        .ticks(at)
                        .ticks(Ticks(0));
                })?,
                _ => self.event(schema::EVENT_SAMPLE, |e| {
                    e.ticks(at).key(thread).key(stack).key(kind as u64 + 1).long(value);
                })?,
            }
        }
        Ok(())
    }

    /// Returns the time of a sample's event.
    fn at(&mut self, sample: &Sample) -> Ticks {
        if let Some(time) = sample.time {
            return Ticks(time - self.from);
        }
        self.spread = self.spread.wrapping_add(1);
        let share = u128::from(self.spread.wrapping_mul(GOLDEN));
        let length = u128::from(self.length.unsigned_abs());
        Ticks(i64::try_from((share * length) >> 64).unwrap_or(0))
    }

    fn constant(
        &mut self,
        of: jfr_format::ids::TypeId,
        key: u64,
        fields: impl FnOnce(&mut jfr_format::write::FieldWriter<'_>),
    ) -> io::Result<()> {
        self.make_room()?;
        self.chunk.constant(of, key, fields).map_err(write_error)
    }

    fn event(
        &mut self,
        of: jfr_format::ids::TypeId,
        fields: impl FnOnce(&mut jfr_format::write::FieldWriter<'_>),
    ) -> io::Result<()> {
        self.make_room()?;
        self.chunk.event(of, fields).map_err(write_error)
    }

    fn make_room(&mut self) -> io::Result<()> {
        if self.chunk.pending() >= AT_ONCE {
            self.chunk.flush(Ticks(0), &mut self.out)?;
        }
        Ok(())
    }
}

fn stack(sample: &Sample) -> u64 {
    u64::from(sample.stack) + 1
}

/// Greatest common divisor.
fn common(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
