//! A stream as input: read to its end, or until a signal arrives.

use std::time::Duration;

use anyhow::{Context, Result};
use flightline_consumer::live::{Choice, Item};
use flightline_recorder::stream::{Address, Token};

use super::{ExportArgs, READ, feed, take};
use crate::Outcome;
use crate::args::time_range;
use crate::diagnostics::shown;
use crate::input::stream::{self, Got, Stream};
use crate::signals::Signals;

/// Returns the stream if it is the only input, and the signals that end it. Call this before other threads
/// exist.
pub(super) fn followed(args: &ExportArgs) -> Result<Option<(Address, Signals)>> {
    let address = match args.inputs.as_slice() {
        [only] => stream::address(only)?,
        _ => None,
    };
    address.map(|address| Ok((address, Signals::from_user()?))).transpose()
}

/// Passes the items of a stream to `each`, and `None` whenever it has caught up, at least every `often`.
pub(super) fn follow(
    args: &ExportArgs,
    address: &Address,
    signals: &Signals,
    often: Duration,
    mut each: impl FnMut(Option<&Item>) -> Result<()>,
) -> Result<Outcome> {
    let path = &args.inputs[0];
    let token = Token::find(args.token_file.as_deref())?;
    let mut stream =
        Stream::open(address, token.as_ref()).with_context(|| format!("cannot open {}", shown(path)))?;
    let mut outcome = Outcome::Whole;
    let (mut feed, mut buffer) = (feed(args), vec![0; READ]);
    let mut choice =
        Choice::new(args.samples.filter(), time_range::nanos(&args.inputs, &args.samples.range)?);
    loop {
        let got = stream.read(&mut buffer, Some(signals), often);
        let got = got.with_context(|| format!("cannot read {}", shown(path)))?;
        match got {
            Got::Bytes(bytes) => feed.push(buffer.get(..bytes).unwrap_or_default()),
            Got::Nothing => {}
            Got::End => feed.close(),
        }
        take(&mut feed, path, &mut outcome, &mut choice, &mut |item, _| each(Some(item)))?;
        each(None)?;
        if got == Got::End || signals.wait(Some(Duration::ZERO)).is_some() {
            return Ok(outcome);
        }
    }
}
