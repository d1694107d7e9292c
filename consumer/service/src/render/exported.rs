//! Writes pprof and OTLP, as `flightline export` does: with threads, labels and spans.

use std::io::Write;

use flightline_consumer::fold::Filter;
use flightline_consumer::live::{self, Choice, Item};
use flightline_consumer::off_cpu::Graph;
use flightline_export::{Attributes, Collector, otlp, pprof};
use prost::Message;

use super::input::{Inputs, Range};
use super::{Error, Format, NOTHING, Outcome, RenderOptions};

/// Maximum number of exported samples. Each takes 40 bytes in memory, and about as many in the message.
pub const MOST: u64 = 2 << 20;

pub(super) fn write(
    format: Format,
    inputs: &Inputs<'_>,
    graph: Option<Graph>,
    range: Range,
    wanted: &RenderOptions,
    out: &mut impl Write,
) -> Result<Outcome, Error> {
    let mut collector = Collector::new(Attributes::default());
    let mut choice = Choice::new(Filter::default(), range.both());
    let events = graph.map_or_else(|| wanted.event.iter().cloned().collect(), Graph::events);
    let of = live::Options { samples: events, ..live::Options::default() };
    let mut samples = 0;
    let damage = inputs.each(&of, |item| {
        if !choice.wants(item) {
            return Ok(());
        }
        samples += u64::from(matches!(item, Item::Sample(_)));
        if samples > MOST {
            return Err(Error::TooLarge(format!(
                "The interval has more than {MOST} samples, which is the limit for {}; choose a shorter \
                 interval, or use folded or jfr.",
                format.name()
            )));
        }
        collector.take(item);
        Ok(())
    })?;
    let batch = collector.finish();
    if batch.counts().samples == 0 {
        return Err(Error::Refused(NOTHING.into()));
    }
    match format {
        Format::Pprof => pprof::write(&pprof::profile(&batch), out).map_err(Error::Write)?,
        _ => {
            let message = otlp::profiles(&batch);
            drop(batch);
            out.write_all(&message.encode_to_vec()).map_err(Error::Write)?;
        }
    }
    Ok(Outcome { whole: damage.is_none(), notes: damage.into_iter().collect(), ..Outcome::default() })
}
